"""Pictures of which device holds what of a tensor."""

import os
import re
from collections import defaultdict
from typing import Any

import numpy as np
import torch

from torch_xla import _XLAC, runtime
from torch_xla.distributed.spmd.mesh import ShardingError

_Range = tuple[int, int]


class Drawing(str):
    """What was printed; in notebooks, the picture."""

    svg = ""

    def _repr_html_(self) -> str:
        return self.svg


def visualize_tensor_sharding(
    t: torch.Tensor, file: "str | os.PathLike[str] | None" = None, **_: Any
) -> str:
    """Prints, and returns, which devices hold which part of `t`, which has one or two dimensions.
    `file`: a picture of it, as SVG."""
    sharding = _XLAC._get_xla_op_sharding(t)
    if sharding is None:
        raise ShardingError("the tensor is not sharded: call mark_sharding, or sync first")
    return _show(sharding, file, tuple(t.shape))


def visualize_sharding(
    sharding: str, file: "str | os.PathLike[str] | None" = None, **_: Any
) -> str:
    """The same for a text such as "{devices=[2,4]0,1,2,3,4,5,6,7}"."""
    return _show(_XLAC.OpSharding.parse(construct_v1_sharding_str(sharding)), file, None)


def construct_v1_sharding_str(sharding: str | torch.Tensor) -> str:
    """XLA's short form "{devices=[2,4]<=[8]}", or a tensor's sharding, with its devices written
    out; others as they are."""
    if isinstance(sharding, torch.Tensor):
        sharding = str(_XLAC._get_xla_sharding_spec(sharding))
    found = re.fullmatch(
        r"\{devices=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?(.*)\}", sharding.strip()
    )
    if found is None:
        return sharding
    tiles, dims, order, rest = found.groups()
    sizes = [int(size) for size in dims.split(",")]
    devices = np.arange(int(np.prod(sizes))).reshape(sizes)
    if order is not None:
        devices = devices.transpose([int(axis) for axis in order.split(",")])
    return f"{{devices=[{tiles}]{','.join(map(str, devices.flatten()))}{rest}}}"


def _show(sharding: Any, file: Any, shape: tuple[int, ...] | None) -> str:
    rows, columns, cells = _cells(sharding, shape)
    text = Drawing(_table(rows, columns, cells))
    text.svg = _svg(rows, columns, cells)
    print(text)
    if file is not None:
        with open(file, "w") as out:
            out.write(text.svg)
    return text


def _cells(
    sharding: Any, shape: tuple[int, ...] | None
) -> tuple[list[str], list[str], dict[tuple[int, int], str]]:
    """Labels of the rows and columns of tiles, and the devices of each tile."""
    count = _XLAC.device_count()
    tiles = [1, 1] if sharding.is_replicated else list(sharding.tiles)
    rank = len(shape) if shape is not None else len(tiles)
    if rank > 2 and any(tile > 1 for tile in tiles[: rank - 2]):
        raise ShardingError(f"a sharding of {rank} dimensions cannot be drawn: {sharding}")
    if rank == 1:
        tiles = [1, *tiles[-1:]]
    tiles = tiles[-2:]
    devices = list(range(count)) if sharding.is_replicated else sharding.devices
    copies = len(devices) // (tiles[0] * tiles[1])
    held: dict[tuple[int, int], list[int]] = defaultdict(list)
    for position, device in enumerate(devices):
        held[divmod(position // copies, tiles[1])].append(device)
    sizes = (1, *shape)[-2:] if shape is not None else (None, None)
    kind = runtime.device_type()
    names = {
        tile: f"{kind} " + ",".join(str(device) for device in sorted(group))
        for tile, group in held.items()
    }
    return _labels(sizes[0], tiles[0]), _labels(sizes[1], tiles[1]), names


def _labels(size: int | None, tiles: int) -> list[str]:
    if size is None:
        return [str(tile) for tile in range(tiles)]
    piece = -(-size // tiles)
    return [f"{min(i * piece, size)}:{min((i + 1) * piece, size)}" for i in range(tiles)]


def _table(rows: list[str], columns: list[str], cells: dict[tuple[int, int], str]) -> str:
    width = max(map(len, [*cells.values(), *columns])) + 2
    margin = max(map(len, rows)) + 1
    line = " " * margin + "+" + ("-" * width + "+") * len(columns)
    lines = [" " * (margin + 1) + " ".join(label.center(width) for label in columns), line]
    for r, label in enumerate(rows):
        row = "|".join(cells[r, c].center(width) for c in range(len(columns)))
        lines += [f"{label.rjust(margin - 1)} |{row}|", line]
    return "\n".join(text.rstrip() for text in lines)


def _svg(rows: list[str], columns: list[str], cells: dict[tuple[int, int], str]) -> str:
    cell_width, cell_height, margin = 120, 48, 64
    width, height = margin + cell_width * len(columns), margin + cell_height * len(rows)
    hues = {name: 360 * i // len(set(cells.values())) for i, name in enumerate(cells.values())}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="13" text-anchor="middle">'
    ]
    for (row, column), name in cells.items():
        x, y = margin + column * cell_width, margin + row * cell_height
        parts.append(
            f'<rect x="{x}" y="{y}" width="{cell_width}" height="{cell_height}" '
            f'fill="hsl({hues[name]},60%,80%)" stroke="#444"/>'
            f'<text x="{x + cell_width // 2}" y="{y + cell_height // 2 + 5}">{name}</text>'
        )
    for column, label in enumerate(columns):
        x = margin + column * cell_width + cell_width // 2
        parts.append(f'<text x="{x}" y="{margin - 10}">{label}</text>')
    for row, label in enumerate(rows):
        y = margin + row * cell_height + cell_height // 2 + 5
        parts.append(f'<text x="{margin // 2}" y="{y}">{label}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
