"""Programs as people write them, for `suite.py`: each gives a function that does one step and reads
what the user would read of it."""

import functools
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from models import (  # noqa: E402
    GPT,
    Decoder,
    DecoderConfig,
    GPTConfig,
    LSTMLanguageModel,
    ViT,
    resnet50,
)

Step = Callable[[], float]
Batch = tuple[Tensor, Tensor]
Wrap = Callable[[Callable[..., Tensor]], Callable[..., Tensor]]


def tokens(vocabulary: int, size: int, length: int) -> Batch:
    both = torch.randint(vocabulary, (size, length + 1))
    return both[:, :-1].contiguous(), both[:, 1:].contiguous()


def images(size: int, side: int, classes: int = 1000) -> Batch:
    return torch.randn(size, 3, side, side), torch.randint(classes, (size,))


def training(
    model: nn.Module,
    batch: Batch,
    device: str,
    wrap: Wrap,
    dtype: torch.dtype | None = None,
    wrap_model: Callable[[nn.Module], nn.Module] = lambda m: m,
) -> Step:
    model = model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    inputs, targets = (part.to(device) for part in batch)
    called = wrap_model(model)

    def step(inputs: Tensor, targets: Tensor) -> Tensor:
        optimizer.zero_grad()
        with torch.autocast(device, dtype=dtype, enabled=dtype is not None):
            output = called(inputs)
        loss = F.cross_entropy(output.float().flatten(0, -2), targets.flatten())
        loss.backward()
        optimizer.step()
        return loss

    run = wrap(step)
    return lambda: run(inputs, targets).item()


def inference(
    model: nn.Module,
    batch: Tensor,
    device: str,
    wrap: Wrap,
    wrap_model: Callable[[nn.Module], nn.Module] = lambda m: m,
) -> Step:
    model = wrap_model(model.to(device).eval())
    batch = batch.to(device)

    def forward(x: Tensor) -> Tensor:
        with torch.no_grad():
            return model(x).float().sum()

    run = wrap(forward)
    return lambda: run(batch).item()


def decoder() -> tuple[nn.Module, Batch]:
    config = DecoderConfig()
    return Decoder(config), tokens(config.vocabulary, 8, 128)


def gpt() -> tuple[nn.Module, Batch]:
    config = GPTConfig(vocabulary=8192, context=256, size=768, layers=4, heads=12, dropout=0.1)
    return GPT(config), tokens(config.vocabulary, 2, 256)


def mlp() -> tuple[nn.Module, Batch]:
    layers = (nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    return nn.Sequential(*layers), (torch.randn(32, 64), torch.randint(64, (32,)))


def vit() -> tuple[nn.Module, Batch]:
    model = ViT(224, patch=16, size=384, layers=4, heads=6, classes=1000)
    return model, images(8, 224)


def lstm() -> tuple[nn.Module, Batch]:
    return LSTMLanguageModel(1000, size=256), tokens(1000, 16, 64)


MODELS: dict[str, Callable[[], tuple[nn.Module, Batch]]] = {
    "decoder": decoder,
    "resnet50": lambda: (resnet50(), images(8, 64)),
    "gpt": gpt,
    "vit": vit,
    "lstm": lstm,
    "mlp": mlp,
}


def make(name: str) -> Callable[..., Step]:
    """`name`: a model, "decoder bf16" (autocast) or "decoder inference"."""
    model, _, kind = name.partition(" ")
    built, batch = MODELS[model]()
    if kind == "inference":
        return functools.partial(inference, built, batch[0])
    return functools.partial(training, built, batch, dtype=torch.bfloat16 if kind else None)


NAMES = [*MODELS, "decoder bf16", "decoder inference", "resnet50 inference"]
