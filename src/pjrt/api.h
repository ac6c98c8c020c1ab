// Calls into a plugin: one checked path, on which every error becomes an exception that names what
// was attempted, the call and the plugin. Thread-safe.
#pragma once

#include "base/error.h"
#include "ir/types.h"
#include "pjrt/fork_guard.h"

#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include "pjrt_c_api.h"

namespace torch_xla::pjrt {

// Zero-initialised arguments of a call, with the size this build knows.
template <typename Args>
Args make_args(size_t struct_size) {
  Args args;
  std::memset(&args, 0, sizeof(args));
  args.struct_size = struct_size;
  return args;
}

#define PJRT_ARGS(Name) make_args<Name##_Args>(Name##_Args_STRUCT_SIZE)

// api.Name(&args), checked. A last argument may say what is attempted: "compiling step_fn".
#define PJRT_CALL(api, Name, args, ...) \
  (api).call(&PJRT_Api::Name, #Name, (args)__VA_OPT__(, ) __VA_ARGS__)

// A loaded plugin's functions.
class Api {
 public:
  // `plugin` names it in messages: its path.
  Api(const PJRT_Api* table, std::string plugin) : table_(table), plugin_(std::move(plugin)) {}

  const PJRT_Api& table() const { return *table_; }
  const std::string& plugin() const { return plugin_; }
  int minor_version() const { return table_->pjrt_api_version.minor_version; }

  template <typename Args>
  using Function = PJRT_Error* (*)(Args*);

  // An older plugin's table ends earlier, and any plugin may leave a function out.
  template <typename Args>
  bool offers(Function<Args> PJRT_Api::*function) const {
    const auto* slot = &(table_->*function);
    const auto* end = reinterpret_cast<const char*>(slot + 1);
    return end <= reinterpret_cast<const char*>(table_) + table_->struct_size && *slot != nullptr;
  }

  template <typename Args>
  void call(Function<Args> PJRT_Api::*function, const char* name, Args& args,
            const char* doing = "") const {
    refuse_forked_child();
    if (!offers(function)) [[unlikely]] {
      throw_missing(name);
    }
    check((table_->*function)(&args), name, doing);
  }

  // Throws, and frees, `error` if there is one. `name`: the call it comes from.
  void check(PJRT_Error* error, const char* name, const char* doing = "") const {
    if (error != nullptr) [[unlikely]] {
      raise(error, name, doing);
    }
  }
  void discard(PJRT_Error* error) const noexcept;

  const PJRT_Extension_Base* find_extension(PJRT_Extension_Type type) const;

 private:
  [[noreturn]] void throw_missing(const char* name) const;
  [[noreturn]] void raise(PJRT_Error* error, const char* name, const char* doing) const;

  const PJRT_Api* table_;
  std::string plugin_;
};

// Owns an event. Destroying it does not wait.
class Event {
 public:
  Event(const Api& api, PJRT_Event* event) : api_(api), event_(event) {}
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  bool is_ready() const;
  // Blocks; throws the error of what should have happened.
  void await(const char* doing = "") const;

 private:
  friend void on_ready(std::shared_ptr<Event> event, std::function<void()> callback);
  const Api& api_;
  PJRT_Event* event_;
};
using EventPtr = std::shared_ptr<Event>;

// Calls back once, from any thread or at once, when it has happened or has failed.
void on_ready(EventPtr event, std::function<void()> callback);
// As its await(), unless the user ends the wait (base/interrupt.h).
void await_or_interrupt(const EventPtr& event, const char* doing = "");

// Throws for dtypes that no device has.
PJRT_Buffer_Type buffer_type(DType dtype);

}  // namespace torch_xla::pjrt
