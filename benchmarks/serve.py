"""Latency of exported programs: served from C++ (torch_xla/serve.h), as a ratio to Python's launch
of the same folder (StableHLOGraphModule), from inputs to results in the host's memory.

Both run in a process of their own, one run of each in turn, so that a busy moment of the machine
hits both; what is compared is the median of the ratios of these pairs. The time of all processors
is compared, too: it tells more work from waiting for a processor. Their results must match.
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
from timing import Worker, write_json

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


def launch(folder: Path, output: Path) -> None:
    """Python's launches, as the C++ worker's."""
    import torch
    from torch_xla import stablehlo

    module = stablehlo.StableHLOGraphModule.load(folder / "program")
    inputs = [torch.from_numpy(np.load(path)) for path in inputs_in(folder)]
    for _ in sys.stdin:
        start, worked = time.perf_counter(), time.process_time()
        returned = module.evaluate_flat(inputs)
        results = [result.cpu() for result in torch.utils._pytree.tree_leaves(returned)]
        work, taken = time.process_time() - worked, time.perf_counter() - start
        print(taken * 1e3, work * 1e3, flush=True)
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


def run(worker: Worker) -> tuple[float, float]:
    """Seconds of time and of processors."""
    time, work = (float(word) / 1e3 for word in worker.ask().split())
    return time, work


def measure(name: str, server: Path, runs: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        subprocess.run([sys.executable, __file__, "--prepare", name, folder], check=True)
        outputs = {way: folder / way for way in ("python", "c++")}
        for output in outputs.values():
            output.mkdir()
        workers = {
            "python": Worker(sys.executable, __file__, "--launch", folder, outputs["python"]),
            "c++": Worker(server, folder / "program", outputs["c++"], *inputs_in(folder)),
        }
        for worker in workers.values():
            for _ in range(WARMUP):
                run(worker)
        taken: dict[str, list[tuple[float, float]]] = {way: [] for way in workers}
        for _ in range(runs):
            for way in random.sample(list(workers), len(workers)):
                taken[way].append(run(workers[way]))
        for worker in workers.values():
            worker.end()
        difference = match(name, *outputs.values())
    pairs = list(zip(taken["python"], taken["c++"], strict=True))
    return {
        **{way: statistics.median(time for time, _ in runs) for way, runs in taken.items()},
        "ratio": statistics.median(served[0] / launched[0] for launched, served in pairs),
        "ratio of processors": statistics.median(b[1] / a[1] for a, b in pairs if a[1] > 0),
        "largest difference": difference,
    }


def match(name: str, expected: Path, actual: Path) -> float:
    names = sorted(path.name for path in expected.iterdir())
    if names != sorted(path.name for path in actual.iterdir()) or not names:
        sys.exit(f"{name}: the two gave different numbers of results")
    furthest = 0.0
    for each in names:
        a, b = np.load(expected / each), np.load(actual / each)
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-5)
        furthest = max(furthest, float(np.abs(a - b).max(initial=0)))
    return furthest


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("programs", nargs="*", default=list(PROGRAMS), help=", ".join(PROGRAMS))
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--json")
    options = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        server = build(Path(folder))
        for name in options.programs:
            found = results[name] = measure(name, server, options.runs)
            print(
                f"{name:9s} python {found['python'] * 1e3:8.2f} ms"
                f"   c++ {found['c++'] * 1e3:8.2f} ms   ratio {found['ratio']:.3f}"
                f"   of processors {found['ratio of processors']:.3f}"
                f"   largest difference {found['largest difference']:.1e}",
                flush=True,
            )
    write_json(options.json, results)
    slow = [name for name, result in results.items() if result["ratio"] > LIMIT]
    if slow:
        sys.exit(f"slower than {LIMIT} x Python's launch: {', '.join(slow)}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--prepare"]:
        prepare(sys.argv[2], Path(sys.argv[3]))
    elif sys.argv[1:2] == ["--launch"]:
        launch(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        main()
