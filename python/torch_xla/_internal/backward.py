"""Backward passes run on the thread that asks for them, the device's part included (see
`record/backward_pass.h`)."""

from typing import Any

from torch.autograd import Variable

from torch_xla import _XLAC
from torch_xla._internal import frames

_Engine: Any = type(Variable._execution_engine)


class Engine(_Engine):  # type: ignore[misc]
    """PyTorch's."""

    def run_backward(self, *args: Any, **kwargs: Any) -> Any:
        _XLAC.begin_backward()
        try:
            return super().run_backward(*args, **kwargs)
        finally:
            _XLAC.end_backward()


def install() -> None:
    Variable._execution_engine = Engine()
    frames.hide(Engine.run_backward, with_what_it_calls=False)  # hooks are the user's
