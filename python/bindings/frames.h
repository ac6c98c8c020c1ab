#pragma once
// A thread's Python frames as the interpreter keeps them, where that is known. A thread's own
// frames stand still while it is here, and keep their code alive: reading them needs no lock.
#include "bindings.h"

#include <frameobject.h>

#if PY_VERSION_HEX < 0x030F0000 && !defined(Py_GIL_DISABLED)
#define TORCH_XLA_READS_FRAMES
#endif

#if defined(TORCH_XLA_READS_FRAMES) && PY_VERSION_HEX >= 0x030B0000
#define Py_BUILD_CORE
#if PY_VERSION_HEX >= 0x030E0000
#include <internal/pycore_interpframe_structs.h>
#include <internal/pycore_stackref.h>
#else
#include <internal/pycore_frame.h>
#endif
#undef Py_BUILD_CORE
#endif

#ifdef TORCH_XLA_READS_FRAMES
namespace torch_xla::frames {

#if PY_VERSION_HEX >= 0x030B0000
using Frame = const _PyInterpreterFrame;

inline PyCodeObject* code(Frame* frame) {
#if PY_VERSION_HEX >= 0x030E0000
  return reinterpret_cast<PyCodeObject*>(PyStackRef_AsPyObjectBorrow(frame->f_executable));
#elif PY_VERSION_HEX >= 0x030D0000
  return reinterpret_cast<PyCodeObject*>(frame->f_executable);
#else
  return frame->f_code;
#endif
}

inline int offset(Frame* frame) {
#if PY_VERSION_HEX >= 0x030D0000
  const _Py_CODEUNIT* instruction = frame->instr_ptr;
#else
  const _Py_CODEUNIT* instruction = frame->prev_instr;
#endif
  return static_cast<int>(reinterpret_cast<const char*>(instruction) -
                          code(frame)->co_code_adaptive);
}

// From `frame` outwards, without those that stand for a call from C.
inline Frame* pythons(Frame* frame) {
#if PY_VERSION_HEX >= 0x030C0000
#if PY_VERSION_HEX >= 0x030E0000
  constexpr int kFirstOfC = FRAME_OWNED_BY_INTERPRETER;
#else
  constexpr int kFirstOfC = FRAME_OWNED_BY_CSTACK;
#endif
  while (frame != nullptr && frame->owner >= kFirstOfC) {
    frame = frame->previous;
  }
#endif
  return frame;
}

inline Frame* innermost(const PyThreadState* thread) {
#if PY_VERSION_HEX >= 0x030D0000
  return pythons(thread->current_frame);
#else
  return pythons(thread->cframe->current_frame);
#endif
}

inline Frame* caller(Frame* frame) { return pythons(frame->previous); }

#else
using Frame = const PyFrameObject;

inline PyCodeObject* code(Frame* frame) { return frame->f_code; }
inline int offset(Frame* frame) { return frame->f_lasti * static_cast<int>(sizeof(_Py_CODEUNIT)); }
inline Frame* innermost(const PyThreadState* thread) { return thread->frame; }
inline Frame* caller(Frame* frame) { return frame->f_back; }
#endif

}  // namespace torch_xla::frames
#endif
