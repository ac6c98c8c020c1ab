"""(a) Recording the 100-layer decoder's forward, and calling it as a pure function, against
computing it eagerly on the CPU, without and with gradients.

Each contender lives in a process of its own, and they take turns. Only the Python call on `xla`
tensors is timed. What it recorded is dropped before the sync that follows outside the timer, so
nothing is compiled or run. Before each cold call other work has taken the processor's caches.
"""

import argparse
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

from timing import Case, Contender, answer_turns, take_turns, write_json

MODES = ("no grad", "with grad")
CONTENDERS = ("recording", "pure", "pure, cold")
LIMITS = {
    ("recording", "no grad"): 0.30,
    ("recording", "with grad"): 0.33,
    ("pure", "no grad"): 0.006,
    ("pure", "with grad"): 0.015,
}
SECONDS_A_TURN = 1.0
BYTES_OF_CACHES = 1 << 28


def forward_of(contender: str) -> tuple[Callable[[], object], Callable[[], None]]:
    """What is timed, and what follows it outside the timer."""
    import torch

    sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
    from models import Decoder, DecoderConfig
    from torch.func import functional_call

    torch.manual_seed(0)
    config = DecoderConfig.deep()
    model, tokens = Decoder(config), torch.randint(config.vocabulary, (2, 8))
    if contender == "cpu":
        return lambda: model(tokens), lambda: None
    import torch_xla
    from torch_xla.experimental.assume_pure import assume_pure

    model, tokens = model.to("xla"), tokens.to("xla")
    torch_xla.sync(wait=True)
    if contender == "recording":
        return lambda: model(tokens), torch_xla.sync
    parameters = dict(model.named_parameters())
    pure = assume_pure(lambda values, x: functional_call(model, values, (x,)))
    other = torch.zeros(BYTES_OF_CACHES // 4) if contender.endswith("cold") else torch.zeros(0)

    def between() -> None:
        torch_xla.sync()
        other.add_(1)

    return lambda: pure(parameters, tokens), between


def worker(contender: str, mode: str) -> None:
    import torch

    torch.set_grad_enabled(mode == "with grad")
    run, between = forward_of(contender)
    case = Case(contender, run, between)
    for _ in range(3):
        run()
        between()
    print("ready", flush=True)
    answer_turns(case)


def measure(mode: str, names: list[str], rounds: int) -> dict[str, float]:
    contenders = [
        Contender(name, sys.executable, __file__, "--worker", name, mode)
        for name in ("cpu", *names)
    ]
    ratios = take_turns(contenders, rounds, SECONDS_A_TURN)
    took = statistics.median(contenders[0].turns)
    print(f"forward of the 100-layer decoder, {mode}: CPU eager {took:.2f} ms")
    result = {}
    for contender in contenders[1:]:
        found = ratios[contender.name]
        result[contender.name] = statistics.median(found)
        limit = LIMITS[contender.name.removesuffix(", cold"), mode]
        print(
            f"  {contender.name:12s} {statistics.median(contender.turns):8.3f} ms"
            f"   ratio {result[contender.name]:.4f} ({min(found):.4f} to {max(found):.4f})"
            f"   must be {limit:.3f}",
            flush=True,
        )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--contenders", nargs="*", default=list(CONTENDERS), choices=CONTENDERS)
    parser.add_argument("--json", help="write the ratios to this file")
    options = parser.parse_args()
    if options.worker:
        worker(*options.worker)
        return
    results = {mode: measure(mode, options.contenders, options.rounds) for mode in MODES}
    write_json(options.json, results)


if __name__ == "__main__":
    main()
