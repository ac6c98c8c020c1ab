"""What a call of an assume_pure function costs, against CPU-eager's forward of the same model.

Prints the time to record the 100-layer decoder without and with assume_pure, the ratios, how the
cost of a call depends on the length of the traced body (it must not), and the bytes kept for the
backward pass beside those that PyTorch keeps.
"""

import argparse
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

import torch
import torch_xla
from timing import Case, compare, medians, report, write_json
from torch import Tensor, nn
from torch.func import functional_call
from torch_xla.experimental.assume_pure import PureModule, assume_pure
from training import Trainer

from models import Decoder, DecoderConfig  # isort: skip  (training extends the path)


CALLS_IN_A_ROW = 10  # as in the document's benchmark, which calls one function many times


def decoder_calls(grad: bool) -> tuple[Case, list[Case]]:
    """The forward on the CPU, recorded, and recorded through assume_pure."""
    torch.manual_seed(0)
    config = DecoderConfig.deep()
    cpu_model = Decoder(config)
    tokens = torch.randint(config.vocabulary, (2, 8))
    model = Decoder(config)
    model.load_state_dict(cpu_model.state_dict())
    model.to("xla")
    device_tokens = tokens.to("xla")
    parameters = dict(model.named_parameters())
    pure = assume_pure(lambda values, x: functional_call(model, values, (x,)))

    def under_grad(run: Callable[[], Tensor]) -> Callable[[], None]:
        def call() -> None:
            with torch.set_grad_enabled(grad):
                run()

        return call

    def settle() -> None:
        torch_xla.sync(wait=True)

    return (
        Case("cpu eager", under_grad(lambda: cpu_model(tokens)), repeat=CALLS_IN_A_ROW),
        [
            Case(name, under_grad(call), settle, CALLS_IN_A_ROW)
            for name, call in (
                ("no assume_pure", lambda: model(device_tokens)),
                ("assume_pure", lambda: pure(parameters, device_tokens)),
            )
        ],
    )


def decoder_gradients() -> tuple[Case, list[Case]]:
    """Forward and backward through assume_pure, against the CPU's forward alone."""
    reference, candidates = decoder_calls(grad=True)
    config = DecoderConfig.deep()
    model = Decoder(config).to("xla")
    tokens = torch.randint(config.vocabulary, (2, 8)).to("xla")
    parameters = dict(model.named_parameters())
    pure = assume_pure(lambda values, x: functional_call(model, values, (x,)).sum())

    def both() -> None:
        torch.autograd.grad(pure(parameters, tokens), list(parameters.values()))

    def settle() -> None:
        torch_xla.sync(wait=True)

    return reference, [Case("assume_pure, forward and backward", both, settle, CALLS_IN_A_ROW)]


def kept_bytes(call: Callable[[], Tensor], given: Iterable[Tensor]) -> int:
    """The memory that a forward keeps for its backward, without what was there before."""
    kept = {}
    known = {tensor.untyped_storage().data_ptr() for tensor in given}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = call()
    del result
    return sum(storage.nbytes() for at, storage in kept.items() if at not in known)


def saved(layers: int) -> tuple[int, int]:
    """Bytes kept by PyTorch on the CPU and by assume_pure, for a decoder of the seeds' shape."""
    config = replace(DecoderConfig.deep(), layers=layers)
    model = Decoder(config)
    tokens = torch.randint(config.vocabulary, (2, 8))
    own = kept_bytes(lambda: model(tokens), [*model.parameters(), *model.buffers(), tokens])
    model.to("xla")
    tokens = tokens.to("xla")
    parameters = dict(model.named_parameters())
    pure = assume_pure(lambda values, x: functional_call(model, values, (x,)))
    pure(parameters, tokens)
    given = [*model.parameters(), *model.buffers(), tokens]
    ours = kept_bytes(lambda: pure(parameters, tokens), given)
    torch_xla.sync()
    return own, ours


def flatness(iterations: int) -> dict[str, float]:
    """Microseconds a call with 32 arguments, for bodies of 1 to 400 layers."""
    weights = [torch.randn(16, 16, device="xla") for _ in range(31)]
    x = torch.randn(4, 16, device="xla")
    costs = {}
    for layers in (1, 10, 100, 400):

        def body(values: list[Tensor], x: Tensor, layers: int = layers) -> Tensor:
            for layer in range(layers):
                x = torch.tanh(x @ values[layer % len(values)])
            return x

        pure = assume_pure(body)
        pure(weights, x)
        costs[f"{layers} layers"] = best_call(lambda pure=pure: pure(weights, x), iterations)
    torch_xla.sync()
    return costs


def best_call(call: Callable[[], Tensor], iterations: int) -> float:
    """Microseconds of the median call; results are dropped, so that nothing piles up."""
    times = []
    for _ in range(iterations):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return sorted(times)[len(times) // 2] * 1e6


class PureLayers(nn.Module):
    """The decoder with each layer a PureModule."""

    def __init__(self, model: Decoder):
        super().__init__()
        model.layers = nn.ModuleList(PureModule(layer) for layer in model.layers)
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model(tokens)


def training_step(steps: int) -> tuple[float, float]:
    """Milliseconds a step of the 100-layer model with pure layers, and of it on the host."""
    config = DecoderConfig.deep()
    tokens = torch.randint(config.vocabulary, (2, 9))

    def loss(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())

    trainer = Trainer(
        PureLayers(Decoder(config)),
        loss,
        lambda model: torch.optim.Adam(model.parameters(), lr=1e-3),
        (tokens[:, :-1], tokens[:, 1:]),
        "xla",
    )
    trainer.steps(4)
    host, whole = [], []
    for _ in range(steps):
        started = time.perf_counter()
        trainer.optimizer.zero_grad()
        trainer.loss(trainer.forward, trainer.inputs, trainer.targets).backward()
        trainer.optimizer.step()
        host.append(time.perf_counter() - started)
        torch_xla.sync(wait=True)
        whole.append(time.perf_counter() - started)
    return sorted(whole)[steps // 2] * 1e3, sorted(host)[steps // 2] * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--json", help="write the ratios to this file")
    options = parser.parse_args()
    ratios = {}
    rounds = max(1, options.iterations // CALLS_IN_A_ROW)
    for grad in (False, True):
        title = "forward of the 100-layer decoder, " + ("with grad" if grad else "no grad")
        reference, candidates = decoder_calls(grad)
        seconds = medians([reference, *candidates], rounds)
        ratios[title] = report(title, reference.name, seconds)
        print(f"No `@assume_pure` time: {seconds['no assume_pure'] * 1e3:.4f} ms")
        print(f"`@assume_pure` time: {seconds['assume_pure'] * 1e3:.4f} ms")
    title = "forward and backward against the forward on the CPU"
    reference, candidates = decoder_gradients()
    ratios[title] = compare(title, reference, candidates, rounds)
    print("a call with 32 arguments")
    for name, cost in flatness(10 * options.iterations).items():
        print(f"  {name:26} {cost:8.1f} us")
    whole, host = training_step(10)
    print("a training step of the 100-layer decoder, its layers pure")
    print(f"  whole {whole:8.2f} ms   host {host:8.2f} ms   {100 * host / whole:.0f} % on the host")
    own, ours = saved(layers=10)
    print("kept for the backward of a 10-layer decoder")
    print(
        f"  PyTorch {own / 1e6:8.2f} MB   assume_pure {ours / 1e6:8.2f} MB   ratio {ours / own:.3f}"
    )
    ratios["kept bytes"] = {"assume_pure": ours / own}
    write_json(options.json, ratios)


if __name__ == "__main__":
    main()
