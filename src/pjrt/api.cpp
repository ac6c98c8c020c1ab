#include "pjrt/api.h"

namespace torch_xla::pjrt {

void check(const PJRT_Api* api, PJRT_Error* error, const char* call, const std::string& doing) {
  if (error == nullptr) {
    return;
  }
  auto text = PJRT_ARGS(PJRT_Error_Message);
  text.error = error;
  api->PJRT_Error_Message(&text);
  auto code = PJRT_ARGS(PJRT_Error_GetCode);
  code.error = error;
  PJRT_Error* nested = api->PJRT_Error_GetCode(&code);
  std::string message(text.message, text.message_size);
  for (PJRT_Error* e : {error, nested}) {
    if (e != nullptr) {
      auto destroy = PJRT_ARGS(PJRT_Error_Destroy);
      destroy.error = e;
      api->PJRT_Error_Destroy(&destroy);
    }
  }
  std::string full = (doing.empty() ? "" : doing + ": ") + message + " [" + call + "]";
  if (code.code == PJRT_Error_Code_RESOURCE_EXHAUSTED) {
    throw OutOfMemoryError("out of device memory: " + full);
  }
  throw Error(full);
}

void await_event(const PJRT_Api* api, PJRT_Event* event, const char* call) {
  auto await = PJRT_ARGS(PJRT_Event_Await);
  await.event = event;
  PJRT_Error* error = api->PJRT_Event_Await(&await);
  auto destroy = PJRT_ARGS(PJRT_Event_Destroy);
  destroy.event = event;
  check(api, api->PJRT_Event_Destroy(&destroy), "PJRT_Event_Destroy");
  check(api, error, call);
}

PJRT_Buffer_Type buffer_type(DType dtype) {
  switch (dtype) {
    case DType::Bool: return PJRT_Buffer_Type_PRED;
    case DType::Byte: return PJRT_Buffer_Type_U8;
    case DType::Char: return PJRT_Buffer_Type_S8;
    case DType::Short: return PJRT_Buffer_Type_S16;
    case DType::Int: return PJRT_Buffer_Type_S32;
    case DType::Long: return PJRT_Buffer_Type_S64;
    case DType::UInt16: return PJRT_Buffer_Type_U16;
    case DType::UInt32: return PJRT_Buffer_Type_U32;
    case DType::UInt64: return PJRT_Buffer_Type_U64;
    case DType::Half: return PJRT_Buffer_Type_F16;
    case DType::BFloat16: return PJRT_Buffer_Type_BF16;
    case DType::Float: return PJRT_Buffer_Type_F32;
    case DType::Double: return PJRT_Buffer_Type_F64;
    case DType::ComplexFloat: return PJRT_Buffer_Type_C64;
    case DType::ComplexDouble: return PJRT_Buffer_Type_C128;
    case DType::Float8_e4m3fn: return PJRT_Buffer_Type_F8E4M3FN;
    case DType::Float8_e5m2: return PJRT_Buffer_Type_F8E5M2;
    default:
      throw Error(std::string("dtype ") + c10::toString(dtype) +
                  " is not supported on the xla device: use a supported one (bool, integers, "
                  "float8/16/32/64, bfloat16, complex64/128)");
  }
}

}  // namespace torch_xla::pjrt
