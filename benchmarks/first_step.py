"""What users wait for: programs from a cold process, as a ratio to CPU-eager PyTorch.

Each contender runs in a process of its own, one at a time, in turn; the loss is read each step.
`cold` starts with an empty program cache, `full` with what `cold` left there. Prints the medians of
the rounds, and with --json writes them. `longest later` is the longest step but for the first, in
median steps of CPU eager, whose longest is `its own`; `peak` the ratio of the processes' memory.
"""

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from timing import ONLY_WHAT_IS_IMPORTED

# ---- workloads: each yields when it is ready, then once per step ---------------------------------


def training(
    device: str, model, make_optimizer, loss, batches, read_every: int = 1
) -> Iterator[None]:
    model = model.to(device)
    optimizer = make_optimizer(model)
    yield
    for i, batch in enumerate(batches):
        inputs, targets = (part.to(device) for part in batch)
        optimizer.zero_grad()
        value = loss(model, inputs, targets)
        value.backward()
        optimizer.step()
        if device == "xla" and read_every == 1:
            sys.modules["torch_xla"].sync()
        if i % read_every == read_every - 1:
            value.item()
        yield


def cross_entropy(model, inputs, targets):
    import torch.nn.functional as F

    return F.cross_entropy(model(inputs).flatten(0, -2), targets.flatten())


def adam(model):
    import torch

    return torch.optim.Adam(model.parameters(), lr=1e-3)


def decoder(steps: int, read_every: int):
    """`read_every`: programs that print a line now and then know of no sync, either."""

    def run(device: str, compiled: bool) -> Iterator[None]:
        import torch
        from models import Decoder, DecoderConfig

        config = DecoderConfig()
        tokens = torch.randint(config.vocabulary, (8, 129))
        model = maybe_compiled(Decoder(config), compiled)
        batches = [(tokens[:, :-1], tokens[:, 1:])] * steps
        return training(device, model, adam, cross_entropy, batches, read_every)

    return run


def evaluation(device: str, compiled: bool) -> Iterator[None]:
    """Of 100 batches of 19 MB; its hits are read at the end."""
    import torch
    from torch import nn

    layers = nn.Conv2d(3, 16, 7, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    model = maybe_compiled(nn.Sequential(*layers, nn.Linear(16, 10)).to(device), compiled)
    hits = torch.zeros((), device=device)
    yield
    with torch.no_grad():
        for _ in range(100):
            images, labels = torch.rand(32, 3, 224, 224), torch.randint(10, (32,))
            hits += (model(images.to(device)).argmax(1) == labels.to(device)).sum()
            yield
    hits.item()
    yield


def gpt_dropout(device: str, compiled: bool) -> Iterator[None]:
    import torch
    from models import GPT, GPTConfig

    config = GPTConfig(dropout=0.1)
    tokens = torch.randint(config.vocabulary, (8, 65))
    model = maybe_compiled(GPT(config), compiled)
    return training(device, model, adam, cross_entropy, [(tokens[:, :-1], tokens[:, 1:])] * 60)


def resnet(device: str, compiled: bool) -> Iterator[None]:
    import torch
    from models import resnet50

    batch = (torch.randn(8, 3, 64, 64), torch.randint(1000, (8,)))

    def sgd(model):
        return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    model = maybe_compiled(resnet50(), compiled)
    return training(device, model, sgd, cross_entropy, [batch] * 60)


def lstm_model(width: int, layers: int):
    import torch
    from torch import nn

    class Language(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(100, width)
            self.lstm = nn.LSTM(width, width, layers, batch_first=True)
            self.out = nn.Linear(width, 100)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.out(self.lstm(self.embed(tokens))[0])

    return Language()


def transformer_model(width: int, layers: int):
    from torch import nn

    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
    return nn.Sequential(
        nn.Embedding(100, width), nn.TransformerEncoder(layer, layers), nn.Linear(width, 100)
    )


def stream(make_model: Callable, width: int, layers: int, batch: int):
    """300 batches of 60 different lengths."""

    def run(device: str, compiled: bool) -> Iterator[None]:
        import torch

        lengths = random.Random(0).choices(range(20, 80), k=300)
        tokens = [torch.randint(100, (batch, length + 1)) for length in lengths]
        model = maybe_compiled(make_model(width, layers), compiled)
        return training(device, model, adam, cross_entropy, [(t[:, :-1], t[:, 1:]) for t in tokens])

    return run


def generate(cache: str | None):
    """A step is a call of `generate` for 30 tokens."""

    def run(device: str, compiled: bool) -> Iterator[None]:
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM

        config = LlamaConfig(vocab_size=128, hidden_size=32, intermediate_size=64,
                             num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                             max_position_embeddings=128)  # fmt: skip
        model = maybe_compiled(LlamaForCausalLM(config).eval().to(device), compiled)
        prompt = torch.randint(3, 128, (1, 8)).to(device)
        options = {} if cache is None else {"cache_implementation": cache}
        if cache is not None:
            options["disable_compile"] = True
        yield
        for _ in range(60):  # small programs are compiled after some hundred runs
            model.generate(prompt, max_new_tokens=30, min_new_tokens=30, eos_token_id=2,
                           pad_token_id=0, do_sample=False, **options).tolist()  # fmt: skip
            yield

    return run


def lbfgs(device: str, compiled: bool) -> Iterator[None]:
    """A step fits an unrolled LSTMCell to 20 sequences of 59 numbers."""
    import torch
    from torch import nn

    first, second = nn.LSTMCell(1, 51).double().to(device), nn.LSTMCell(51, 51).double().to(device)
    out = nn.Linear(51, 1).double().to(device)
    modules = nn.ModuleList([first, second, out])
    data = torch.sin(torch.arange(60, dtype=torch.float64) / 5 + torch.rand(20, 1)).to(device)
    inputs, targets = data[:, :-1], data[:, 1:]
    optimizer = torch.optim.LBFGS(modules.parameters(), lr=0.8)
    yield

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        zeros = torch.zeros(len(inputs), 51, dtype=torch.float64, device=device)
        states = [(zeros, zeros), (zeros, zeros)]
        outputs = []
        for column in inputs.split(1, dim=1):
            states[0] = first(column, states[0])
            states[1] = second(states[0][0], states[1])
            outputs.append(out(states[1][0]))
        loss = nn.functional.mse_loss(torch.cat(outputs, dim=1), targets)
        loss.backward()
        return loss

    for _ in range(2):
        optimizer.step(closure).item()
        yield


WORKLOADS: dict[str, Callable[[str, bool], Iterator[None]]] = {
    "decoder": decoder(60, 1),
    "decoder, read each 50": decoder(200, 50),
    "evaluation, read at its end": evaluation,
    "gpt with dropout": gpt_dropout,
    "resnet-50": resnet,
    "generate, dynamic cache": generate(None),
    "generate, static cache": generate("static"),
    "lbfgs over lstm cells": lbfgs,
    "60 lengths, small lstm": stream(lstm_model, 32, 1, 8),
    "60 lengths, large lstm": stream(lstm_model, 512, 2, 16),
    "60 lengths, small transformer": stream(transformer_model, 32, 1, 8),
    "60 lengths, large transformer": stream(transformer_model, 256, 4, 16),
}


def small_model(name: str) -> Callable[[str, bool], Iterator[None]]:
    def run(device: str, compiled: bool) -> Iterator[None]:
        import small_models  # which imports torch: only the processes that are measured do

        return small_models.WORKLOADS[name](device, compiled)

    return run


SMALL_MODELS = ("digits", "adversaries", "q-learning", "physics", "citations")
WORKLOADS |= {name: small_model(name) for name in SMALL_MODELS}


def maybe_compiled(model, compiled: bool):
    import torch

    return torch.compile(model) if compiled else model


# ---- measuring ---------------------------------------------------------------------------------


def work(workload: str, contender: str) -> None:
    """In a process of its own: prints the seconds of each step; making the model is not counted."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
    import torch

    device = "cpu" if contender in ("cpu", "inductor") else "xla"
    if device == "xla":
        import torch_xla.debug.metrics as met
    torch.manual_seed(0)
    seconds = []
    steps = WORKLOADS[workload](device, contender == "inductor")
    next(steps)
    began = time.perf_counter()
    for _ in steps:
        now = time.perf_counter()
        seconds.append(now - began)
        began = now
    compiled = met.counter_value("UncachedCompile") if device == "xla" else None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"seconds": seconds, "compilations": compiled or 0, "peak": peak}))


CONTENDERS = {
    "cpu": {},
    "inductor": {},
    "counted, cold": {"TORCH_XLA_TIERS": "counted"},
    "counted, full": {"TORCH_XLA_TIERS": "counted"},
    "async, cold": {"TORCH_XLA_TIERS": "async"},
    "off, cold": {"TORCH_XLA_TIERS": "off"},
}


def run(workload: str, contender: str, caches: dict[str, str]) -> dict:
    kind = contender.split(",")[0]
    cache = caches.get(contender) or tempfile.mkdtemp(prefix="first_step_")
    if contender.endswith("cold"):
        caches[kind + ", full"] = cache
    done = subprocess.run(
        [sys.executable, __file__, "--worker", workload, contender],
        env={**os.environ, **ONLY_WHAT_IS_IMPORTED, **CONTENDERS[contender],
             "TORCH_XLA_CACHE_DIR": cache, "TORCHINDUCTOR_CACHE_DIR": cache,
             "TORCH_XLA_PROGRESS": "0"},
        capture_output=True,
        text=True,
    )  # fmt: skip
    if done.returncode != 0:
        sys.exit(f"{workload} on {contender} failed:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def figures(measured: dict, of_cpu: dict) -> dict[str, float]:
    """Ratios: of the first steps, of all, of the longest later step to the reference's median."""
    steps, reference = measured["seconds"], of_cpu["seconds"]
    usual = statistics.median(reference)
    return {
        "first": steps[0] / reference[0],
        "first 3": sum(steps[:3]) / sum(reference[:3]),
        "all": sum(steps) / sum(reference),
        "longest later": max(steps[1:]) / usual,
        "its own": max(reference[1:]) / usual,
        "last": statistics.median(steps[-5:]) / statistics.median(reference[-5:]),
        "peak": measured["peak"] / of_cpu["peak"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=list(WORKLOADS), help="workloads")
    parser.add_argument("--contenders", nargs="*", default=list(CONTENDERS)[1:5])
    parser.add_argument("--json", help="write the figures to this file")
    options = parser.parse_args()
    if options.worker:
        work(*options.worker)
        return
    results: dict[str, dict] = {}
    for workload in options.only:
        rounds: dict[str, list[dict]] = {name: [] for name in options.contenders}
        compilations: dict[str, int] = {}
        for _ in range(options.rounds):
            caches: dict[str, str] = {}
            reference = run(workload, "cpu", caches)
            for name in options.contenders:
                measured = run(workload, name, caches)
                compilations[name] = measured["compilations"]
                rounds[name].append(figures(measured, reference))
        steps = reference["seconds"]
        print(f"{workload}: CPU eager {sum(steps):.2f} s for {len(steps)} steps")
        results[workload] = {}
        for name, found in rounds.items():
            medians = {key: statistics.median(one[key] for one in found) for key in found[0]}
            results[workload][name] = medians
            text = "  ".join(f"{key} {value:6.2f}" for key, value in medians.items())
            print(f"  {name:14s} {text}  compilations {compilations[name]}", flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
