"""Training loops of libraries, traced once: the model's forward pass and the optimizers' steps.

A loop of one's own is best traced whole (`torch_xla.compile(step, assume_pure=True)`). Loops that
belong to somebody else log, count and decide between forward, backward and update; here these stay
as they are, and each of the three costs the host what its tensors cost. See docs/assume_pure.md.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn

from torch_xla.experimental.assume_pure import assume_pure

__all__ = ["lightning_callback", "trace_training", "transformers_callback"]


def trace_training(model: nn.Module, *optimizers: Any) -> Callable[[], None]:
    """Traces `model.forward` in training and each optimizer's `step`, in place.

    Works on what `accelerator.prepare` returns, too: `trace_training(*accelerator.prepare(model,
    optimizer))`. Returns a function that undoes it.
    """
    return _trace(_with_forward(model), optimizers)


def _trace(modules: Iterable[nn.Module], optimizers: Iterable[Any]) -> Callable[[], None]:
    restored = [_trace_forward(module) for module in modules]
    restored += [_trace_step(_innermost(optimizer)) for optimizer in optimizers]

    def undo() -> None:
        for restore in restored:
            restore()

    return undo


def transformers_callback() -> Any:
    """For `transformers.Trainer(callbacks=[transformers_callback()])` and its subclasses."""
    from transformers import TrainerCallback

    class TraceTraining(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, args: Any, state: Any, control: Any, **of: Any) -> None:
            self.undo = trace_training(of["model"], of["optimizer"])

        def on_train_end(self, args: Any, state: Any, control: Any, **of: Any) -> None:
            self.undo()

    return TraceTraining()


def lightning_callback() -> Any:
    """For `lightning.Trainer(callbacks=[lightning_callback()])`: the modules that the
    LightningModule is made of, and its optimizers. Its own methods run as they are."""
    from lightning.pytorch import Callback

    class TraceTraining(Callback):
        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            parts = (part for child in pl_module.children() for part in _with_forward(child))
            self.undo = _trace(parts, trainer.optimizers)

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            self.undo()

    return TraceTraining()


def _with_forward(module: nn.Module) -> Iterator[nn.Module]:
    """Lists and dictionaries of modules have no forward pass of their own."""
    if isinstance(module, nn.ModuleList | nn.ModuleDict):
        for child in module.children():
            yield from _with_forward(child)
    else:
        yield module


def _innermost(optimizer: Any) -> torch.optim.Optimizer:
    """Accelerate's and Lightning's optimizers keep PyTorch's."""
    while isinstance(getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
        optimizer = optimizer.optimizer
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"trace_training needs optimizers, received {type(optimizer).__name__}")
    return optimizer


def _trace_forward(module: nn.Module) -> Callable[[], None]:
    forward = module.forward
    pure = assume_pure(forward)

    @functools.wraps(forward)
    def traced(*args: Any, **kwargs: Any) -> Any:
        call = pure if module.training and torch.is_grad_enabled() else forward
        return call(*args, **kwargs)

    return _set(module, "forward", traced)


def _trace_step(optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    step = optimizer.step
    pure = assume_pure(step)

    @functools.wraps(step)
    def traced(closure: Callable[[], Any] | None = None) -> Any:
        if closure is None:
            return pure()
        # Gradients are made first; an optimizer that asks for them again and again runs as it is.
        if isinstance(optimizer, torch.optim.LBFGS):
            return step(closure)
        with torch.enable_grad():
            loss = closure()
        pure()
        return loss

    return _set(optimizer, "step", traced)


def _set(owner: Any, name: str, value: Any) -> Callable[[], None]:
    """Sets an attribute of the instance; returns what puts the former one back."""
    had = name in vars(owner)
    former = vars(owner).get(name)
    object.__setattr__(owner, name, value)

    def restore() -> None:
        if had:
            object.__setattr__(owner, name, former)
        else:
            object.__delattr__(owner, name)

    return restore
