"""Where do two runs of a model begin to differ? Each saves tensors on its way; then the folders are
compared: `python -m torch_xla.debug.model_comparator FOLDER FOLDER`."""

import argparse
import os
import re
import sys
import traceback
from collections import Counter
from pathlib import Path

import torch

from torch_xla import runtime

_FILE = re.compile(r"(.*)\.(\d+)")

_save_dir: str | None = None
_step: int | None = None
_counts: Counter[str] = Counter()


def configure(save_dir: str | None) -> None:
    """Where this run saves its tensors (default: the environment variable MODELCMP_SAVEDIR)."""
    global _save_dir, _step
    _save_dir, _step = save_dir, None
    _counts.clear()


def save(name: str | None, tensor: torch.Tensor, step: int | None = None) -> torch.Tensor:
    """Saves `tensor` and returns it. Without a folder (see `configure`) nothing is saved. The name
    is that of the calling line if it is None; equal names are numbered, anew in each step."""
    global _step
    folder = _save_dir or os.environ.get("MODELCMP_SAVEDIR")
    if not folder or runtime.global_ordinal() != 0:
        return tensor
    if step is not None and step != _step:
        _step = step
        _counts.clear()
    directory = Path(folder) if step is None else Path(folder) / f"step-{step}"
    directory.mkdir(parents=True, exist_ok=True)
    name = name or _calling_line()
    torch.save(tensor.detach().cpu(), directory / f"{name}.{_counts[name]}")
    _counts[name] += 1
    return tensor


def _calling_line() -> str:
    frames = traceback.extract_stack(limit=4)
    frame = next(frame for frame in reversed(frames) if frame.filename != __file__)
    return f"{Path(frame.filename).name}.l{frame.lineno}"


def compare_tensors(
    tensor1: torch.Tensor,
    tensor2: torch.Tensor,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    max_diffs: int = 25,
) -> str:
    """The largest differences as text; empty if there is none."""
    if tensor1.shape != tensor2.shape:
        return f"Tensors have different shape: {list(tensor1.shape)} vs. {list(tensor2.shape)}\n"
    wide = torch.complex128 if tensor1.is_complex() else torch.float64
    first, second = tensor1.detach().cpu().to(wide), tensor2.detach().cpu().to(wide)
    error = (first - second).abs()
    allowed = (torch.maximum(first.abs(), second.abs()) * rtol).clamp(min=atol)
    places = (error > allowed).nonzero()
    order = error[tuple(places.T)].argsort(descending=True)
    lines = []
    for place in places[order[:max_diffs]].tolist():
        index = tuple(place)
        values = f"{first[index].item()} vs. {second[index].item()}"
        lines.append(f"{place}: {values}\terror={error[index].item()}\n")
    if len(places) > max_diffs:
        lines.append(f"... and {len(places) - max_diffs} more differences\n")
    return "".join(lines)


def tensor_file_compare(
    path1: str, path2: str, rtol: float = 1e-05, atol: float = 1e-08, max_diffs: int = 25
) -> str:
    """The same for two files that `save` wrote."""
    first, second = (torch.load(path, weights_only=True) for path in (path1, path2))
    report = compare_tensors(first, second, rtol, atol, max_diffs)
    if not report:
        return ""
    path = Path(path1)
    matched = _FILE.fullmatch(path.name)
    name, number = matched.groups() if matched else (path.name, "0")
    step = f" at {path.parent.name}" if path.parent.name.startswith("step-") else ""
    head = f'Changes in saved tensor "{name}" with id={number}{step}\n'
    return head + "".join(f"  {line}\n" for line in report.splitlines())


def compare(
    save_dir1: str, save_dir2: str, rtol: float = 1e-05, atol: float = 1e-08, max_diffs: int = 25
) -> str:
    """What differs between two folders; empty if nothing does."""
    first, second = _saved_in(save_dir1), _saved_in(save_dir2)
    report = [f"Mismatch: {name} not in {save_dir2}\n" for name in sorted(first - second)]
    report += [f"Mismatch: {name} not in {save_dir1}\n" for name in sorted(second - first)]
    for name in sorted(first & second):
        paths = (os.path.join(save_dir1, name), os.path.join(save_dir2, name))
        report.append(tensor_file_compare(*paths, rtol, atol, max_diffs))
    return "".join(report)


def _saved_in(folder: str) -> set[str]:
    files = (path for path in Path(folder).rglob("*") if _FILE.fullmatch(path.name))
    return {str(path.relative_to(folder)) for path in files if path.is_file()}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m torch_xla.debug.model_comparator")
    parser.add_argument("savedir1", metavar="SAVEDIR1", help="folder of the first run")
    parser.add_argument("savedir2", metavar="SAVEDIR2", help="folder of the second run")
    parser.add_argument("--rtol", type=float, default=1e-05)
    parser.add_argument("--atol", type=float, default=1e-08)
    parser.add_argument("--max_diffs", type=int, default=25)
    args = parser.parse_args()
    report = compare(args.savedir1, args.savedir2, args.rtol, args.atol, args.max_diffs)
    print(report, end="", file=sys.stderr)
    return int(bool(report))


if __name__ == "__main__":
    sys.exit(main())
