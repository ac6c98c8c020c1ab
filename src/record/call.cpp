#include "record/call.h"

#include "execution/sync.h"
#include "record/meta.h"
#include "trace/scope.h"

#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <bit>

namespace torch_xla {

namespace {

thread_local int thread_device = 0;

class Reader {
 public:
  Reader(const OpInfo& info, Call& call) : info_(info), call_(call) {}

  void read_argument(c10::IValue& value, size_t position) {
    position_ = position;
    read(value);
  }

  void read(c10::IValue& value) {
    if (value.isTensor()) {
      tensor(value);
    } else if (value.isNone()) {
      word(1);
    } else if (value.isInt()) {
      word(2);
      word(value.toInt());
    } else if (value.isBool()) {
      word(3);
      word(value.toBool());
    } else if (value.isDouble() || value.isComplexDouble() || value.isUnsigned()) {
      number(number_of(value.toScalar()));
    } else if (value.isSymFloat()) {
      given_number(value);
    } else if (value.isDevice()) {
      device(value.toDevice());
    } else if (value.isString()) {
      text(value.toStringRef());
    } else if (value.isGenerator()) {
      word(7);
      call_.generator = value.toGenerator();
    } else if (value.isSymInt()) {
      word(2);
      word(value.toSymInt().guard_int(__FILE__, __LINE__));
    } else if (value.isTensorList() || value.isList()) {
      list(value);
    } else {
      TORCH_CHECK(false, info_.name, ": an argument of type ", value.tagKind(),
                  " (packed weights of a quantized module?) is not supported on the xla device: "
                  "call it on the CPU");
    }
  }

  void fixed(const MovingNumbers& moving) {
    word(13);
    word(static_cast<int64_t>(moving.numbers.size()));
    call_.key.append(moving.fixed.begin(), moving.fixed.end());
  }

  // Those of one argument; returns the first that is another's.
  const MovingNumbers::One* moving(const MovingNumbers::One* number,
                                   const MovingNumbers::One* end) {
    for (const size_t argument = number->argument; number != end && number->argument == argument;
         ++number) {
      call_.numbers.push_back(number->value);
    }
    return number;
  }

  // An int, bool or float given where the schema says Scalar.
  void scalar(c10::IValue& value) {
    if (value.isSymFloat()) {
      given_number(value);
    } else {
      number(number_of(value.toScalar()));
    }
  }

  // Numbers that are computed are operands, behind all others.
  void add_computed() { call_.tensors.append(computed_.begin(), computed_.end()); }

 private:
  void number(const Number& value) {
    word(4);
    word(static_cast<int64_t>(value.kind));
    if (info_.static_numbers && value.kind != Number::Kind::Complex) {
      word(value.integer);
      word(std::bit_cast<int64_t>(value.floating.real()));
      word(std::bit_cast<int64_t>(value.floating.imag()));
    } else {
      call_.numbers.push_back(value);
    }
  }

  // A number of the trace around, which another call may give another value: for the rest of the
  // recorder it is what it is now.
  void given_number(c10::IValue& value) {
    const c10::SymNode node = value.toSymFloat().toSymNodeImpl();
    std::optional<TraceNumber> given;
    if (!info_.static_numbers) {
      given = number_of_trace(node->maybe_as_int());
    }
    value = given ? given->number.to_double() : node->guard_float(__FILE__, __LINE__);
    number(given ? given->number : Number::of(value.toDouble()));
    note_computed(given);
  }

  // Of the number read last.
  void note_computed(const std::optional<TraceNumber>& number) {
    if (number && number->computed != nullptr) {
      word(14);
      call_.computed.push_back(call_.numbers.size() - 1);
      computed_.push_back(number->computed);
    }
  }

  void word(int64_t value) { call_.key.push_back(value); }

  void text(const std::string& value) {
    word(6);
    word(static_cast<int64_t>(value.size()));
    for (char c : value) {
      word(c);
    }
  }

  void device(const c10::Device& value) {
    word(5);
    word(static_cast<int64_t>(value.type()));
    word(value.index());
    if (value.type() == c10::DeviceType::XLA && call_.device < 0) {
      call_.device = value.has_index() ? value.index() : current_device();
    }
  }

  void list(c10::IValue& value) {
    word(8);
    c10::ArrayRef<c10::IValue> elements = value.toListRef();
    bool scalars = !elements.empty() && elements.front().isScalar() &&
                   value.toList().elementType()->kind() == c10::TypeKind::NumberType;
    for (size_t i = 0; i < elements.size(); ++i) {
      const c10::IValue& element = elements[i];
      if (scalars) {
        list_scalar(value, i);
      } else if (element.isInt()) {
        word(element.toInt());
      } else if (element.isDouble()) {
        word(std::bit_cast<int64_t>(element.toDouble()));
      } else if (element.isTensor()) {
        list_tensor(value, i);
      } else {
        c10::IValue copy = element;
        read(copy);
      }
    }
    word(9);
  }

  void list_scalar(c10::IValue& list, size_t i) {
    c10::IValue element = list.toListRef()[i];
    const bool given = element.isSymFloat();
    scalar(element);
    if (given) {
      list.toList().set(i, element);
    }
  }

  void list_tensor(c10::IValue& list, size_t i) {
    const at::Tensor& tensor = list.toListRef()[i].toTensor();
    if (!tensor.defined()) {
      word(0);
    } else if (is_xla(tensor)) {
      xla_tensor(tensor);
    } else {
      TORCH_CHECK(tensor.device().is_cpu() && !is_written() &&
                      (tensor.dim() == 0 || info_.takes_cpu_tensors),
                  wrong_device(tensor));
      at::Tensor uploaded = upload(tensor, call_.device < 0 ? current_device() : call_.device);
      list.toList().set(i, uploaded);
      xla_tensor(uploaded);
    }
  }

  void tensor(c10::IValue& value) {
    const at::Tensor& tensor = value.toTensor();
    if (!tensor.defined()) {
      word(0);
      return;
    }
    if (is_xla(tensor)) {
      xla_tensor(tensor);
      return;
    }
    if (is_cpu_scalar(tensor) && !is_written()) {
      cpu_scalar(value, tensor.unsafeGetTensorImpl()->is_wrapped_number());
      return;
    }
    if (info_.takes_cpu_tensors && tensor.device().is_cpu() && !is_written()) {
      value = upload(tensor, call_.device < 0 ? current_device() : call_.device);
      xla_tensor(value.toTensor());
      return;
    }
    TORCH_CHECK(false, wrong_device(tensor));
  }

  // A copy on the device would be written in its place.
  bool is_written() const {
    return std::find(info_.mutated.begin(), info_.mutated.end(), position_) != info_.mutated.end();
  }

  void cpu_scalar(c10::IValue& value, bool plain) {
    const at::Tensor& tensor = value.toTensor();
    if (!plain) {
      check_host_constant(tensor);
    }
    word(plain ? 11 : 12);
    word(static_cast<int64_t>(tensor.scalar_type()));
    std::optional<TraceNumber> given = plain ? number_behind(tensor) : std::nullopt;
    call_.numbers.push_back(given ? given->number : number_of(tensor));
    note_computed(given);
    if (given) {
      at::Tensor now = at::scalar_tensor(given->number.to_double(), tensor.options());
      now.unsafeGetTensorImpl()->set_wrapped_number(true);
      value = std::move(now);
    }
  }

  std::string wrong_device(const at::Tensor& tensor) const {
    return c10::str(
        "Expected all tensors to be on the same device, but found at least two "
        "devices, xla:",
        std::max(call_.device, 0), " and ", tensor.device(), "! (in ", info_.name,
        "; move it with .to('xla'))");
  }

  void xla_tensor(const at::Tensor& tensor) {
    int index = tensor.device().index();
    TORCH_CHECK(call_.tensors.empty() || call_.device == index,
                "Expected all tensors to be on the same device, but found at least two devices, "
                "xla:",
                call_.device, " and xla:", index, "! (in ", info_.name, ")");
    call_.device = index;
    word(10);
    word(static_cast<int64_t>(tensor.scalar_type()) << 32 | tensor.dim());
    call_.key.append(tensor.sizes().begin(), tensor.sizes().end());
    call_.key.append(tensor.strides().begin(), tensor.strides().end());
    // Where a window begins that could begin elsewhere is a number of the node.
    Leeway leeway = leeway_of(*tensor.unsafeGetTensorImpl());
    word(leeway.extent > 0     ? -(4 * leeway.extent + static_cast<int64_t>(leeway.lies))
         : tensor.numel() == 0 ? 0
                               : tensor.storage_offset());
    call_.tensors.push_back(tensor.unsafeGetTensorImpl());
  }

  const OpInfo& info_;
  Call& call_;
  size_t position_ = 0;                             // of the argument that is read
  c10::SmallVector<c10::TensorImpl*, 1> computed_;  // kept by the trace
};

uint64_t hash_key(c10::ArrayRef<int64_t> key) {
  uint64_t hash = 0x9E3779B97F4A7C15ull;
  for (int64_t word : key) {
    hash = (hash ^ static_cast<uint64_t>(word)) * 0xFF51AFD7ED558CCDull;
    hash ^= hash >> 32;
  }
  return hash;
}

bool find_moving(const OpInfo& info, const c10::IValue* arguments, Call& call) {
  MovingNumbers moving;
  if (!info.moving(info, arguments, moving)) {
    return false;
  }
  call.moving = std::move(moving);
  return true;
}

}  // namespace

int current_device() { return thread_device; }

int device_of_call(c10::ArrayRef<c10::IValue> arguments) {
  for (const at::Tensor& tensor : flatten_tensors(arguments.vec())) {
    if (is_xla(tensor)) {
      return tensor.device().index();
    }
  }
  for (const c10::IValue& argument : arguments) {
    if (argument.isDevice() && argument.toDevice().is_xla() && argument.toDevice().has_index()) {
      return argument.toDevice().index();
    }
  }
  return current_device();
}

void set_current_device(int device) { thread_device = device; }

bool is_scalar_argument(const c10::Argument& argument) {
  const c10::Type* type = argument.type().get();
  if (type->kind() == c10::TypeKind::OptionalType) {
    type = type->castRaw<c10::OptionalType>()->getElementType().get();
  }
  return type->kind() == c10::TypeKind::NumberType;
}

bool is_cpu_scalar(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.dim() == 0 && tensor.layout() == c10::kStrided;
}

Number number_of(const c10::Scalar& scalar) {
  if (scalar.isBoolean()) {
    return Number::of(scalar.toBool());
  }
  if (scalar.isIntegral(false)) {
    const bool large = scalar.isUnsigned() && scalar.toUInt64() > INT64_MAX;
    return large ? Number::of(scalar.toUInt64()) : Number::of(scalar.toLong());
  }
  if (scalar.isComplex()) {
    c10::complex<double> value = scalar.toComplexDouble();
    return Number::of(std::complex<double>(value.real(), value.imag()));
  }
  return Number::of(scalar.toDouble());
}

Number number_of(const at::Tensor& scalar) { return number_of(at::_local_scalar_dense(scalar)); }

Call read_call(const OpInfo& info, c10::IValue* arguments, size_t count) {
  Call call;
  Reader reader(info, call);
  call.key.push_back(static_cast<int64_t>(c10::get_default_dtype_as_scalartype()));
  const MovingNumbers::One *next = nullptr, *end = nullptr;
  if (info.moving != nullptr && find_moving(info, arguments, call)) {
    reader.fixed(*call.moving);
    next = call.moving->numbers.begin();
    end = call.moving->numbers.end();
  }
  for (size_t i = 0; i < count; ++i) {
    c10::IValue& value = arguments[i];
    if (next != end && i == next->argument) {
      next = reader.moving(next, end);
    } else if (value.isScalar() && info.scalar_arguments[i]) {
      reader.scalar(value);
    } else {
      reader.read_argument(value, i);
    }
  }
  reader.add_computed();
  if (call.device < 0) {
    call.device = current_device();
  }
  call.hash = hash_key(call.key);
  return call;
}

}  // namespace torch_xla
