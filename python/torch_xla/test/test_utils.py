"""What example programs print and write while they train."""

import functools
import multiprocessing
import os
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import torch

from torch_xla import runtime
from torch_xla.debug import metrics

__all__ = [
    "close_summary_writer",
    "get_summary_writer",
    "mp_test",
    "now",
    "print_test_update",
    "print_training_update",
    "write_to_summary",
]


def mp_test(func: Callable[..., Any]) -> Callable[..., int]:
    """A test that runs in a process of its own, and fails when that one does."""

    @functools.wraps(func)
    def run(*args: Any, **kwargs: Any) -> int:
        process = multiprocessing.Process(target=func, args=args, kwargs=kwargs)
        process.start()
        process.join()
        if process.exitcode != 0:
            raise AssertionError(f"the process of {func.__name__} exits with {process.exitcode}")
        return 0

    return run


def now(format: str = "%H:%M:%S") -> str:
    """The time of day."""
    return datetime.now().strftime(format)


def get_summary_writer(logdir: str | None) -> Any:
    """A TensorBoard writer for this process, or None without a folder."""
    if not logdir:
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(os.path.join(logdir, f"{runtime.global_ordinal()}_{time.time_ns()}"))


def write_to_summary(
    summary_writer: Any,
    global_step: int | None = None,
    dict_to_write: Mapping[str, float] | None = None,
    write_xla_metrics: bool = False,
) -> None:
    """Writes numbers by their names, and if wanted the counters and metrics of the device."""
    if summary_writer is None:
        return
    numbers: dict[str, float] = dict(dict_to_write or {})
    if write_xla_metrics:
        for name in metrics.counter_names():
            numbers[f"counters/{name}"] = metrics.counter_value(name) or 0
        for name in metrics.metric_names():
            data = metrics.metric_data(name)
            numbers[f"metrics/{name}"] = data[1] / max(data[0], 1) if data else 0.0
    for name, number in numbers.items():
        summary_writer.add_scalar(name, number, global_step)


def close_summary_writer(summary_writer: Any) -> None:
    """Writes what is left and closes the file."""
    if summary_writer is not None:
        summary_writer.close()


def _place_of(device: "torch.device | str") -> str:
    return f"{device}/{runtime.global_ordinal()}"


def _number(value: Any) -> float:
    return float(value.item()) if isinstance(value, torch.Tensor) else float(value)


def print_training_update(
    device: "torch.device | str",
    step: int,
    loss: Any,
    rate: float,
    global_rate: float,
    epoch: int | None = None,
    summary_writer: Any = None,
) -> None:
    """Prints how far a process is; reads the loss from the device."""
    value = _number(loss)
    words = [f"| Training Device={_place_of(device)}"]
    words += [f"Epoch={epoch}"] if epoch is not None else []
    words += [f"Step={step}", f"Loss={value:.5f}", f"Rate={rate:.2f}"]
    words += [f"GlobalRate={global_rate:.2f}", f"Time={now()}"]
    print(*words, flush=True)
    write_to_summary(summary_writer, step, {"loss": value, "rate": rate})


def print_test_update(
    device: "torch.device | str", accuracy: Any, epoch: int | None = None, step: int | None = None
) -> None:
    """Prints the accuracy that a process has measured."""
    words = [f"| Test Device={_place_of(device)}"]
    words += [f"Step={step}"] if step is not None else []
    words += [f"Epoch={epoch}"] if epoch is not None else []
    words += [f"Accuracy={_number(accuracy):.2f}"] if accuracy is not None else []
    print(*words, f"Time={now()}", flush=True)
