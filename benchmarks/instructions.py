"""What a step of a small program costs the host in instructions, which nothing else on the machine
disturbs, while its graphs are interpreted: lazily, in eager mode, and in CPU-eager PyTorch. And,
on a platform that computes nothing, what recording the 100-layer decoder's forward costs, and a
step of it that is traced whole.

Each contender runs a few steps under valgrind's callgrind, which counts only these; start-up and
the first steps are left out. `--only calls` counts the calls of small operators that dispatch.py
times. Needs `valgrind` with its headers, and a C compiler. With `--keep` the
profiles stay in a folder, for `callgrind_annotate`.
"""

import argparse
import ctypes
import gc
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import dispatch
from timing import ONLY_WHAT_IS_IMPORTED

CONTENDERS = ("cpu", "lazy", "eager")
COUNTER = """
#include <valgrind/callgrind.h>
void begin(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; }
void end(void) { CALLGRIND_DUMP_STATS; CALLGRIND_STOP_INSTRUMENTATION; }
"""
Step = Callable[[], object]

KNOWN_STEPS = 4  # before those that are counted
CALL, CALLS = "call of ", 100  # of an operator; so many are a step
HOST_ONLY = ("record", "record grad", "traced step")


def workloads(device: str) -> dict[str, Callable[[], Step]]:
    import torch
    import torch.nn.functional as F
    from torch import Tensor, nn

    def training(optimizer: torch.optim.Optimizer, loss: Callable[[], Tensor]) -> Step:
        def step() -> None:
            optimizer.zero_grad()
            value = loss()
            value.backward()
            optimizer.step()
            value.item()

        return step

    def mlp() -> Step:
        layers = (nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
        model = nn.Sequential(*layers).to(device)
        x, y = torch.randn(32, 64).to(device), torch.randint(64, (32,)).to(device)
        adam = torch.optim.Adam(model.parameters(), lr=1e-3)
        return training(adam, lambda: F.cross_entropy(model(x), y))

    def gru() -> Step:
        cell, head = nn.GRUCell(16, 16).to(device), nn.Linear(16, 4).to(device)
        x, y = torch.randn(50, 8, 16).to(device), torch.randint(4, (8,)).to(device)

        def loss() -> Tensor:
            state = torch.zeros(8, 16, device=device)
            for t in range(50):
                state = cell(x[t], state)
            return F.cross_entropy(head(state), y)

        return training(torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=1e-2), loss)

    def crf() -> Step:
        moves, linear = nn.Parameter(torch.randn(5, 5).to(device)), nn.Linear(5, 5).to(device)
        x, mask = torch.randn(30, 4, 5).to(device), torch.ones(30, 4, dtype=torch.bool).to(device)

        def loss() -> Tensor:
            given = linear(x)
            score = given[0]
            for t in range(1, 30):
                each = score.unsqueeze(2) + moves.unsqueeze(0) + given[t].unsqueeze(1)
                score = torch.where(mask[t].unsqueeze(1), torch.logsumexp(each, dim=1), score)
            return torch.logsumexp(score, 1).mean()

        return training(torch.optim.SGD([moves, *linear.parameters()], lr=1e-2), loss)

    def transformer() -> Step:
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).to(device)
        x = torch.randn(2, 8, 32).to(device)

        def step() -> None:
            with torch.no_grad():
                model(x).sum().item()

        return step

    return {"mlp": mlp, "gru": gru, "crf": crf, "transformer": transformer}


def many(call: Step) -> Step:
    def step() -> None:
        for _ in range(CALLS):
            call()

    return step


def host_only(workload: str) -> Step:
    import host_time
    import torch
    import torch_xla

    if workload == "traced step":
        return host_time.step_of("decoder 100", "traced")
    from models import Decoder, DecoderConfig

    config = DecoderConfig.deep()
    model = Decoder(config).to("xla")
    tokens = torch.randint(config.vocabulary, (2, 8)).to("xla")
    torch_xla.sync(wait=True)

    def record() -> None:  # what is recorded is dropped
        with torch.set_grad_enabled("grad" in workload):
            model(tokens)

    return record


def work(workload: str, contender: str, steps: int, counter: str) -> None:
    import torch

    torch.set_num_threads(1)
    if contender != "cpu":
        import torch_xla

        torch_xla.experimental.eager_mode(contender == "eager")
    torch.manual_seed(0)
    if workload in HOST_ONLY:
        step = host_only(workload)
    elif workload.startswith(CALL):
        calls = dispatch.operators("cpu" if contender == "cpu" else "xla")
        step = many(calls[workload.removeprefix(CALL)])
    else:
        step = workloads("cpu" if contender == "cpu" else "xla")[workload]()
    for _ in range(KNOWN_STEPS):
        step()
    gc.collect()
    gc.freeze()
    count = ctypes.CDLL(counter)
    count.begin()
    for _ in range(steps):
        step()
    count.end()
    os._exit(0)


def measure(workload: str, contender: str, steps: int, folder: Path) -> float:
    profile = folder / f"{workload}.{contender}".replace(" ", "_")
    nothing_computed = {"PJRT_DEVICE": "NULL", "TORCH_XLA_TIERS": "off"}
    if workload not in HOST_ONLY:
        nothing_computed = {}
    subprocess.run(
        ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--fair-sched=yes",
         f"--callgrind-out-file={profile}", sys.executable, __file__,
         "--child", workload, contender, "--steps", str(steps), "--keep", str(folder)],
        env={**os.environ, **ONLY_WHAT_IS_IMPORTED, "OMP_NUM_THREADS": "1",
             "PYTHONHASHSEED": "0", **nothing_computed},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True,
    )  # fmt: skip
    found = re.search(r"^totals: (\d+)", Path(f"{profile}.1").read_text(errors="replace"), re.M)
    assert found is not None
    return int(found[1]) / steps / (CALLS if workload.startswith(CALL) else 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = (*workloads("cpu"), *HOST_ONLY) if "--child" not in sys.argv else ()
    parser.add_argument("--only", nargs="+", choices=(*names, "calls"), default=names)
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=CONTENDERS)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="folder for the profiles")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        work(options.child[0], options.child[1], options.steps, str(options.keep / "counter.so"))
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        compile_counter = ["cc", "-O1", "-shared", "-fPIC", "-x", "c", "-", "-o"]
        subprocess.run(
            [*compile_counter, str(folder / "counter.so")], input=COUNTER, text=True, check=True
        )
        calls = (
            [CALL + name for name in dispatch.operators("cpu")] if "calls" in options.only else []
        )
        for workload in [*(name for name in options.only if name != "calls"), *calls]:
            contenders = ("lazy",) if workload in HOST_ONLY else options.contenders
            if workload.startswith(CALL):
                contenders = ("cpu", "eager")
            counts = {c: measure(workload, c, options.steps, folder) for c in contenders}
            texts = [f"{name} {count / 1e3:,.1f}k" for name, count in counts.items()]
            if "cpu" in counts and "eager" in counts:
                texts.append(f"ratio {counts['eager'] / counts['cpu']:.2f}")
            print(f"{workload:34s} " + "  ".join(texts), flush=True)


if __name__ == "__main__":
    main()
