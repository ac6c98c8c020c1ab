"""Operators without a lowering, where no CPU kernel can run inside a program: PyTorch's
decompositions, which Python runs once per kind of call."""

from collections.abc import Callable

PROGRAM = """
import torch, torch_xla
import torch.nn.functional as F
import torch_xla.debug.metrics as metrics
from torch_xla.experimental.assume_pure import assume_pure

x = torch.rand(3, 4)
grid = torch.rand(1, 2, 2, 2) - 0.5
classes = torch.tensor([0, 3, 1])

def margin(t):
    return F.multi_margin_loss(t, classes.to(t.device))

def sampled(t):
    return F.grid_sample(t[None, None], grid.to(t.device), align_corners=False)

def normalised(t):
    return torch.renorm(t, 2, 0, 1.0)

def in_place(t):
    return t.clone().renorm_(2, 0, 0.5)

def by_itself(t):  # PyTorch decomposes it into itself
    return torch.igamma(t, t)

# First called within a trace, with a tensor that the trace makes.
inside = assume_pure(lambda t: torch.renorm(t + 1, 2, 0, 1.0))
torch.testing.assert_close(inside(x.to("xla")).cpu(), torch.renorm(x + 1, 2, 0, 1.0))

for function in (margin, sampled, normalised, in_place, by_itself):
    wanted = function(x)
    for _ in range(3):
        torch.testing.assert_close(function(x.to("xla")).cpu(), wanted)

def gradient(function, device):
    leaf = x.clone().to(device).requires_grad_()
    function(leaf).sum().backward()
    return leaf.grad.cpu()

for function in (margin, sampled):
    for _ in range(2):
        torch.testing.assert_close(gradient(function, "xla"), gradient(function, "cpu"))

def counted(name, what):
    return metrics.counter_value(f"pure::aten::{name}::{what}") or 0

rows = torch.rand(40, 4)
on_device = rows.to("xla")
for i in range(20):  # where its operand begins makes no other kind of call
    torch.testing.assert_close(normalised(on_device[i : i + 3]).cpu(), normalised(rows[i : i + 3]))

for name in ("multi_margin_loss", "grid_sampler_2d", "renorm"):
    print(name, counted(name, "trace"), counted(name, "hit") > 0)
# The metrics do not call them fallbacks.
print(*(metrics.counter_value(f"{kind}::renorm") is not None for kind in ("xla", "aten")))
"""

MASKS = """
import torch, torch_xla

def written(device):
    x = torch.arange(24.0).reshape(4, 3, 2).to(device)
    rows, one, few = (torch.tensor(bits, device=device) > 0 for bits in
        ([1, 0, 0, 1], [0, 0, 1, 0], [[1, 0, 1], [0, 0, 0], [0, 1, 0], [0, 0, 0]]))
    columns, first, three = (torch.tensor(i, device=device) for i in ([1, 2], [1], [0, 1, 0]))
    four, two = torch.tensor([[5.0, 6], [7, 8]]), torch.tensor([[5.0, 6, 1], [7, 8, 2]])
    calls = [
        ([rows, columns], torch.tensor(5.0)), ([rows, columns], four), ([one, columns], four),
        ([rows, first], torch.tensor(5.0)), ([rows, first], four), ([rows, None, first - 1], two),
        ([few, three], two[0]), ([few, first], two[1]), ([few, first], torch.tensor(9.0)),
        ([rows, few[0]], torch.tensor(5.0)), ([rows, columns.expand(3, 2)], torch.tensor(3.0)),
        ([rows & ~rows, first], torch.tensor(5.0)),
    ]
    put = torch.ops.aten.index_put
    return [put(x, i, v.to(device), add).cpu() for i, v in calls for add in (False, True)]

torch.testing.assert_close(written("xla"), written("cpu"))
"""


def test_masks_beside_other_indices(fresh_python: Callable[..., str]) -> None:
    fresh_python(MASKS, TORCH_XLA_HOST_CALLS="0")


def test_each_kind_of_call_is_decomposed_once(fresh_python: Callable[..., str]) -> None:
    counted = fresh_python(PROGRAM, TORCH_XLA_HOST_CALLS="0").splitlines()
    assert counted == [
        "multi_margin_loss 2 True",  # without and with gradients
        "grid_sampler_2d 2 True",
        "renorm 2 True",  # two largest norms
        "True False",
    ]
