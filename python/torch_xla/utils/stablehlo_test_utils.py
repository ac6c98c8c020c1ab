"""What tests of exports share: functions as modules, and saved models of TensorFlow."""

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import torch


def has_tf_package() -> bool:
    """Whether TensorFlow is installed."""
    return importlib.util.find_spec("tensorflow") is not None


def wrap_func_as_nn_module(f: Callable[..., Any]) -> torch.nn.Module:
    """A module whose `forward` is this function."""

    class Wrapped(torch.nn.Module):
        def forward(self, *args: Any) -> Any:
            return f(*args)

    return Wrapped().eval()


def load_save_model_and_inference(path: str, args: Sequence[Any]) -> Any:
    """What a saved model's default signature gives for arrays."""
    import tensorflow as tf  # type: ignore[import-not-found]

    return tf.saved_model.load(path).f(*args)


def compare_exported_program_and_saved_model_result(
    ep: torch.export.ExportedProgram,
    saved_model_path: str,
    args: Sequence[torch.Tensor],
    atol: float = 1e-5,
) -> None:
    """Asserts that an exported program and the saved model made of it give the same."""
    expected = ep.module()(*args)
    found = load_save_model_and_inference(saved_model_path, [arg.numpy() for arg in args])
    expected = expected if isinstance(expected, (tuple, list)) else (expected,)
    for want, got in zip(expected, found, strict=True):
        torch.testing.assert_close(torch.as_tensor(got.numpy()), want, atol=atol, rtol=1e-5)
