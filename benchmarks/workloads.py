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

import workload_models  # noqa: E402
from models import (  # noqa: E402
    GPT,
    Decoder,
    DecoderConfig,
    GPTConfig,
    LSTMLanguageModel,
    ViT,
    resnet50,
)
from workload_models import GraphNetwork, Recommender, Tagger, UNet  # noqa: E402

Step = Callable[[], float]
Batch = tuple[Tensor, Tensor]
Wrap = Callable[[Callable[..., Tensor]], Callable[..., Tensor]]
Loss = Callable[[Tensor, Tensor], Tensor]


def tokens(vocabulary: int, size: int, length: int) -> Batch:
    both = torch.randint(vocabulary, (size, length + 1))
    return both[:, :-1].contiguous(), both[:, 1:].contiguous()


def images(size: int, side: int, classes: int = 1000) -> Batch:
    return torch.randn(size, 3, side, side), torch.randint(classes, (size,))


def cross_entropy(output: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(output.float().flatten(0, -2), targets.flatten())


def training(
    model: nn.Module,
    batch: Batch,
    device: str,
    wrap: Wrap,
    dtype: torch.dtype | None = None,
    wrap_model: Callable[[nn.Module], nn.Module] = lambda m: m,
    loss_of: Loss = cross_entropy,
) -> Step:
    model = model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    inputs, targets = (part.to(device) for part in batch)
    called = wrap_model(model)

    def step(inputs: Tensor, targets: Tensor) -> Tensor:
        optimizer.zero_grad()
        with torch.autocast(device, dtype=dtype, enabled=dtype is not None):
            output = called(inputs)
        loss = loss_of(output, targets)
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


def bert() -> tuple[nn.Module, Batch]:
    return workload_models.bert(), tokens(8192, 4, 128)


def unet() -> tuple[nn.Module, Batch]:
    return UNet(), (torch.randn(4, 3, 64, 64), torch.randn(4, 3, 64, 64))


def mobile() -> tuple[nn.Module, Batch]:
    return workload_models.mobile(), images(8, 112)


def dense() -> tuple[nn.Module, Batch]:
    return workload_models.dense(), images(8, 112)


def gru() -> tuple[nn.Module, Batch]:
    words = torch.randint(4000, (16, 48))
    return Tagger(), (words, words % 32)


def recommender() -> tuple[nn.Module, Batch]:
    return Recommender(), (torch.randint(20_000, (512, 16)), torch.randint(2, (512,)))


def graph() -> tuple[nn.Module, Batch]:
    model = GraphNetwork(nodes=10_000, edges=60_000, size=64, classes=16)
    return model, (torch.randn(10_000, 64), torch.randint(16, (10_000,)))


def decoding(
    device: str,
    wrap: Wrap,
    dtype: torch.dtype,
    wrap_model: Callable[[nn.Module], nn.Module] = lambda m: m,
) -> Step:
    """64 tokens of a small Llama, one by one, over a cache of fixed size."""
    from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

    config = LlamaConfig(
        vocab_size=8192, hidden_size=512, intermediate_size=1376, num_hidden_layers=4,
        num_attention_heads=8, num_key_value_heads=4, max_position_embeddings=128,
    )  # fmt: skip
    model = wrap_model(LlamaForCausalLM(config).to(device, dtype).eval())
    cache = StaticCache(config, max_cache_len=128)
    start = torch.tensor([[1]], device=device)

    def next_token(token: Tensor) -> Tensor:
        with torch.no_grad():
            logits = model(input_ids=token, past_key_values=cache).logits
        return logits[:, -1:].argmax(-1)

    next_token(start)  # the cache makes its tensors
    run = wrap(next_token)

    def decode() -> float:
        cache.reset()
        token = start
        total = 0.0
        for _ in range(64):
            token = run(token)
            total += token.item()
        return total

    return decode


def lstm() -> tuple[nn.Module, Batch]:
    return LSTMLanguageModel(1000, size=256), tokens(1000, 16, 64)


MODELS: dict[str, Callable[[], tuple[nn.Module, Batch]]] = {
    "decoder": decoder,
    "resnet50": lambda: (resnet50(), images(8, 64)),
    "gpt": gpt,
    "vit": vit,
    "lstm": lstm,
    "bert": bert,
    "unet": unet,
    "mobile": mobile,
    "dense": dense,
    "gru": gru,
    "recommender": recommender,
    "graph": graph,
    "mlp": mlp,
    "regression": lambda: (nn.Linear(10, 1), (torch.randn(100, 10), torch.randn(100, 1))),
}
LOSSES: dict[str, Loss] = {"unet": F.mse_loss, "regression": F.mse_loss}


def make(name: str) -> Callable[..., Step]:
    """`name`: a model, "decoder bf16" (autocast), "decoder inference", "mobile channels-last",
    "decode", or a library's: "timm/resnet18", "transformers/bert bf16"."""
    model, _, kind = name.partition(" ")
    if "/" in model:
        from library_models import library_model

        return functools.partial(library_model, model, kind)
    if model == "decode":
        return functools.partial(decoding, dtype=torch.bfloat16 if kind else torch.float32)
    built, batch = MODELS[model]()
    if kind == "inference":
        return functools.partial(inference, built, batch[0])
    if kind == "channels-last":
        built = built.to(memory_format=torch.channels_last)
        batch = (batch[0].to(memory_format=torch.channels_last), *batch[1:])
    dtype = torch.bfloat16 if kind == "bf16" else None
    return functools.partial(
        training, built, batch, dtype=dtype, loss_of=LOSSES.get(model, cross_entropy)
    )


INFERENCE = [
    "decoder inference",
    "resnet50 inference",
    "mobile inference",
    "decode",
    "decode bf16",
]
NAMES = [*MODELS, "mobile channels-last", "decoder bf16", *INFERENCE]
