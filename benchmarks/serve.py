"""Latency of exported programs: served from C++ (torch_xla/serve.h), as a ratio to Python's launch
of the same folder (StableHLOGraphModule), from inputs to results in the host's memory.

Each contender runs in a process of its own, in turn with the other, so often in a row as --runs
says after a warm-up; their results must match. Prints the medians of the
rounds, --json writes them.
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import timing

HERE = Path(__file__).parent
WARMUP = 5
LIMIT = 1.05


# ---- the programs: each an exported program ------------------------------------------------------


def exported(model, *inputs):
    import torch

    return torch.export.export(model.eval(), inputs, strict=False)


def resnet18():
    import torch
    from models import resnet18

    return exported(resnet18(classes=1000), torch.randn(1, 3, 224, 224))


def vit():
    import workloads

    model, (images, _) = workloads.vit()
    return exported(model, images[:1])


def decoder():
    import workloads

    model, (tokens, _) = workloads.decoder()
    return exported(model, tokens[:1])


def bert():
    import workloads

    model, (tokens, _) = workloads.bert()
    return exported(model, tokens[:1])


def llama():
    """One token with a static cache of 256."""
    import torch
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM
    from transformers.integrations.executorch import convert_and_export_with_cache

    sizes = {"hidden_size": 512, "intermediate_size": 1376, "num_attention_heads": 8}
    config = LlamaConfig(vocab_size=8192, num_hidden_layers=4, num_key_value_heads=4, **sizes)
    model = LlamaForCausalLM(config).eval()
    cache = {"batch_size": 1, "max_cache_len": 256}
    model.generation_config = GenerationConfig(
        use_cache=True, cache_implementation="static", max_length=256, cache_config=cache
    )
    return convert_and_export_with_cache(model, torch.tensor([[5]]), torch.tensor([3]))


PROGRAMS = {f.__name__: f for f in (resnet18, vit, decoder, bert, llama)}


# ---- workers -------------------------------------------------------------------------------------


def prepare(name: str, folder: Path) -> None:
    """Exports the program and writes its inputs, in the order of the serving library."""
    import torch
    from torch.utils import _pytree
    from torch_xla import stablehlo

    sys.path.insert(0, str(HERE.parent / "examples"))
    torch.manual_seed(0)
    with torch.no_grad():
        program = PROGRAMS[name]()
        stablehlo.save_as_stablehlo(program, folder / "program")
    for i, leaf in enumerate(_pytree.tree_leaves(program.example_inputs)):
        np.save(folder / f"input{i}.npy", leaf.numpy())


def inputs_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("input*.npy"))


def launch(folder: Path, runs: int, output: Path) -> None:
    """Python's launches, as the C++ worker's."""
    import torch
    from torch_xla import stablehlo

    module = stablehlo.StableHLOGraphModule.load(folder / "program")
    inputs = [torch.from_numpy(np.load(path)) for path in inputs_in(folder)]
    for _ in range(runs):
        start = time.perf_counter()
        returned = module.evaluate_flat(inputs)
        results = [result.cpu() for result in torch.utils._pytree.tree_leaves(returned)]
        print((time.perf_counter() - start) * 1e3)
    for i, result in enumerate(results):
        np.save(output / f"{i}.npy", result.detach().numpy())


# ---- the comparison ------------------------------------------------------------------------------


def build(folder: Path) -> Path:
    import torch_xla

    package = Path(torch_xla.__file__).parent
    program, library = folder / "serve", package / "lib"
    compiler = os.environ.get("CXX", "c++")
    flags = ["-std=c++20", "-O2", f"-I{package / 'include'}", f"-L{library}"]
    libraries = ["-ltorch_xla_serve", f"-Wl,-rpath,{library}", "-o", program]
    subprocess.run([compiler, *flags, HERE / "serve.cpp", *libraries], check=True)
    return program


def milliseconds(command: list[object]) -> float:
    """The median of a process's runs, without its first ones."""
    done = subprocess.run(
        [str(part) for part in command], stdout=subprocess.PIPE, text=True, check=True
    )
    return statistics.median([float(line) for line in done.stdout.split()][WARMUP:])


def measure(name: str, server: Path, rounds: int, runs: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        subprocess.run([sys.executable, __file__, "--prepare", name, folder], check=True)
        outputs = {way: folder / way for way in ("python", "c++")}
        for output in outputs.values():
            output.mkdir()
        total = runs + WARMUP
        commands: dict[str, list[object]] = {
            "python": [sys.executable, __file__, "--launch", folder, total, outputs["python"]],
            "c++": [server, folder / "program", total, outputs["c++"], *inputs_in(folder)],
        }
        times: dict[str, list[float]] = {way: [] for way in commands}
        for _ in range(rounds):
            for way in random.sample(list(commands), len(commands)):
                times[way].append(milliseconds(commands[way]) / 1e3)
        match(name, *outputs.values())
    return {way: statistics.median(each) for way, each in times.items()}


def match(name: str, expected: Path, actual: Path) -> None:
    names = sorted(path.name for path in expected.iterdir())
    if names != sorted(path.name for path in actual.iterdir()) or not names:
        sys.exit(f"{name}: the two gave different numbers of results")
    furthest = 0.0
    for each in names:
        a, b = np.load(expected / each), np.load(actual / each)
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-5)
        furthest = max(furthest, float(np.abs(a - b).max(initial=0)))
    print(f"{name}: {len(names)} results match, largest difference {furthest:.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("programs", nargs="*", default=list(PROGRAMS), help=", ".join(PROGRAMS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--json")
    options = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        server = build(Path(folder))
        for name in options.programs:
            seconds = measure(name, server, options.rounds, options.runs)
            ratio = timing.report(name, "python", seconds)["c++"]
            results[name] = {**seconds, "ratio": ratio}
    timing.write_json(options.json, results)
    slow = [name for name, result in results.items() if result["ratio"] > LIMIT]
    if slow:
        sys.exit(f"slower than {LIMIT} x Python's launch: {', '.join(slow)}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--prepare"]:
        prepare(sys.argv[2], Path(sys.argv[3]))
    elif sys.argv[1:2] == ["--launch"]:
        launch(Path(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
    else:
        main()
