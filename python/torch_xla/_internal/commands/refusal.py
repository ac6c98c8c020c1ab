"""Mistakes on the command line: one sentence on stderr, no traceback."""

import contextlib
from collections.abc import Iterator


class Refusal(Exception):
    """What was asked for cannot be done, and why."""


@contextlib.contextmanager
def refused(action: str) -> Iterator[None]:
    """What fails inside is why the action (an infinitive) could not be done."""
    try:
        yield
    except Exception as error:
        # PyTorch tells more below the first line: how its own source came there.
        reason = next((line for line in str(error).splitlines() if line.strip()), "")
        known = isinstance(error, OSError | RuntimeError | ValueError | TypeError) and reason
        said = reason if known else f"{type(error).__name__}: {reason}"
        raise Refusal(f"cannot {action}: {said}") from error
