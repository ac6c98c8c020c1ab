// Resizing images: nearest, linear and cubic, dimension by dimension. An output is a weighted sum
// of a few elements of the input (taps); its gradient puts the weighted gradient back to the same
// elements. Positions are computed here, with ATen's arithmetic and precision.
#include "lower/pool.h"

#include <algorithm>
#include <cmath>

namespace torch_xla {
namespace {

// Where the outputs of one dimension fall in the input: before it an element, then a fraction.
struct Positions {
  int64_t size;  // of the input
  std::vector<int64_t> element;
  double scale;  // input elements per output
  bool align_corners;

  // Elements `shift` further, at the border the last one.
  std::vector<int64_t> neighbours(int64_t shift) const {
    std::vector<int64_t> result;
    for (int64_t at : element) {
      result.push_back(std::clamp<int64_t>(at + shift, 0, size - 1));
    }
    return result;
  }
};

// ATen's area_pixel_compute_scale; `given` is the user's scale factor or 0.
template <typename T>
T scale_of(int64_t in, int64_t out, bool align_corners, double given) {
  if (align_corners) {
    return out > 1 ? static_cast<T>(in - 1) / static_cast<T>(out - 1) : T(0);
  }
  return given > 0 ? static_cast<T>(1.0 / given) : static_cast<T>(in) / static_cast<T>(out);
}

enum class Nearest { Floor, Exact };

std::vector<int64_t> nearest_elements(int64_t in, int64_t out, double given, Nearest kind) {
  float scale = scale_of<float>(in, out, false, given);
  float offset = kind == Nearest::Exact ? 0.5f : 0.0f;
  std::vector<int64_t> result;
  for (int64_t o = 0; o < out; ++o) {
    float position = (static_cast<float>(o) + offset) * scale;
    result.push_back(std::min(static_cast<int64_t>(std::floor(position)), in - 1));
  }
  return result;
}

template <typename T>
Positions positions_as(int64_t in, int64_t out, bool align_corners, double given, bool cubic) {
  T scale = scale_of<T>(in, out, align_corners, given);
  Positions p{in, {}, static_cast<double>(scale), align_corners};
  for (int64_t o = 0; o < out; ++o) {
    T at =
        align_corners ? scale * static_cast<T>(o) : scale * (static_cast<T>(o) + T(0.5)) - T(0.5);
    p.element.push_back(static_cast<int64_t>(std::floor(cubic ? at : std::max(at, T(0)))));
    if (!cubic) {
      p.element.back() = std::min(p.element.back(), in - 1);
    }
  }
  return p;
}

Positions positions_of(int64_t in, int64_t out, bool align_corners, double given, bool cubic,
                       DType dtype) {
  return dtype == DType::Double ? positions_as<double>(in, out, align_corners, given, cubic)
                                : positions_as<float>(in, out, align_corners, given, cubic);
}

// How far each output lies past its element, in [0, 1].
Expr fractions(Builder& b, const Positions& p, DType dtype) {
  int64_t out = static_cast<int64_t>(p.element.size());
  Expr position(b, b.iota({dtype, {out}}, 0));
  position = p.align_corners ? position * p.scale : (position + 0.5) * p.scale - 0.5;
  Expr element(b, b.convert(b.ints(p.element), dtype));
  return minimum(maximum(position - element, 0.0), 1.0);
}

struct Tap {
  std::vector<int64_t> indices;
  std::optional<Expr> weights;  // one per output; nullopt: 1
};
using Taps = std::vector<Tap>;

Taps linear_taps(Builder& b, const Positions& p, DType dtype) {
  Expr t = fractions(b, p, dtype);
  return {{p.neighbours(0), 1.0 - t}, {p.neighbours(1), t}};
}

// The cubic convolution of Keys, a = -0.75.
Taps cubic_taps(Builder& b, const Positions& p, DType dtype) {
  constexpr double a = -0.75;
  auto near = [](Expr t) { return ((a + 2) * t - (a + 3)) * t * t + 1.0; };
  auto far = [](Expr t) { return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a; };
  Expr t = fractions(b, p, dtype), rest = 1.0 - t;
  return {{p.neighbours(-1), far(t + 1.0)},
          {p.neighbours(0), near(t)},
          {p.neighbours(1), near(rest)},
          {p.neighbours(2), far(rest + 1.0)}};
}

Expr weighted(Expr x, const Tap& tap, int64_t dim) {
  return tap.weights ? x * spread(*tap.weights, x.value().dims(), {dim}) : x;
}

Val resize(Builder& b, Val x, int64_t dim, const Taps& taps) {
  std::optional<Expr> result;
  for (const Tap& tap : taps) {
    Expr term = weighted({b, take(b, x, dim, tap.indices)}, tap, dim);
    result = result ? *result + term : term;
  }
  return result->value();
}

Val resize_adjoint(LowerContext& c, Val grad, int64_t dim, const Taps& taps, int64_t size) {
  std::optional<Expr> result;
  for (const Tap& tap : taps) {
    Expr term(c.b, put_back(c, weighted({c.b, grad}, tap, dim).value(), dim, tap.indices, size));
    result = result ? *result + term : term;
  }
  return result->value();
}

// What differs between the operators; `taps` makes those of one dimension from the sizes of input
// and output and the user's scale factor.
using MakeTaps = Taps (*)(LowerContext& c, int64_t in, int64_t out, double given, size_t align);

template <Nearest kind>
Taps make_nearest(LowerContext&, int64_t in, int64_t out, double given, size_t) {
  return {{nearest_elements(in, out, given, kind), std::nullopt}};
}

bool is_of_bytes(LowerContext& c) { return c10::isIntegralType(c.output(0).dtype, false); }

// Bytes are weighted as floats.
DType weighted_dtype(LowerContext& c) {
  return is_of_bytes(c) ? DType::Float : compute_dtype(c.output(0).dtype);
}

Taps make_linear(LowerContext& c, int64_t in, int64_t out, double given, size_t align) {
  DType dtype = weighted_dtype(c);
  return linear_taps(c.b, positions_of(in, out, c.flag(align), given, false, dtype), dtype);
}

Taps make_cubic(LowerContext& c, int64_t in, int64_t out, double given, size_t align) {
  DType dtype = weighted_dtype(c);
  return cubic_taps(c.b, positions_of(in, out, c.flag(align), given, true, dtype), dtype);
}

// upsample_*(self, output_size[, align_corners], scales...)
template <MakeTaps make_taps, bool aligns>
void lower_resize(LowerContext& c) {
  const Dims& out = c.output(0).sizes;
  Val x = c.tensor_as(0, weighted_dtype(c));
  Dims in = x.dims();
  for (int64_t dim = 2; dim < x.rank(); ++dim) {
    size_t scale = (aligns ? 3 : 2) + static_cast<size_t>(dim - 2);
    x = resize(c.b, x, dim, make_taps(c, in[dim], out[dim], c.real_or(scale, 0), 2));
  }
  if (is_of_bytes(c)) {
    x = minimum(maximum(Expr(c.b, c.b.unary("floor", (Expr(c.b, x) + 0.5).value())), 0.0), 255.0)
            .value();
  }
  finish(c, {c.b, x});
}

// upsample_*_backward(grad_output, output_size, input_size[, align_corners], scales...)
template <MakeTaps make_taps, bool aligns>
void lower_resize_backward(LowerContext& c) {
  const Dims& in = c.output(0).sizes;
  Val grad = c.tensor_as(0, compute_dtype(c.output(0).dtype));
  Dims out = grad.dims();
  for (int64_t dim = 2; dim < grad.rank(); ++dim) {
    size_t scale = (aligns ? 4 : 3) + static_cast<size_t>(dim - 2);
    Taps taps = make_taps(c, in[dim], out[dim], c.real_or(scale, 0), 3);
    grad = resize_adjoint(c, grad, dim, taps, in[dim]);
  }
  finish(c, {c.b, grad});
}

template <MakeTaps make_taps>
void add_nearest(LowerTable& table, const std::string& op) {
  table["aten::" + op] = {lower_resize<make_taps, false>};
  table["aten::" + op + "_backward"] = {lower_resize_backward<make_taps, false>};
}

// XLA-CPU gathers each tap of an average, and adds its gradient, an element at a time. PyTorch's
// kernels round bytes in a way of their own.
template <LowerFunction elsewhere>
void average(LowerContext& c) {
  is_of_bytes(c) ? host_or<elsewhere>(c) : large_on_host<elsewhere>(c);
}

template <MakeTaps make_taps>
void add_averaging(LowerTable& table, const std::string& op) {
  table["aten::" + op] = {average<lower_resize<make_taps, true>>};
  table["aten::" + op + "_backward"] = {average<lower_resize_backward<make_taps, true>>};
}

}  // namespace

void register_resize(LowerTable& table) {
  for (const char* rank : {"1d", "2d", "3d"}) {
    add_nearest<make_nearest<Nearest::Floor>>(table, std::string("upsample_nearest") + rank);
    add_nearest<make_nearest<Nearest::Exact>>(table, std::string("_upsample_nearest_exact") + rank);
  }
  add_averaging<make_linear>(table, "upsample_linear1d");
  add_averaging<make_linear>(table, "upsample_bilinear2d");
  add_averaging<make_linear>(table, "upsample_trilinear3d");
  add_averaging<make_cubic>(table, "upsample_bicubic2d");
}

}  // namespace torch_xla
