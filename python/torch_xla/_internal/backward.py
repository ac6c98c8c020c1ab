"""Backward passes run on the thread that asks for them, the device's part included (see
`record/backward_pass.h`)."""

from typing import Any

from torch._C._dynamo import eval_frame
from torch.autograd import Variable

from torch_xla import _XLAC

_Engine: Any = type(Variable._execution_engine)


class Engine(_Engine):  # type: ignore[misc]
    """PyTorch's."""

    def run_backward(self, *args: Any, **kwargs: Any) -> Any:
        here = _XLAC.begin_backward()
        try:
            return super().run_backward(*args, **kwargs)
        finally:
            if here:
                _XLAC.end_backward()


def install() -> None:
    Variable._execution_engine = Engine()
    # Nothing for `torch.compile` to look into; what it calls may be.
    actions = eval_frame._FrameAction
    eval_frame.set_code_exec_strategy(
        Engine.run_backward.__code__,
        eval_frame._FrameExecStrategy(actions.SKIP, actions.DEFAULT),
    )
