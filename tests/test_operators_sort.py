"""Sorting as the compiler does it. The CPU platform calls PyTorch's kernels where it can."""

import pytest

PROGRAM = """
import torch, torch_xla

nan, inf = float("nan"), float("inf")
# No two elements of a row are equal: ties may be broken in any way.
special = torch.tensor([[3.0, nan, 1.0, -0.5, inf], [nan, -inf, 2.0, 0.0, 5.0]])
samples = [special, special.t().contiguous(), torch.randperm(60).view(4, 15),
           torch.randperm(200).double(), torch.randperm(12).view(3, 4).bfloat16()]


def results(t):
    found = [torch.tensor(2.0, device=t.device).sort()]
    found += [t.flatten().median(), t.flatten().nanmedian()]
    for dim in range(t.dim()):
        middle = (t.size(dim) + 1) // 2
        found += [t.sort(dim), t.sort(dim, descending=True), t.argsort(dim, descending=True)]
        found += [t.topk(1, dim), t.topk(middle, dim, largest=False), t.kthvalue(middle, dim)]
        found += [t.median(dim, keepdim=True), t.nanmedian(dim)]
    return [x for result in found for x in (result if isinstance(result, tuple) else [result])]


equal = torch.tensor([2, 1, 2, 1, 2, 1] * 40)
assert torch.equal(equal.to("xla").sort(stable=True)[1].cpu(), equal.sort(stable=True)[1])
for sample in samples:
    for wanted, got in zip(results(sample), results(sample.to("xla")), strict=True):
        torch.testing.assert_close(got.cpu(), wanted, rtol=0, atol=0, equal_nan=True)
import torch_xla.debug.metrics as met
print(sorted(name for name in met.counter_names() if name.startswith("aten::")))
"""


@pytest.mark.parametrize("host_calls", ["0", "1"])
def test_sorting(fresh_python, host_calls: str) -> None:
    fallbacks = fresh_python(PROGRAM, TORCH_XLA_HOST_CALLS=host_calls)
    assert fallbacks == "[]"
