"""Every model of the examples at a size a test can afford, with batches and a loss for it."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from models import (
    GPT,
    Decoder,
    DecoderConfig,
    GPTConfig,
    LSTMLanguageModel,
    ViT,
    resnet18,
    resnet50,
)
from torch import Tensor, nn

VOCABULARY, CLASSES, BATCH, LENGTH, IMAGE = 64, 10, 8, 12, 32
Batch = tuple[Tensor, Tensor]


def token_batch(generator: torch.Generator) -> Batch:
    tokens = torch.randint(VOCABULARY, (BATCH, LENGTH + 1), generator=generator)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def image_batch(generator: torch.Generator) -> Batch:
    images = torch.randn(BATCH, 3, IMAGE, IMAGE, generator=generator)
    return images, torch.randint(CLASSES, (BATCH,), generator=generator)


def loss_of(model: nn.Module, batch: Batch) -> Tensor:
    inputs, targets = batch
    return F.cross_entropy(model(inputs).flatten(0, -2), targets.flatten())


@dataclass(frozen=True)
class Tiny:
    build: Callable[[], nn.Module]
    batch: Callable[[torch.Generator], Batch]
    learning_rate: float = 1e-3

    def model(self) -> nn.Module:
        torch.manual_seed(0)
        return self.build()

    def batches(self, count: int) -> list[Batch]:
        generator = torch.Generator().manual_seed(1)
        return [self.batch(generator) for _ in range(count)]


def gpt(dropout: float) -> GPT:
    return GPT(GPTConfig(VOCABULARY, context=16, size=32, layers=2, heads=2, dropout=dropout))


MODELS = {
    "decoder": Tiny(
        lambda: Decoder(DecoderConfig(VOCABULARY, hidden=32, intermediate=64)), token_batch
    ),
    # Batch norm over few values makes larger steps chaotic: float32 and float64 part ways too.
    "resnet18": Tiny(lambda: resnet18(CLASSES, width=8), image_batch, learning_rate=1e-4),
    "resnet50": Tiny(lambda: resnet50(CLASSES, width=8), image_batch, learning_rate=1e-4),
    "vit": Tiny(
        lambda: ViT(IMAGE, patch=8, size=32, layers=2, heads=2, classes=CLASSES), image_batch
    ),
    "lstm": Tiny(lambda: LSTMLanguageModel(VOCABULARY, size=24), token_batch),
    "gpt": Tiny(lambda: gpt(dropout=0.0), token_batch),
}
WITH_DROPOUT = {"gpt with dropout": Tiny(lambda: gpt(dropout=0.2), token_batch)}
