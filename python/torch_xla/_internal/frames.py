"""What `torch.compile` does not look into."""

from collections.abc import Callable
from typing import Any

from torch._C._dynamo import eval_frame


def hide(function: Callable[..., Any], *, with_what_it_calls: bool) -> None:
    """Runs it as it stands: it is no part of the user's program."""
    skip, usual = eval_frame._FrameAction.SKIP, eval_frame._FrameAction.DEFAULT
    strategy = eval_frame._FrameExecStrategy(skip, skip if with_what_it_calls else usual)
    eval_frame.set_code_exec_strategy(function.__code__, strategy)
