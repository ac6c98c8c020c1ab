"""Models of timm and transformers as workloads (`dev/sample_models`, in the size that people have):
a step takes new data to the device, as a loader's come."""

import logging
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1] / "dev"))

import sample_models  # noqa: E402

Wrap = Callable[[Callable[..., Tensor]], Callable[..., Tensor]]


def moved(given: dict[str, Any], device: str) -> dict[str, Any]:
    return torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.to(device), given)


def training_step(
    model: nn.Module, called: Callable[..., Any], device: str, autocast: bool = False
) -> Callable[[dict[str, Any]], Tensor]:
    """A step with AdamW that gives its loss. `called`: the model, or what is called for it."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)

    def train(inputs: dict[str, Any]) -> Tensor:
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=autocast):
            outputs = sample_models.leaves(called(**inputs))
        loss = sample_models.loss_of(outputs, device)
        loss.backward()
        optimizer.step()
        return loss

    return train


def library_model(
    name: str,
    kind: str,
    device: str,
    wrap: Wrap,
    wrap_model: Callable[[nn.Module], nn.Module] = lambda m: m,
) -> Callable[[], float]:
    """`kind`: training with "", "bf16" (autocast), or "inference"."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    case = sample_models.case(name, sample_models.USUAL)
    generator = torch.Generator().manual_seed(1)
    model = case.model.to(device).train(kind != "inference")
    called = wrap_model(model)

    def infer(inputs: dict[str, Any]) -> Tensor:
        with torch.no_grad():
            return sample_models.leaves(called(**inputs))[0].float().mean()

    train = training_step(model, called, device, autocast=kind == "bf16")
    run = wrap(infer if kind == "inference" else train)
    return lambda: run(moved(case.inputs(generator), device)).item()
