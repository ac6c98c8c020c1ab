"""`python -m torch_xla export` and `run`: programs of torch.export as StableHLO."""

import argparse
from pathlib import Path
from typing import Any

from torch_xla._internal.commands.refusal import Refusal, refused


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

    if not Path(options.program).is_file():
        raise Refusal(f"there is no file {options.program}")
    try:
        program = torch.export.load(options.program)
    except Exception as error:
        raise Refusal(
            f"{options.program} is not what torch.export.save writes: export the model with "
            "torch.export.export, and save that"
        ) from error
    with refused(f"export {options.program} to {options.folder}"):
        save_as_stablehlo(
            program, options.folder, StableHLOExportOptions(weights_format=options.weights)
        )
    print(f"wrote {options.folder}")
    return 0


def run_program(options: argparse.Namespace) -> int:
    import numpy as np
    from torch.utils import _pytree

    from torch_xla._internal.stablehlo_bundle import as_array
    from torch_xla.stablehlo import StableHLOGraphModule

    with refused(f"load {options.folder}"):
        module = StableHLOGraphModule.load(options.folder)
    wanted = module.argument_count()
    if len(options.inputs) != wanted:
        raise Refusal(f"{options.folder} takes {wanted} inputs, got {len(options.inputs)}")
    inputs = [_read_array(path) for path in options.inputs]
    with refused(f"run {options.folder}"):
        results = [result.cpu() for result in _pytree.tree_leaves(module.evaluate_flat(inputs))]
    for number, host in enumerate(results):
        print(f"output {number}: {str(host.dtype).removeprefix('torch.')}{list(host.shape)}")
        if options.output is not None:
            with refused(f"write to {options.output}"):
                folder = Path(options.output)
                folder.mkdir(parents=True, exist_ok=True)
                np.save(folder / f"{number}.npy", as_array(host))
        elif host.numel() <= 1000:
            print(host)
    return 0


def _read_array(path: str) -> Any:
    import numpy as np
    import torch

    if not Path(path).is_file():
        raise Refusal(f"there is no file {path}")
    try:
        with open(path, "rb") as file:
            return torch.from_numpy(np.lib.format.read_array(file, allow_pickle=False))
    except (ValueError, TypeError, EOFError) as error:
        raise Refusal(
            f"{path} is not an array of numbers as numpy.save writes it: {error}"
        ) from error
