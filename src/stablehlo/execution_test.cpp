// Every operation of the builder, run by the plugin that TORCH_XLA_PLUGIN_PATH names. Arguments are
// inputs of the program, so that the plugin's code is tested and not its constant folding.
#include "pjrt/client.h"
#include "stablehlo/builder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace torch_xla::stablehlo {
namespace {

using Numbers = std::vector<double>;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Input {
  TensorType type;
  Numbers values;
};

Input vector(Numbers values, DType dtype = DType::Double) {
  return {{dtype, {static_cast<int64_t>(values.size())}}, values};
}

Input matrix(int64_t rows, Numbers values, DType dtype = DType::Double) {
  return {{dtype, {rows, static_cast<int64_t>(values.size()) / rows}}, values};
}

// The program's results as doubles; inputs and results are converted inside the program.
std::vector<Numbers> run(const std::vector<Input>& inputs, const Region& body) {
  Builder b("test");
  b.begin_function("main", true);
  Vals arguments;
  for (const Input& input : inputs) {
    arguments.push_back(b.parameter({DType::Double, input.type.dims}));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    arguments[i] = b.convert(arguments[i], inputs[i].type.dtype);
  }
  Vals results;
  std::vector<TensorType> types;
  for (const Val& result : body(b, arguments)) {
    results.push_back(b.convert(result, DType::Double));
    types.push_back(results.back().type());
  }
  b.end_function(results);
  pjrt::ExecutablePtr program = pjrt::client().compile(b.str(true), {}, types);
  std::vector<pjrt::BufferPtr> buffers;
  std::vector<pjrt::Buffer*> pointers;
  for (const Input& input : inputs) {
    buffers.push_back(pjrt::client().buffer_from_host(
        input.values.data(), {DType::Double, input.type.dims}, 0, nullptr));
    pointers.push_back(buffers.back().get());
  }
  std::vector<Numbers> numbers;
  for (const pjrt::BufferPtr& output :
       program->execute(pointers, std::vector<bool>(inputs.size(), false), 0)) {
    numbers.emplace_back(output->type().numel());
    output->copy_to_host(numbers.back().data(), numbers.back().size() * sizeof(double));
  }
  return numbers;
}

Numbers run_one(const std::vector<Input>& inputs,
                const std::function<Val(Builder&, const Vals&)>& body) {
  return run(inputs, [&](Builder& b, const Vals& x) { return Vals{body(b, x)}; })[0];
}

void expect_near(const Numbers& actual, const Numbers& expected, double tolerance = 1e-12) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::isnan(expected[i]) || std::isinf(expected[i])) {
      EXPECT_EQ(std::isnan(actual[i]), std::isnan(expected[i])) << "element " << i;
      EXPECT_TRUE(std::isnan(expected[i]) || actual[i] == expected[i]) << "element " << i;
    } else {
      EXPECT_NEAR(actual[i], expected[i], tolerance * (1 + std::abs(expected[i])))
          << "element " << i;
    }
  }
}

// ---- constants and casts ------------------------------------------------------------------------

TEST(Execution, MakesConstantsOfEveryDtype) {
  for (DType dtype :
       {DType::Byte, DType::Char, DType::Short, DType::Int, DType::Long, DType::UInt16,
        DType::UInt32, DType::UInt64, DType::Half, DType::BFloat16, DType::Float, DType::Double,
        DType::ComplexFloat, DType::ComplexDouble, DType::Float8_e4m3fn, DType::Float8_e5m2}) {
    auto results = run({}, [&](Builder& b, const Vals&) {
      return Vals{b.constant(3.0, dtype), b.full(Number::of(int64_t{2}), {dtype, {2}}),
                  b.ints({1, 2, 3}), b.iota({DType::Long, {2, 2}}, 1)};
    });
    EXPECT_EQ(results[0], Numbers{3}) << c10::toString(dtype);
    EXPECT_EQ(results[1], (Numbers{2, 2})) << c10::toString(dtype);
    EXPECT_EQ(results[2], (Numbers{1, 2, 3}));
    EXPECT_EQ(results[3], (Numbers{0, 1, 0, 1}));
  }
}

TEST(Execution, MakesSpecialConstants) {
  auto results = run({}, [](Builder& b, const Vals&) {
    return Vals{b.full(kNaN, {DType::Float, {1}}), b.lowest(DType::Half), b.highest(DType::Int),
                b.lowest(DType::Char), b.full(0.0, {DType::Float, {0, 3}})};
  });
  expect_near(results[0], {kNaN});
  EXPECT_EQ(results[1], Numbers{-kInfinity});
  EXPECT_EQ(results[2], Numbers{2147483647});
  EXPECT_EQ(results[3], Numbers{-128});
  EXPECT_TRUE(results[4].empty());
}

TEST(Execution, ConvertsAsPyTorchDoes) {
  Input x = vector({-1.5, -0.0, 0.4, 2.7, 300, kNaN}, DType::Float);
  auto cast = [&](DType dtype) {
    return run_one({x}, [&](Builder& b, const Vals& v) { return b.convert(v[0], dtype); });
  };
  EXPECT_EQ(cast(DType::Bool), (Numbers{1, 0, 1, 1, 1, 1}));
  Numbers integers = cast(DType::Int);
  integers.pop_back();  // a NaN gives any integer
  EXPECT_EQ(integers, (Numbers{-1, 0, 0, 2, 300}));
  Numbers bytes = cast(DType::Byte);
  bytes.pop_back();
  EXPECT_EQ(bytes, (Numbers{255, 0, 0, 2, 44}));
  expect_near(cast(DType::BFloat16), {-1.5, 0, 0.400390625, 2.703125, 300, kNaN});
  Numbers real = run_one({x}, [](Builder& b, const Vals& v) {
    return b.convert(b.complex(v[0], b.full(9.0, v[0].type())), DType::Float);
  });
  expect_near(real, {-1.5, 0, 0.4f, 2.7f, 300, kNaN});
}

// ---- element-wise ----------------------------------------------------------------------------

struct Function {
  const char* op;
  double (*reference)(double);
};

void check_functions(const std::vector<Function>& functions, const Numbers& values,
                     Val (Builder::*method)(std::string_view, Val)) {
  for (const Function& function : functions) {
    Numbers expected;
    for (double value : values) {
      expected.push_back(function.reference(value));
    }
    SCOPED_TRACE(function.op);
    expect_near(run_one({vector(values)},
                        [&](Builder& b, const Vals& v) { return (b.*method)(function.op, v[0]); }),
                expected, 1e-9);
  }
}

TEST(Execution, EvaluatesUnaryOperations) {
  check_functions({{"negate", [](double x) { return -x; }},
                   {"abs", std::fabs},
                   {"exponential", std::exp},
                   {"exponential_minus_one", std::expm1},
                   {"log", std::log},
                   {"log_plus_one", std::log1p},
                   {"sqrt", std::sqrt},
                   {"rsqrt", [](double x) { return 1 / std::sqrt(x); }},
                   {"cbrt", std::cbrt},
                   {"sine", std::sin},
                   {"cosine", std::cos},
                   {"tan", std::tan},
                   {"tanh", std::tanh},
                   {"logistic", [](double x) { return 1 / (1 + std::exp(-x)); }},
                   {"floor", std::floor},
                   {"ceil", std::ceil},
                   {"round_nearest_even", std::nearbyint},
                   {"sign", [](double x) { return x > 0 ? 1.0 : -1.0; }}},
                  {0.25, 0.5, 1.5, 2.75}, &Builder::unary);
}

TEST(Execution, EvaluatesChloOperations) {
  check_functions({{"erf", std::erf},
                   {"erfc", std::erfc},
                   {"lgamma", std::lgamma},
                   {"asin", std::asin},
                   {"acos", std::acos},
                   {"atan", std::atan},
                   {"sinh", std::sinh},
                   {"cosh", std::cosh},
                   {"asinh", std::asinh},
                   {"atanh", std::atanh}},
                  {0.125, 0.5, 0.75}, &Builder::chlo);
  check_functions({{"acosh", std::acosh}}, {1.5, 3}, &Builder::chlo);
  expect_near(run_one({vector({0.5, 1})},
                      [](Builder& b, const Vals& v) { return b.chlo("digamma", v[0]); }),
              {-1.963510026021423, -0.5772156649015329}, 1e-9);
  expect_near(
      run_one({vector({0.5})}, [](Builder& b, const Vals& v) { return b.chlo("erf_inv", v[0]); }),
      {0.4769362762044699}, 1e-9);
}

TEST(Execution, BroadcastsBinaryOperations) {
  auto results = run({matrix(2, {1, 2, 3, 4}), vector({10, 20})}, [](Builder& b, const Vals& v) {
    return Vals{b.add(v[0], v[1]),
                b.sub(v[0], v[1]),
                b.mul(v[0], b.scalar_like(v[0], 2)),
                b.div(v[1], v[0]),
                b.maximum(v[0], b.scalar_like(v[0], 2.5)),
                b.minimum(v[0], b.scalar_like(v[0], 2.5)),
                b.binary("power", v[0], v[0]),
                b.binary("remainder", v[0], b.full(3.0, v[0].type())),
                b.binary("atan2", v[0], v[0])};
  });
  EXPECT_EQ(results[0], (Numbers{11, 22, 13, 24}));
  EXPECT_EQ(results[1], (Numbers{-9, -18, -7, -16}));
  EXPECT_EQ(results[2], (Numbers{2, 4, 6, 8}));
  expect_near(results[3], {10, 10, 10.0 / 3, 5});
  EXPECT_EQ(results[4], (Numbers{2.5, 2.5, 3, 4}));
  EXPECT_EQ(results[5], (Numbers{1, 2, 2.5, 2.5}));
  expect_near(results[6], {1, 4, 27, 256});
  EXPECT_EQ(results[7], (Numbers{1, 2, 0, 1}));
  expect_near(results[8], Numbers(4, std::atan(1.0)));
}

TEST(Execution, ComparesSelectsAndClamps) {
  auto results = run({vector({-1, 0, kNaN, kInfinity})}, [](Builder& b, const Vals& v) {
    Val zero = b.scalar_like(v[0], 0);
    Val positive = b.compare("GT", v[0], zero);
    Val same = b.compare("EQ", v[0], v[0]);
    return Vals{positive,
                b.logical_or(positive, b.logical_not(same)),
                b.logical_and(positive, same),
                b.select(same, v[0], zero),
                b.select(b.compare("LE", zero, zero), v[0], zero),
                b.clamp(zero, v[0], b.scalar_like(v[0], 5)),
                b.is_finite(v[0])};
  });
  EXPECT_EQ(results[0], (Numbers{0, 0, 0, 1}));
  EXPECT_EQ(results[1], (Numbers{0, 0, 1, 1}));
  EXPECT_EQ(results[2], (Numbers{0, 0, 0, 1}));
  EXPECT_EQ(results[3], (Numbers{-1, 0, 0, kInfinity}));
  expect_near(results[4], {-1, 0, kNaN, kInfinity});
  expect_near(results[5], {0, 0, kNaN, 5});
  EXPECT_EQ(results[6], (Numbers{1, 1, 0, 0}));
}

TEST(Execution, TakesComplexNumbersApart) {
  auto results = run({vector({3, 1}), vector({4, -1})}, [](Builder& b, const Vals& v) {
    Val z = b.complex(v[0], v[1]);
    Val square = b.mul(z, z);
    return Vals{
        b.real(square), b.imag(square), b.unary("abs", z), b.imag(v[0]),
        b.real(b.bitcast_convert(b.bitcast_convert(v[0], {DType::Long, {2}}), v[0].type()))};
  });
  expect_near(results[0], {-7, 0});
  expect_near(results[1], {24, -2});
  expect_near(results[2], {5, std::sqrt(2.0)});
  EXPECT_EQ(results[3], (Numbers{0, 0}));
  EXPECT_EQ(results[4], (Numbers{3, 1}));
}

// ---- shape --------------------------------------------------------------------------------------

TEST(Execution, MovesElements) {
  auto results = run({matrix(2, {1, 2, 3, 4, 5, 6})}, [](Builder& b, const Vals& v) {
    Val one = b.constant(Number::of(int64_t{1}), DType::Long);
    Val row = b.slice_dim(v[0], 0, 1, 2);
    return Vals{b.transpose(v[0], {1, 0}),
                b.slice(v[0], {0, 0}, {2, 3}, {1, 2}),
                b.pad(row, b.scalar_like(v[0], 9), {0, 1}, {0, 0}, {0, 1}),
                b.concatenate({row, v[0]}, 0),
                b.reverse(v[0], {1}),
                b.dynamic_slice(v[0], {one, one}, {1, 2}),
                b.dynamic_update_slice(v[0], b.full(0.0, {DType::Double, {1, 2}}), {one, one}),
                b.broadcast_in_dim(b.reshape(row, {3}), {3, 2}, {0})};
  });
  EXPECT_EQ(results[0], (Numbers{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(results[1], (Numbers{1, 3, 4, 6}));
  EXPECT_EQ(results[2], (Numbers{9, 4, 9, 5, 9, 6}));
  EXPECT_EQ(results[3], (Numbers{4, 5, 6, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(results[4], (Numbers{3, 2, 1, 6, 5, 4}));
  EXPECT_EQ(results[5], (Numbers{5, 6}));
  EXPECT_EQ(results[6], (Numbers{1, 2, 3, 4, 0, 0}));
  EXPECT_EQ(results[7], (Numbers{4, 4, 5, 5, 6, 6}));
}

TEST(Execution, GathersAndScatters) {
  auto results = run({matrix(3, {1, 2, 3, 4, 5, 6})}, [](Builder& b, const Vals& v) {
    Val rows = b.reshape(b.ints({2, 0}), {2, 1});
    Val taken = b.gather(v[0], rows, {{1}, {0}, {0}, 1, {1, 2}});
    Val added = b.scatter(v[0], b.reshape(b.ints({1, 1}), {2, 1}), taken, {{1}, {0}, {0}, 1},
                          [](Builder& r, const Vals& a) { return Vals{r.add(a[0], a[1])}; });
    return Vals{taken, added};
  });
  EXPECT_EQ(results[0], (Numbers{5, 6, 1, 2}));
  EXPECT_EQ(results[1], (Numbers{1, 2, 9, 12, 5, 6}));
}

// ---- contractions and reductions ----------------------------------------------------------------

TEST(Execution, Contracts) {
  auto results =
      run({matrix(2, {1, 2, 3, 4}, DType::BFloat16), matrix(2, {1, 0, 1, 1}, DType::Int)},
          [](Builder& b, const Vals& v) {
            return Vals{b.dot_general(v[0], v[0], {{}, {}, {1}, {0}}, DType::Float),
                        b.dot_general(v[0], v[0], {{0}, {0}, {1}, {1}}, DType::Float),
                        b.dot_general(v[1], v[1], {{}, {}, {0}, {1}}, DType::Int)};
          });
  EXPECT_EQ(results[0], (Numbers{7, 10, 15, 22}));
  EXPECT_EQ(results[1], (Numbers{5, 25}));
  EXPECT_EQ(results[2], (Numbers{1, 2, 0, 1}));
}

TEST(Execution, Convolves) {
  ConvolutionDims dims;
  dims.stride = {2};
  dims.padding_low = {1};
  dims.padding_high = {0};
  dims.lhs_dilation = dims.rhs_dilation = {1};
  Input x{{DType::Float, {1, 1, 5}}, {1, 2, 3, 4, 5}};
  Input kernel{{DType::Float, {2, 1, 2}}, {1, 10, 0, 1}};
  auto convolve = [&](bool reverse) {
    return run_one({x, kernel}, [&](Builder& b, const Vals& v) {
      dims.reverse_kernel = reverse;
      return b.convolution(v[0], v[1], dims, DType::Float);
    });
  };
  EXPECT_EQ(convolve(false), (Numbers{10, 32, 54, 1, 3, 5}));
  EXPECT_EQ(convolve(true), (Numbers{1, 23, 45, 0, 2, 4}));
}

TEST(Execution, Reduces) {
  auto results = run({matrix(2, {3, 1, 2, 4, 9, 5})}, [](Builder& b, const Vals& v) {
    Val zero = b.scalar_like(v[0], 0);
    Val index = b.iota({DType::Long, v[0].dims()}, 1);
    Vals best = b.reduce({v[0], index}, {zero, b.constant(0.0, DType::Long)}, {1},
                         [](Builder& r, const Vals& a) {
                           Val take = r.compare("GT", a[0], a[2]);
                           return Vals{r.select(take, a[0], a[2]), r.select(take, a[1], a[3])};
                         });
    WindowDims window;
    window.size = {1, 2};
    WindowDims prefix{{1, 3}, {}, {0, 2}, {}, {}, {}};
    return Vals{b.reduce(v[0], zero, {0, 1}, "add"),
                best[0],
                best[1],
                b.reduce_window(v[0], zero, window, "maximum"),
                b.reduce_window(v[0], zero, prefix, "add"),
                b.select_and_scatter(v[0], b.full(1.0, {DType::Double, {2, 2}}), zero, window, "GE",
                                     "add")};
  });
  EXPECT_EQ(results[0], Numbers{24});
  EXPECT_EQ(results[1], (Numbers{3, 9}));
  EXPECT_EQ(results[2], (Numbers{0, 1}));
  EXPECT_EQ(results[3], (Numbers{3, 2, 9, 9}));
  EXPECT_EQ(results[4], (Numbers{3, 4, 6, 4, 13, 18}));
  EXPECT_EQ(results[5], (Numbers{1, 0, 1, 0, 2, 0}));
}

TEST(Execution, Sorts) {
  auto results = run({vector({3, 1, 2})}, [](Builder& b, const Vals& v) {
    return b.sort({v[0], b.iota({DType::Long, {3}}, 0)}, 0, true,
                  [](Builder& r, const Vals& a) { return Vals{r.compare("LT", a[0], a[1])}; });
  });
  EXPECT_EQ(results[0], (Numbers{1, 2, 3}));
  EXPECT_EQ(results[1], (Numbers{1, 2, 0}));
}

TEST(Execution, SolvesAndTransforms) {
  auto results = run({matrix(2, {4, 2, 2, 5})}, [](Builder& b, const Vals& v) {
    Val factor = b.cholesky(v[0], true);
    Val lower = b.mul(factor, b.convert(b.compare("GE", b.iota({DType::Long, {2, 2}}, 0),
                                                  b.iota({DType::Long, {2, 2}}, 1)),
                                        DType::Double));
    Val spectrum = b.fft(v[0], "RFFT", {2});
    return Vals{lower,
                b.triangular_solve(lower, b.full(4.0, {DType::Double, {2, 1}}), true, true, false,
                                   "NO_TRANSPOSE"),
                b.real(spectrum), b.fft(spectrum, "IRFFT", {2})};
  });
  expect_near(results[0], {2, 0, 1, 2});
  expect_near(results[1], {2, 1});
  expect_near(results[2], {6, 2, 7, -3});
  expect_near(results[3], {4, 2, 2, 5});
}

// ---- control and random numbers -----------------------------------------------------------------

TEST(Execution, CallsAndLoops) {
  auto results = run({vector({1, 2})}, [](Builder& b, const Vals& v) {
    b.begin_function("twice", false);
    Val x = b.parameter(v[0].type());
    b.end_function({b.optimization_barrier(b.add(x, x))});
    Val doubled = b.call("twice", {v[0]}, {v[0].type()})[0];
    Vals end = b.while_loop(
        {b.constant(0.0, DType::Long), doubled},
        [](Builder& r, const Vals& a) {
          return Vals{r.compare("LT", a[0], r.constant(3.0, DType::Long))};
        },
        [](Builder& r, const Vals& a) {
          return Vals{r.add(a[0], r.constant(1.0, DType::Long)), r.mul(a[1], a[1])};
        });
    return Vals{doubled, end[0], end[1]};
  });
  EXPECT_EQ(results[0], (Numbers{2, 4}));
  EXPECT_EQ(results[1], Numbers{3});
  EXPECT_EQ(results[2], (Numbers{256, 65536}));
}

TEST(Execution, DrawsBitsFromAState) {
  auto results = run({vector({1, 0}, DType::UInt64)}, [](Builder& b, const Vals& v) {
    auto [next, first] = b.rng_bit_generator(v[0], {DType::UInt32, {4}});
    auto [last, second] = b.rng_bit_generator(next, {DType::UInt32, {4}});
    auto [again, repeated] = b.rng_bit_generator(v[0], {DType::UInt32, {4}});
    return Vals{first, second, repeated};
  });
  EXPECT_EQ(results[0], results[2]);
  EXPECT_NE(results[0], results[1]);
}

}  // namespace
}  // namespace torch_xla::stablehlo
