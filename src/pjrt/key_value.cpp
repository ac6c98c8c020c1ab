#include "pjrt/key_value.h"

#include "pjrt/processes.h"

#include <exception>

namespace torch_xla::pjrt {

namespace {

template <typename Args>
void give_value(Args* args, const std::string& value) {
  args->value = new char[value.size()];
  args->value_size = value.size();
  std::memcpy(args->value, value.data(), value.size());
  args->value_deleter_callback = [](char* bytes) { delete[] bytes; };
}

// No exception may cross the plugin: it gets an error of its own making.
template <typename Args, typename Work>
PJRT_Error* guarded(Args* args, Work&& work) {
  std::string message;
  PJRT_Error_Code code = PJRT_Error_Code_UNAVAILABLE;
  try {
    if (work()) {
      return nullptr;
    }
    message = "no value for this key yet";
    code = PJRT_Error_Code_NOT_FOUND;
  } catch (const std::exception& error) {
    message = std::string("the store of the processes: ") + error.what();
  }
  return (*args->callback_error)(code, message.data(), message.size());
}

PJRT_Error* get(PJRT_KeyValueGetCallback_Args* args) {
  return guarded(args, [&] {
    give_value(args, processes().get({args->key, args->key_size}, args->timeout_in_ms));
    return true;
  });
}

PJRT_Error* try_get(PJRT_KeyValueTryGetCallback_Args* args) {
  return guarded(args, [&] {
    std::optional<std::string> value = processes().try_get({args->key, args->key_size});
    if (value) {
      give_value(args, *value);
    }
    return value.has_value();
  });
}

PJRT_Error* put(PJRT_KeyValuePutCallback_Args* args) {
  return guarded(args, [&] {
    processes().put({args->key, args->key_size}, {args->value, args->value_size});
    return true;
  });
}

}  // namespace

void set_key_value_callbacks(PJRT_Client_Create_Args& args) {
  args.kv_get_callback = &get;
  args.kv_put_callback = &put;
  args.kv_try_get_callback = &try_get;
}

}  // namespace torch_xla::pjrt
