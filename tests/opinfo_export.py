"""How much of PyTorch's OpInfo database exports: of the float32 samples that torch.export accepts,
the share that torch_xla.stablehlo writes into a folder, reads again, and runs as the CPU does.

python tests/opinfo_export.py --ops 'add|mul' --limit 3      # samples per operator
python tests/opinfo_export.py --all                          # the whole database
"""

import argparse
import itertools
import re
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import opinfo_check as check
import torch
from torch import Tensor, nn
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils import _pytree as pytree


class Call(nn.Module):
    """One operator with a sample's arguments: the tensors among them are the module's."""

    def __init__(self, op: OpInfo, sample: SampleInput) -> None:
        super().__init__()
        self.op, self.sample = op.op, sample
        arguments = check.Arguments(sample, "cpu").fresh()
        self.leaves, self.tree = pytree.tree_flatten(arguments)
        self.places = [i for i, leaf in enumerate(self.leaves) if isinstance(leaf, Tensor)]

    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(self.leaves[place].detach().clone() for place in self.places)

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        leaves = list(self.leaves)
        for place, tensor in zip(self.places, tensors, strict=True):
            leaves[place] = tensor
        value, args, kwargs = pytree.tree_unflatten(leaves, self.tree)
        results, self.result_tree = pytree.tree_flatten(self.op(value, *args, **kwargs))
        return tuple(leaf for leaf in results if isinstance(leaf, Tensor))

    def essence(self, results: Any) -> Any:
        """Without what is arbitrary, such as the signs of eigenvectors, as the database sees it."""
        if self.result_tree.num_leaves != len(results):
            return tuple(results)
        result = pytree.tree_unflatten(list(results), self.result_tree)
        return self.sample.output_process_fn_grad(result)


def accepted(call: Call) -> Any:
    """The exported program, its inputs and the CPU's results; None where PyTorch refuses."""
    try:
        torch.manual_seed(0)
        expected = call(*call.tensors())
        program = torch.export.export(call, call.tensors(), strict=False)
        strided = all(tensor.layout == torch.strided for tensor in (*expected, *call.tensors()))
        return (program, expected) if strided and expected else None
    except Exception:
        return None


def outcome_of(op: OpInfo, sample: SampleInput) -> str | None:
    """ "" if it is the CPU's result, else what is wrong; None if it does not count."""
    from torch_xla import stablehlo

    call = Call(op, sample)
    given = accepted(call)
    if given is None:
        return None
    program, expected = given
    try:
        with tempfile.TemporaryDirectory() as folder:
            stablehlo.save_as_stablehlo(program, folder)
            module = stablehlo.StableHLOGraphModule.load(folder)
            actual = check.to_host(module(*call.tensors()))
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    if check.returns_uninitialised(op) or check.is_random(op):
        return ""
    try:
        check.check_metadata(list(actual), list(expected), "cpu")
    except check.Mismatch as mismatch:
        return f"wrong: {mismatch}"
    actual, expected = call.essence(actual), call.essence(expected)
    difference = check.describe_difference(actual, expected)
    if difference is None or _excusable(call, op, sample, actual, expected):
        return ""
    return f"wrong: {difference[:300]}"


def _excusable(call: Call, op: OpInfo, sample: SampleInput, actual: Any, expected: Any) -> bool:
    """As near to the result of more precision as the CPU's; or the CPU does not repeat itself."""
    torch.manual_seed(1)
    if not check.values_agree(call.essence(call(*call.tensors())), expected):
        return True
    precise = Call(op, sample)
    precise.leaves = pytree.tree_leaves(check.Arguments(sample, "cpu", check.MORE_PRECISE).fresh())
    try:
        exact = precise.essence(precise(*precise.tensors()))
        return check.as_precise_as(actual, expected, exact)
    except Exception:
        return False


def outcomes(names: Iterable[str], limit: int | None) -> Iterator[tuple[str, str]]:
    for name in names:
        op = check.FORMATTED_OPS[name]
        if not check.supports(op, "float32"):
            continue
        torch.manual_seed(0)
        try:
            samples = op.sample_inputs("cpu", torch.float32)
            considered = None if limit is None else check.SAMPLES_CONSIDERED
            chosen = check.spread(list(itertools.islice(samples, considered)), limit)
        except Exception:
            continue  # the database cannot make any
        for sample in chosen:
            outcome = outcome_of(op, sample)
            if outcome is not None:
                yield name, outcome


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--ops", default="", help="regular expression for operator names")
    parser.add_argument("--limit", type=int, default=1, help="samples per operator")
    parser.add_argument("--all", action="store_true", help="every sample of the database")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    names = [name for name in check.FORMATTED_OPS if re.search(options.ops, name)]
    counts: Counter[str] = Counter()
    for name, outcome in outcomes(names, None if options.all else options.limit):
        kind = "exported" if not outcome else "wrong" if outcome.startswith("wrong") else "refused"
        counts[kind] += 1
        if outcome:
            print(f"{name}: {outcome}", flush=True)
    print(f"{counts['exported'] / max(1, counts.total()):.1%} of {counts.total()}: {dict(counts)}")


if __name__ == "__main__":
    main()
