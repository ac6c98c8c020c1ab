"""What a program costs, where the plugin does not say: operations from its StableHLO, bytes from
its HLO after the optimisations. Estimates: the body of a loop counts once."""

import functools
import math
import re

_TRANSCENDENTAL = frozenset(
    "cbrt cosine erf erf_inv exponential exponential_minus_one lgamma log log_plus_one logistic "
    "power rsqrt sine sqrt tan tanh".split()
)
_ARITHMETIC = frozenset(
    "abs add and atan2 clamp compare divide maximum minimum multiply negate not or remainder "
    "select sign subtract xor".split()
)
_FREE = frozenset("bitcast constant get-tuple-element parameter tuple".split())
_OPERATION = re.compile(r"= (?:stablehlo|chlo)\.(\w+)")
_TENSOR = re.compile(r"tensor<((?:\d+x)*)[a-z]")
_INSTRUCTION = re.compile(r"%(\S+) = (\(.*?\)|\S+) ([\w-]+)\((.*?)\)")
_SHAPE = re.compile(r"(\w+)\[([\d,]*)\]")


def estimate(stablehlo: str, hlo: str) -> dict[str, float]:
    """By XLA's names."""
    flops, transcendentals = _operations(stablehlo)
    return {
        "flops": float(flops),
        "transcendentals": float(transcendentals),
        "bytes accessed": float(_bytes_accessed(hlo)),
    }


def _operations(module: str) -> tuple[int, int]:
    bodies: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in module.splitlines():
        if found := re.match(r"  func\.func \w+ @([\w.$]+)", line):
            lines = bodies[found[1]] = []
        lines.append(line)

    @functools.cache
    def total(function: str) -> tuple[int, int]:
        costs = []
        for line in bodies[function][1:]:
            if called := re.search(r"(?:func\.call|decomposition =) @([\w.$]+)", line):
                costs.append(total(called[1]))
            elif operation := _OPERATION.search(line):
                costs.append(_cost(operation[1], line))
        return sum(cost[0] for cost in costs), sum(cost[1] for cost in costs)

    return total("main")


def _cost(operation: str, line: str) -> tuple[int, int]:
    sizes = [[int(size) for size in dims.split("x")[:-1]] for dims in _TENSOR.findall(line)]
    if operation == "dot_general":
        contracted = re.search(r"contracting_dims = \[([\d, ]*)\]", line)
        dims = contracted[1].split(", ") if contracted and contracted[1] else []
        return 2 * math.prod(sizes[-1]) * math.prod(sizes[0][int(dim)] for dim in dims), 0
    if operation == "convolution":
        kernel = re.search(r"\]x\[([\w, ]*)\]->", line)
        outputs = sizes[1][kernel[1].split(", ").index("o")] if kernel else 1
        return 2 * math.prod(sizes[-1]) * math.prod(sizes[1]) // max(outputs, 1), 0
    if operation == "reduce":
        return math.prod(sizes[0]), 0
    if operation in _TRANSCENDENTAL:
        return 0, math.prod(sizes[-1])
    return (math.prod(sizes[-1]) if operation in _ARITHMETIC else 0), 0


def _bytes_accessed(hlo: str) -> int:
    sizes: dict[str, int] = {}
    accessed = 0
    for line in hlo[hlo.find("\nENTRY") :].splitlines():
        if found := _INSTRUCTION.search(line):
            name, kind, operation, operands = found.groups()
            sizes[name] = sum(_nbytes(*shape) for shape in _SHAPE.findall(kind))
            if operation not in _FREE:
                read = re.findall(r"%([^\s,)]+)", operands)
                accessed += sizes[name] + sum(sizes.get(operand, 0) for operand in read)
    return accessed


def _nbytes(kind: str, dims: str) -> int:
    bits = 8 if kind == "pred" else int("".join(re.findall(r"\d+", kind)[:1]) or 0)
    return math.prod(int(dim) for dim in dims.split(",") if dim) * bits // 8
