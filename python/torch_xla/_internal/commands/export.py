"""`python -m torch_xla export` and `run`: programs of torch.export as StableHLO."""

import argparse
import sys
from pathlib import Path
from typing import Any


def add_to(commands: Any) -> None:
    export = commands.add_parser("export", help="a torch.export file (.pt2) as StableHLO")
    export.add_argument("program", help="what torch.export.save wrote")
    export.add_argument("folder", help="where StableHLO and weights go")
    export.add_argument("--weights", choices=("npy", "safetensors"), default="npy")
    export.set_defaults(run=run_export)
    run = commands.add_parser("run", help="run what export wrote")
    run.add_argument("folder")
    run.add_argument("inputs", nargs="*", help="arguments as .npy files, in their order")
    run.add_argument("--output", help="a folder for the results, as .npy files")
    run.set_defaults(run=run_program)


def run_export(options: argparse.Namespace) -> int:
    import torch

    from torch_xla.stablehlo import StableHLOExportOptions, save_as_stablehlo

    program = torch.export.load(options.program)
    save_as_stablehlo(
        program, options.folder, StableHLOExportOptions(weights_format=options.weights)
    )
    print(f"wrote {options.folder}")
    return 0


def run_program(options: argparse.Namespace) -> int:
    import numpy as np
    import torch
    from torch.utils import _pytree

    from torch_xla.stablehlo import StableHLOGraphModule

    module = StableHLOGraphModule.load(options.folder)
    wanted = module.argument_count()
    if len(options.inputs) != wanted:
        print(f"{options.folder} takes {wanted} inputs, got {len(options.inputs)}", file=sys.stderr)
        return 1
    inputs = [torch.from_numpy(np.load(path, allow_pickle=False)) for path in options.inputs]
    results = _pytree.tree_leaves(module.evaluate_flat(inputs))
    for number, result in enumerate(results):
        host = result.cpu()
        print(f"output {number}: {str(host.dtype).removeprefix('torch.')}{list(host.shape)}")
        if options.output is not None:
            folder = Path(options.output)
            folder.mkdir(parents=True, exist_ok=True)
            np.save(folder / f"{number}.npy", host.numpy())
        elif host.numel() <= 1000:
            print(host)
    return 0
