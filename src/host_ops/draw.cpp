#include "host_ops/draw.h"

#include "base/error.h"
#include "host_ops/philox.h"
#include "host_ops/team.h"
#include "lower/random_range.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/erfinv.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/where.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <unordered_map>

namespace torch_xla {

namespace {

DType float_of(DType dtype) {
  return dtype == DType::Half || dtype == DType::BFloat16 ? DType::Float : dtype;
}

DType distribution_dtype(DType dtype) {
  return c10::isIntegralType(dtype, true) ? DType::Double : float_of(dtype);
}

class Draw {
 public:
  Draw(const Signature& signature, const std::vector<at::Tensor>& operands,
       c10::ArrayRef<Number> numbers, uint64_t* state, bool checks)
      : signature_(signature),
        operands_(operands),
        numbers_(numbers),
        bits_(state),
        checks_(checks) {}

  bool checks() const { return checks_; }
  const OutputSpec& output(size_t i = 0) const { return signature_.outputs[i]; }
  c10::IntArrayRef sizes() const { return output().sizes; }

  bool is_number(size_t i) const {
    return std::holds_alternative<NumberRef>(signature_.arguments[i]);
  }
  bool is_none(size_t i) const {
    return std::holds_alternative<std::monostate>(signature_.arguments[i]);
  }
  bool flag(size_t i) const { return std::get<bool>(signature_.arguments[i]); }
  int64_t integer(size_t i) const {
    const auto* ref = std::get_if<NumberRef>(&signature_.arguments[i]);
    return ref != nullptr ? numbers_[ref->slot].to_int()
                          : std::get<int64_t>(signature_.arguments[i]);
  }
  // A number argument as a 0-d tensor, so that what is computed of it rounds as in a program.
  at::Tensor number(size_t i, DType dtype) const {
    const auto* ref = std::get_if<NumberRef>(&signature_.arguments[i]);
    double value = ref != nullptr ? numbers_[ref->slot].to_double() : static_number(i);
    return at::scalar_tensor(value, at::TensorOptions().dtype(dtype));
  }
  at::Tensor tensor(size_t i, DType dtype) const {
    return operands_[std::get<OperandRef>(signature_.arguments[i]).index].to(dtype);
  }
  at::Tensor tensor(size_t i) const {
    return operands_[std::get<OperandRef>(signature_.arguments[i]).index];
  }

  // The `count` upper of the bits drawn for f32 or f64, plus `shift`, in units of 2^-count.
  at::Tensor digits(DType compute, int count, c10::IntArrayRef dims, double shift = 0) {
    at::Tensor result = at::empty(dims, at::TensorOptions().dtype(compute));
    const double unit = std::ldexp(1.0, -count);
    if (compute == DType::Double) {
      fill<uint64_t, double>(result, 64 - count, shift, unit);
    } else {
      fill<uint32_t, float>(result, 32 - count, static_cast<float>(shift),
                            static_cast<float>(unit));
    }
    return result;
  }
  // [0, 1), at the resolution of `result`.
  at::Tensor uniform(DType result, c10::IntArrayRef dims) {
    return digits(distribution_dtype(result), significant_bits(result), dims);
  }
  // (0, 1)
  at::Tensor open_uniform(DType compute, c10::IntArrayRef dims) {
    return digits(compute, significant_bits(compute) - 1, dims, 0.5);
  }
  at::Tensor standard_normal(DType compute, c10::IntArrayRef dims) {
    return at::erfinv(open_uniform(compute, dims) * 2.0 - 1.0) * std::sqrt(2.0);
  }
  at::Tensor standard_exponential(DType compute, c10::IntArrayRef dims) {
    return -open_uniform(compute, dims).log();
  }
  at::Tensor coin(const at::Tensor& probability, c10::IntArrayRef dims) {
    return uniform(probability.scalar_type(), dims) < probability;
  }

  // Whole numbers from `low` on; `count` of them, 0 meaning all 2^64.
  at::Tensor integers(int64_t low, uint64_t count) {
    at::Tensor result = at::empty(sizes(), at::TensorOptions().dtype(DType::Long));
    auto* values = static_cast<int64_t*>(result.mutable_data_ptr());
    const auto n = static_cast<size_t>(result.numel());
    auto store = [&](size_t i, uint64_t bits) {
      values[i] = static_cast<int64_t>(count == 0 ? bits : bits % count) + low;
    };
    if (count == 0 || count > std::numeric_limits<uint32_t>::max()) {
      each<uint64_t>(n, store);
    } else {
      each<uint32_t>(n, store);
    }
    return result.to(output().dtype);
  }

  at::Tensor permutation() {
    const auto n = static_cast<size_t>(product(output().sizes));
    std::vector<uint64_t> keys(n);
    bits_.draw(keys.data(), n);
    std::vector<int64_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int64_t x, int64_t y) { return keys[x] < keys[y]; });
    at::Tensor result = at::empty(sizes(), at::TensorOptions().dtype(DType::Long));
    std::copy(order.begin(), order.end(), static_cast<int64_t*>(result.mutable_data_ptr()));
    return result.to(output().dtype);
  }

 private:
  double static_number(size_t i) const {
    const Attribute& value = signature_.arguments[i];
    if (const auto* number = std::get_if<double>(&value)) {
      return *number;
    }
    return static_cast<double>(std::get<int64_t>(value));
  }

  template <typename Word, typename Store>
  void each(size_t count, const Store& store) {
    std::vector<Word> words(count);
    bits_.draw(words.data(), count);
    for (size_t i = 0; i < count; ++i) {
      store(i, words[i]);
    }
  }

  template <typename Word, typename Float>
  void fill(const at::Tensor& result, int shift_right, Float shift, Float unit) {
    const int64_t count = result.numel();
    auto words = std::make_unique_for_overwrite<Word[]>(static_cast<size_t>(count));
    bits_.draw(words.get(), static_cast<size_t>(count));
    auto* values = static_cast<Float*>(result.mutable_data_ptr());
    run_in_team(count, 1 << 15, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        values[i] = (static_cast<Float>(words[i] >> shift_right) + shift) * unit;
      }
    });
  }

  const Signature& signature_;
  const std::vector<at::Tensor>& operands_;
  const c10::ArrayRef<Number> numbers_;
  Philox bits_;
  bool checks_;
};

using Results = std::vector<at::Tensor>;

// A complex output is drawn as pairs of reals.
template <typename Make>
Results drawn(Draw& d, Make make) {
  const DType dtype = d.output().dtype;
  if (!c10::isComplexType(dtype)) {
    return {make(dtype)};
  }
  at::Tensor real = make(c10::toRealValueType(dtype));
  return {at::complex(real, make(c10::toRealValueType(dtype)))};
}

Results draw_uniform(Draw& d) {
  return drawn(d, [&](DType dtype) {
    const DType compute = distribution_dtype(dtype);
    at::Tensor low = d.number(1, compute), high = d.number(2, compute);
    at::Tensor x = (low + d.uniform(dtype, d.sizes()) * (high - low)).to(dtype);
    low = low.to(dtype);
    return at::where(x < high.to(dtype), x, low);
  });
}

Results draw_normal(Draw& d) {
  const bool complex = c10::isComplexType(d.output().dtype);
  return drawn(d, [&](DType dtype) {
    const DType compute = distribution_dtype(dtype);
    at::Tensor deviation = d.number(2, compute);
    if (complex) {
      deviation = deviation * std::sqrt(0.5);
    }
    return (d.number(1, compute) + d.standard_normal(compute, d.sizes()) * deviation).to(dtype);
  });
}

Results draw_normal_tensor(Draw& d) {
  const DType compute = distribution_dtype(d.output().dtype);
  auto argument = [&](size_t i) {
    return d.is_number(i) ? d.number(i, compute) : d.tensor(i, compute);
  };
  at::Tensor x = d.standard_normal(compute, d.sizes());
  return {(argument(0) + x * argument(1)).to(d.output().dtype)};
}

Results draw_exponential(Draw& d) {
  const DType compute = distribution_dtype(d.output().dtype);
  return {(d.standard_exponential(compute, d.sizes()) / d.number(1, compute)).to(d.output().dtype)};
}

Results draw_cauchy(Draw& d) {
  const DType compute = distribution_dtype(d.output().dtype);
  at::Tensor angle = (d.open_uniform(compute, d.sizes()) - 0.5) * M_PI;
  return {(d.number(1, compute) + d.number(2, compute) * angle.tan()).to(d.output().dtype)};
}

Results draw_log_normal(Draw& d) {
  const DType compute = distribution_dtype(d.output().dtype);
  at::Tensor normal = d.standard_normal(compute, d.sizes());
  return {(d.number(1, compute) + normal * d.number(2, compute)).exp().to(d.output().dtype)};
}

Results draw_geometric(Draw& d) {
  const DType compute = distribution_dtype(d.output().dtype);
  at::Tensor trials = d.open_uniform(compute, d.sizes()).log() / (-d.number(1, compute)).log1p();
  return {trials.ceil().clamp_min(1).to(d.output().dtype)};
}

Results bernoulli_of(Draw& d, size_t probability) {
  const DType compute = distribution_dtype(d.tensor(probability).scalar_type());
  at::Tensor chances = d.tensor(probability, compute);
  TORCH_CHECK(!d.checks() || at::logical_and(chances >= 0, chances <= 1).all().item<bool>(),
              "Expected p_in >= 0 && p_in <= 1 to be true, but got false.");
  return {d.coin(chances, d.sizes()).to(d.output().dtype)};
}
Results draw_bernoulli(Draw& d) { return bernoulli_of(d, 0); }
Results draw_bernoulli_tensor(Draw& d) { return bernoulli_of(d, 1); }
Results draw_bernoulli_p(Draw& d) {
  return {d.coin(d.number(1, DType::Float), d.sizes()).to(d.output().dtype)};
}

Results draw_dropout(Draw& d) {
  const DType dtype = d.output().dtype;
  if (!d.is_none(2) && !d.flag(2)) {
    return {d.tensor(0).clone(), at::ones(d.sizes(), at::TensorOptions().dtype(DType::Bool))};
  }
  const DType compute = float_of(dtype);
  at::Tensor kept = d.coin(1.0 - d.number(1, DType::Float), d.sizes());
  at::Tensor probability = 1.0 - d.number(1, compute);
  at::Tensor scale = at::where(probability == 0, at::zeros_like(probability), 1.0 / probability);
  return {(d.tensor(0, compute) * kept * scale).to(dtype), kept};
}

Results draw_rrelu(Draw& d) {
  const DType dtype = d.output().dtype, compute = float_of(dtype);
  at::Tensor x = d.tensor(0, compute);
  at::Tensor lower = d.number(2, compute), upper = d.number(3, compute);
  const bool training = d.flag(4);
  at::Tensor slope =
      training ? lower + d.uniform(compute, d.sizes()) * (upper - lower) : (lower + upper) * 0.5;
  at::Tensor noise = at::where(x <= 0, slope, at::ones_like(x));
  return {(x * noise).to(dtype), training ? noise.to(d.output(1).dtype) : d.tensor(1).clone()};
}

Results draw_random_from(Draw& d) {
  const int64_t low = d.integer(1);
  const uint64_t end = d.is_none(2) ? end_of_numbers_from(low, d.output().dtype)
                                    : static_cast<uint64_t>(d.integer(2));
  return {d.integers(low, end - static_cast<uint64_t>(low))};
}
Results draw_random_to(Draw& d) { return {d.integers(0, static_cast<uint64_t>(d.integer(1)))}; }
Results draw_random(Draw& d) { return {d.integers(0, end_of_whole_numbers(d.output().dtype))}; }
Results draw_permutation(Draw& d) { return {d.permutation()}; }

// As PyTorch's kernel for the CPU, which is not the one that draws here.
void check_probabilities(const at::Tensor& weights) {
  TORCH_CHECK(at::logical_and(weights >= 0, at::isfinite(weights)).all().item<bool>(),
              "probability tensor contains either `inf`, `nan` or element < 0");
  TORCH_CHECK((weights.sum(-1) > 0).all().item<bool>(),
              "invalid multinomial distribution (sum of probabilities <= 0)");
}

// multinomial(self, num_samples, replacement)
Results draw_multinomial(Draw& d) {
  at::Tensor self = d.tensor(0, float_of(d.tensor(0).scalar_type()));
  if (d.checks()) {
    check_probabilities(self);
  }
  const int64_t samples = d.integer(1), categories = self.size(-1);
  const int64_t rows = self.numel() / categories;
  at::Tensor weights = self.reshape({rows, categories});
  if (!d.flag(2)) {
    at::Tensor keys = weights / d.standard_exponential(weights.scalar_type(), weights.sizes());
    at::Tensor order = std::get<1>(at::sort(keys, -1, /*descending=*/true));
    return {order.narrow(1, 0, samples).reshape(d.sizes())};
  }
  at::Tensor sums = at::cumsum(weights, 1);
  at::Tensor position =
      d.uniform(sums.scalar_type(), {rows, samples}) * sums.narrow(1, categories - 1, 1);
  at::Tensor passed = sums.unsqueeze(1) <= position.unsqueeze(2);
  return {passed.to(DType::Long).sum(-1).clamp_max(categories - 1).reshape(d.sizes())};
}

using DrawFunction = Results (*)(Draw&);

const std::unordered_map<std::string, DrawFunction>& table() {
  static const auto* functions = new std::unordered_map<std::string, DrawFunction>{
      {"aten::uniform", draw_uniform},
      {"aten::normal_functional", draw_normal},
      {"aten::normal.Tensor_float", draw_normal_tensor},
      {"aten::normal.float_Tensor", draw_normal_tensor},
      {"aten::normal.Tensor_Tensor", draw_normal_tensor},
      {"aten::exponential", draw_exponential},
      {"aten::cauchy", draw_cauchy},
      {"aten::log_normal", draw_log_normal},
      {"aten::geometric", draw_geometric},
      {"aten::bernoulli", draw_bernoulli},
      {"aten::bernoulli.p", draw_bernoulli_p},
      {"aten::bernoulli.Tensor", draw_bernoulli_tensor},
      {"aten::native_dropout", draw_dropout},
      {"aten::rrelu_with_noise_functional", draw_rrelu},
      {"aten::random", draw_random},
      {"aten::random.from", draw_random_from},
      {"aten::random.to", draw_random_to},
      {"aten::randperm", draw_permutation},
      {"aten::randperm.generator", draw_permutation},
      {"aten::multinomial", draw_multinomial},
  };
  return *functions;
}

}  // namespace

bool is_drawn(const Signature& signature) { return table().count(signature.op) != 0; }

std::vector<at::Tensor> draw_as_lowered(const Signature& signature,
                                        const std::vector<at::Tensor>& operands,
                                        c10::ArrayRef<Number> numbers, uint64_t* state,
                                        bool checks) {
  auto found = table().find(signature.op);
  if (found == table().end()) {
    throw Error("the random operator " + signature.op + " is drawn by programs only");
  }
  Draw draw(signature, operands, numbers, state, checks);
  return found->second(draw);
}

}  // namespace torch_xla
