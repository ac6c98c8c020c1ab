"""Eager mode: operations run as they are called."""

import contextlib
from collections.abc import Iterator

from torch_xla import _XLAC


def eager_mode(enable: bool) -> None:
    """Turns eager mode on or off for the process. What is pending stays pending."""
    _XLAC.set_eager_mode(bool(enable))


def is_eager_mode() -> bool:
    """Whether operations run as they are called; never inside what torch_xla.compile compiles."""
    return _XLAC.is_eager_mode()


@contextlib.contextmanager
def eager_mode_context(enable: bool) -> Iterator[None]:
    """Eager mode on or off inside; what it was is restored."""
    before = _XLAC.eager_mode_flag()
    eager_mode(enable)
    try:
        yield
    finally:
        eager_mode(before)
