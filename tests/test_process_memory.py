"""What a process that trains a large model needs in all: what its values need, and little more.
CPU-eager PyTorch needs as much."""

import pytest
from process import output_of

pytestmark = pytest.mark.host_only("elsewhere the process's memory is not the device's")

# Prints megabytes: of the parameters, and what the process had at once more than before them.
PROGRAM = """
import sys, torch, torch_xla
from torch import nn

def at_once():
    with open("/proc/self/status") as file:
        return int(file.read().split("VmHWM:")[1].split()[0]) / 1024

torch.ones(1, device="xla").cpu()
before = at_once()
layers = [layer for _ in range(16) for layer in (nn.Linear(2048, 2048, bias=False), nn.GELU())]
model = nn.Sequential(*layers).to("xla")
optimizer = getattr(torch.optim, "{optimizer}")(model.parameters(), lr=1e-3)

def step(x):
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss

step = {step}
for _ in range(3):
    step(torch.randn(16, 2048).to("xla")).item()
print(sum(p.numel() for p in model.parameters()) * 4 / 2**20, at_once() - before)
"""
MODES = {
    "interpreted": ("step", {"TORCH_XLA_TIERS": "never"}),
    "eager": ("(torch_xla.experimental.eager_mode(True), step)[1]", {}),
    "compiled at once": ("torch_xla.compile(step, tiers='off')", {}),
    "taken over": ("torch_xla.compile(step)", {"TORCH_XLA_TIER_RUNS": "1"}),
}


# Of Adam these are parameters, gradients and two moments.
@pytest.mark.parametrize(
    ("mode", "optimizer", "copies"),
    [*((mode, "Adam", 4) for mode in MODES), ("interpreted", "SGD", 2)],
)
def test_a_training_process_needs_what_its_values_need(
    mode: str, optimizer: str, copies: int
) -> None:
    step, environment = MODES[mode]
    program = PROGRAM.replace("{optimizer}", optimizer).replace("{step}", step)
    parameters, needed = map(float, output_of(program, **environment).split())
    print(f"{mode}, {optimizer}: {needed:.0f} MB for {copies} x {parameters:.0f}")
    assert needed < copies * parameters * 1.15 + 100


def overcommits() -> bool:
    with open("/proc/sys/vm/overcommit_memory") as file:
        return file.read().strip() == "1"


@pytest.mark.skipif(overcommits(), reason="the kernel is told to promise any amount of memory")
def test_more_memory_than_there_is_is_refused() -> None:
    """When it is asked for, before any of it is touched."""
    program = """
import os
torch.ones(1, device="xla").cpu()
there_is = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
try:
    torch.empty(3 * there_is, dtype=torch.uint8)
except RuntimeError as error:
    print("memory" in str(error))
"""
    assert output_of(program).split() == ["True"]
