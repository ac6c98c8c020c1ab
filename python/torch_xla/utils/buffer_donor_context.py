"""Whether inputs marked as donors give their memory to results."""

import contextlib
from collections.abc import Iterator

_enabled = False


@contextlib.contextmanager
def alias_with_buffer_donor_config(should_alias: bool = True) -> Iterator[bool]:
    """A switch around steps; yields what it was before.

    It changes nothing: memory that nobody refers to any more is given to results by itself, with
    and without marks, and memory that somebody refers to never is.
    """
    global _enabled
    before, _enabled = _enabled, should_alias
    try:
        yield before
    finally:
        _enabled = before


def is_enabled() -> bool:
    """What the innermost `alias_with_buffer_donor_config` says."""
    return _enabled
