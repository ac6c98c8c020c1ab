#include "bindings.h"

#include "base/location.h"
#include "pjrt/client.h"
#include "timeline/timeline.h"

namespace torch_xla {

namespace {

pybind11::list spans_of(const timeline::Recording& recording, const timeline::Track& track) {
  pybind11::list spans;
  for (const timeline::Span& span : track.spans) {
    const Location& location = location_of(span.location);
    spans.append(pybind11::make_tuple(timeline::kind_name(span.kind), recording.names[span.name],
                                      location.file, location.line, span.start, span.end,
                                      span.amount));
  }
  return spans;
}

pybind11::dict stop() {
  using namespace pybind11::literals;
  const timeline::Recording recording = [] {
    pybind11::gil_scoped_release no_gil;
    return timeline::stop();
  }();
  pybind11::list tracks;
  for (const timeline::Track& track : recording.tracks) {
    tracks.append(pybind11::dict("name"_a = track.name, "device"_a = track.device,
                                 "dropped"_a = track.dropped,
                                 "spans"_a = spans_of(recording, track)));
  }
  return pybind11::dict("unix_start"_a = recording.unix_start, "duration"_a = recording.duration,
                        "tracks"_a = tracks);
}

std::unique_ptr<pjrt::Profile> start_device_profile() { return pjrt::client().start_profile(); }

pybind11::bytes stop_device_profile(pjrt::Profile& profile) {
  const std::string space = [&] {
    pybind11::gil_scoped_release no_gil;
    return profile.stop();
  }();
  return pybind11::bytes(space);
}

}  // namespace

void bind_timeline(pybind11::module& m) {
  pybind11::class_<pjrt::Profile>(m, "DeviceProfile").def("stop", &stop_device_profile);
  m.def("start_device_profile", &start_device_profile,
        pybind11::call_guard<pybind11::gil_scoped_release>());
  m.def("timeline_start", &timeline::start);
  m.def("timeline_stop", &stop);
}

}  // namespace torch_xla
