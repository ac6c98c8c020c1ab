"""Training steps of many tiny models (`dev/tiny_models`: transformers, timm, diffusers) from a
process that has not met them: finds what is slow of what nobody here wrote.

One process per device trains each model for some steps with AdamW, new data and a read of the loss
at each. Prints geometric means of the ratios to CPU eager, and the models with the largest. The
interpreter that runs this needs these libraries.
"""

import argparse
import json
import logging
import os
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "dev"))


def leaves(value: Any) -> list[Any]:
    """The floating-point tensors in what a model returns."""
    import torch

    if isinstance(value, torch.Tensor):
        return [value] if value.is_floating_point() else []
    if isinstance(value, dict):
        value = list(value.values())
    return (
        [leaf for item in value for leaf in leaves(item)] if isinstance(value, list | tuple) else []
    )


def train(name: str, device: str, steps: int) -> list[float]:
    import tiny_models
    import torch

    case = tiny_models.case(name)
    generator = torch.Generator().manual_seed(1)
    model = case.model.to(device).train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    seconds = []
    for _ in range(steps):
        given = case.inputs(generator)
        start = time.perf_counter()
        inputs = torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.to(device), given)
        optimizer.zero_grad()
        outputs = [out for out in leaves(model(**inputs)) if out.requires_grad]
        loss = sum((out.float().square().mean() for out in outputs), torch.zeros((), device=device))
        loss.backward()
        optimizer.step()
        if device == "xla":
            sys.modules["torch_xla"].sync()
        loss.item()
        seconds.append(time.perf_counter() - start)
    return seconds


def work(device: str, steps: int, names: list[str]) -> None:
    """Prints the seconds of each model's steps; what does not train on the CPU is left out."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # models print, too
    if device == "xla":
        import torch_xla  # noqa: F401
    for name in names:
        try:
            result: Any = train(name, device, steps)
        except Exception as problem:
            result = f"{type(problem).__name__}: {str(problem)[:200]}"
        print(json.dumps([name, result]), file=answers, flush=True)


def measured(device: str, steps: int, names: list[str]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, __file__, "--worker", device, "--steps", str(steps), *names],
        env={**os.environ, "HF_HUB_OFFLINE": "1"}, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True, check=True,
    )  # fmt: skip
    return dict(map(json.loads, done.stdout.splitlines()))


def main() -> None:
    import tiny_models

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="models; all by default")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--every", type=int, default=1, help="only each nth model")
    parser.add_argument("--worst", type=int, default=10, help="how many models to list")
    options = parser.parse_args()
    if options.worker:
        work(options.worker, options.steps, options.names)
        return
    names = options.names or tiny_models.names()[:: options.every]
    expected, found = (measured(device, options.steps, names) for device in ("cpu", "xla"))
    rows = []
    for name, reference in expected.items():
        if isinstance(reference, str):
            continue
        if isinstance(found[name], str):
            print(f"{name} fails: {found[name]}")
            continue
        later = statistics.median(found[name][3:]) / statistics.median(reference[3:])
        first = found[name][0] / reference[0]
        rows.append((sum(found[name]) / sum(reference), first, later, sum(reference), name))
    means = [statistics.geometric_mean(row[i] for row in rows) for i in range(3)]
    print(f"{len(rows)} models, {options.steps} steps, times CPU eager's (geometric means):")
    print("  all {:.2f}  first step {:.2f}  fourth and later {:.2f}".format(*means))
    for every, first, later, seconds, name in sorted(rows, reverse=True)[: options.worst]:
        print(f"  {every:.2f}  {first:.2f}  {later:.2f}  CPU {seconds:.2f} s  {name}")


if __name__ == "__main__":
    main()
