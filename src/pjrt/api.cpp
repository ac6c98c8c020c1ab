#include "pjrt/api.h"

#include "base/interrupt.h"
#include "base/spare_hands.h"

#include <chrono>
#include <thread>
#include <type_traits>
#include <utility>

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace torch_xla::pjrt {

void Api::discard(PJRT_Error* error) const noexcept {
  if (error != nullptr) {
    auto args = PJRT_ARGS(PJRT_Error_Destroy);
    args.error = error;
    table_->PJRT_Error_Destroy(&args);
  }
}

void Api::throw_missing(const char* name) const {
  throw Error(std::string("the PJRT plugin ") + plugin_ + " does not offer " + name +
              ": install a newer version of it");
}

void Api::raise(PJRT_Error* error, const char* name, const char* doing) const {
  auto text = PJRT_ARGS(PJRT_Error_Message);
  text.error = error;
  table_->PJRT_Error_Message(&text);
  std::string message(text.message, text.message_size);
  while (!message.empty() && message.back() == '\n') {
    message.pop_back();
  }
  auto code = PJRT_ARGS(PJRT_Error_GetCode);
  code.error = error;
  code.code = PJRT_Error_Code_UNKNOWN;
  discard(table_->PJRT_Error_GetCode(&code));
  discard(error);
  if (*doing != '\0') {
    message = std::string(doing) + ": " + message;
  }
  message += std::string(" [") + name + ", plugin " + plugin_ + "]";
  // Under another code: of a program that would have read what there was no memory for.
  const bool inherited = message.find("Out of memory allocating") != std::string::npos;
  if (code.code == PJRT_Error_Code_RESOURCE_EXHAUSTED || inherited) {
    throw OutOfMemoryError("out of device memory: " + message);
  }
  throw Error(message);
}

const PJRT_Extension_Base* Api::find_extension(PJRT_Extension_Type type) const {
  for (const PJRT_Extension_Base* e = table_->extension_start; e != nullptr; e = e->next) {
    // Newer plugins have types outside this build's enumeration: read as a number.
    std::underlying_type_t<PJRT_Extension_Type> found;
    std::memcpy(&found, &e->type, sizeof(found));
    if (found == static_cast<decltype(found)>(type)) {
      return e;
    }
  }
  return nullptr;
}

Event::~Event() {
  if (!in_forked_child) {
    auto args = PJRT_ARGS(PJRT_Event_Destroy);
    args.event = event_;
    api_.discard(api_.table().PJRT_Event_Destroy(&args));
  }
}

bool Event::is_ready() const {
  auto args = PJRT_ARGS(PJRT_Event_IsReady);
  args.event = event_;
  PJRT_CALL(api_, PJRT_Event_IsReady, args);
  return args.is_ready;
}

void Event::await(const char* doing) const {
  auto args = PJRT_ARGS(PJRT_Event_Await);
  args.event = event_;
  PJRT_CALL(api_, PJRT_Event_Await, args, doing);
}

namespace {

struct ReadyCallback {
  const Api& api;
  EventPtr event;
  std::function<void()> callback;
};

// The thread sanitizer does not see how a plugin hands this from thread to thread.
#ifdef __SANITIZE_THREAD__
void give(void* pointer) { __tsan_release(pointer); }
void take(void* pointer) { __tsan_acquire(pointer); }
#else
void give(void*) {}
void take(void*) {}
#endif

void call_back(PJRT_Error* error, void* pointer) {
  take(pointer);
  std::unique_ptr<ReadyCallback> ready(static_cast<ReadyCallback*>(pointer));
  ready->api.discard(error);
  ready->callback();
}

}  // namespace

void on_ready(EventPtr event, std::function<void()> callback) {
  const Api& api = event->api_;
  auto args = PJRT_ARGS(PJRT_Event_OnReady);
  args.event = event->event_;
  args.callback = &call_back;
  // call_back's from here on.
  args.user_arg = new ReadyCallback{api, std::move(event), std::move(callback)};
  give(args.user_arg);
  PJRT_CALL(api, PJRT_Event_OnReady, args);
}

namespace {

// A small program is done before a thread that sleeps is awake again, so look for as long as that
// takes, and take part in its kernels. Who wants the processor meanwhile gets it.
bool is_soon_ready(const Event& event) {
  constexpr auto kWaking = std::chrono::microseconds(150);
  SpareHand hand;
  auto end = std::chrono::steady_clock::now() + kWaking;
  while (!event.is_ready()) {
    if (hand.help()) {
      end = std::chrono::steady_clock::now() + kWaking;
    } else if (std::chrono::steady_clock::now() > end) {
      return false;
    }
    std::this_thread::yield();
  }
  return true;
}

}  // namespace

void await_or_interrupt(const EventPtr& event, const char* doing) {
  if (!is_soon_ready(*event)) {
    struct Waiter {
      Mutex mutex;
      Condition changed;
      bool called GUARDED_BY(mutex) = false;
    };
    auto waiter = std::make_shared<Waiter>();
    on_ready(event, [waiter] {
      MutexLock lock(waiter->mutex);
      waiter->called = true;
      waiter->changed.notify_all();
    });
    MutexLock lock(waiter->mutex);
    while (!waiter->called) {
      wait_or_interrupt(waiter->changed, waiter->mutex, lock);
    }
  }
  event->await(doing);
}

PJRT_Buffer_Type buffer_type(DType dtype) {
  switch (dtype) {
    case DType::Bool:
      return PJRT_Buffer_Type_PRED;
    case DType::Byte:
      return PJRT_Buffer_Type_U8;
    case DType::Char:
      return PJRT_Buffer_Type_S8;
    case DType::Short:
      return PJRT_Buffer_Type_S16;
    case DType::Int:
      return PJRT_Buffer_Type_S32;
    case DType::Long:
      return PJRT_Buffer_Type_S64;
    case DType::UInt16:
      return PJRT_Buffer_Type_U16;
    case DType::UInt32:
      return PJRT_Buffer_Type_U32;
    case DType::UInt64:
      return PJRT_Buffer_Type_U64;
    case DType::Half:
      return PJRT_Buffer_Type_F16;
    case DType::BFloat16:
      return PJRT_Buffer_Type_BF16;
    case DType::Float:
      return PJRT_Buffer_Type_F32;
    case DType::Double:
      return PJRT_Buffer_Type_F64;
    case DType::ComplexFloat:
      return PJRT_Buffer_Type_C64;
    case DType::ComplexDouble:
      return PJRT_Buffer_Type_C128;
    case DType::Float8_e4m3fn:
      return PJRT_Buffer_Type_F8E4M3FN;
    case DType::Float8_e4m3fnuz:
      return PJRT_Buffer_Type_F8E4M3FNUZ;
    case DType::Float8_e5m2:
      return PJRT_Buffer_Type_F8E5M2;
    case DType::Float8_e5m2fnuz:
      return PJRT_Buffer_Type_F8E5M2FNUZ;
    case DType::Float8_e8m0fnu:
      return PJRT_Buffer_Type_F8E8M0FNU;
    default:
      throw Error(std::string("dtype ") + c10::toString(dtype) +
                  " is not supported on the xla device: use bool, an integer, a float of 8 to 64 "
                  "bits, bfloat16, complex64 or complex128");
  }
}

}  // namespace torch_xla::pjrt
