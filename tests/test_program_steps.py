"""What the program of a training step does to memory, at the size of models that people train."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest

# A step of linear layers, convolutions of one pixel and of more, and norms. Prints the sizes of its
# parameters, and two losses.
STEP = """
import json
import torch
import torch_xla
from torch import nn

whole = HOW == "traced"
torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
    nn.Conv2d(64, 128, 1), nn.ReLU(), nn.Conv2d(128, 64, 3, stride=2, padding=1), nn.Flatten(),
    nn.Linear(64 * 8 * 8, 256), nn.GELU(), nn.LayerNorm(256),
    nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256), nn.Linear(256, 10),
).to("xla")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
x, y = torch.randn(64, 3, 16, 16).to("xla"), torch.randint(10, (64,)).to("xla")

def step():
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss

step = torch_xla.compile(step, assume_pure=whole)
losses = [step().item() for _ in range(6)]
print(json.dumps([[list(p.shape) for p in model.parameters() if p.dim() > 1], losses]))
"""


@pytest.mark.parametrize("how", ["traced", "compiled"])
def test_parameters_are_updated_where_they_are(
    how: str, tmp_path: Path, fresh_python: Callable[..., str]
) -> None:
    """The gradient of a layer's input reads its weights, and is not in the way of their update."""
    program = STEP.replace("HOW", repr(how))
    shapes, losses = json.loads(
        fresh_python(program, TORCH_XLA_TIERS="off", TORCH_XLA_DUMP_DIR=str(tmp_path),
                     TORCH_XLA_CACHE_DIR=str(tmp_path / "cache"))
    )  # fmt: skip
    assert losses[-1] < losses[0]
    newest = max(tmp_path.glob("*.optimized.hlo"), key=lambda path: path.stat().st_mtime_ns)
    hlo = newest.read_text()
    sizes = {f"f32[{','.join(map(str, shape))}]" for shape in shapes}
    sizes |= {f"f32[{numel}]" for numel in map(math.prod, shapes) if numel >= 1 << 12}
    copies = [
        line.split("metadata")[0].strip()
        for line in hlo.splitlines()
        if " copy(" in line and "ROOT" not in line and line.split()[2].split("{")[0] in sizes
    ]
    assert not copies


# A step of `DEPTH` layers, each of which adds to what the layers before it made.
DEEP = """
import torch
import torch_xla
from torch import nn

class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.made = nn.Linear(64, 64), nn.Linear(64, 64)
    def forward(self, x):
        gate = torch.sigmoid(self.gate(x))
        return gate * torch.relu(self.made(x)) + (1 - gate) * x

def encoder():
    return nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=True)

torch.manual_seed(0)
model = nn.Sequential(*[(encoder if KIND == "norms" else Gated)() for _ in range(DEPTH)])
x = torch.randn(4, 32, 64)
wanted = model(x).square().mean()
wanted.backward()
wanted = [p.grad for p in model.parameters()]
model.zero_grad()
model.to("xla")
model(x.to("xla")).square().mean().backward()
torch_xla.sync()
for p, grad in zip(model.parameters(), wanted):
    torch.testing.assert_close(p.grad.cpu(), grad, rtol=1e-3, atol=1e-5)
"""


@pytest.mark.parametrize("kind", ["norms", "gates"])
def test_programs_grow_with_their_depth_and_not_with_its_square(
    kind: str, tmp_path: Path, fresh_python: Callable[..., str]
) -> None:
    def lines(depth: int) -> int:
        folder = tmp_path / str(depth)
        program = DEEP.replace("KIND", repr(kind)).replace("DEPTH", str(depth))
        fresh_python(program, TORCH_XLA_TIERS="off", TORCH_XLA_DUMP_DIR=str(folder),
                     TORCH_XLA_CACHE_DIR=str(tmp_path / "cache"))  # fmt: skip
        return max(len(path.read_text().splitlines()) for path in folder.glob("*.optimized.hlo"))

    assert lines(16) < 2.3 * lines(8)


# Layers whose channels lie last, as those of ConvNeXt and of models that were given the format do.
IMAGES = """
import torch
import torch_xla
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 48, 3, padding=1), nn.BatchNorm2d(48), nn.GELU(), nn.Conv2d(48, 96, 1),
    nn.BatchNorm2d(96), nn.SiLU(), nn.Conv2d(96, 96, 3, 2, 1, groups=96), nn.Conv2d(96, 48, 1, 2),
    nn.GELU(), nn.Conv2d(48, 64, 1),
).to(memory_format=torch.channels_last)
x = torch.randn(8, 3, 32, 32).to(memory_format=torch.channels_last)
y = model(x)
grad = torch.randn_like(y)
y.backward(grad)
wanted = [p.grad for p in model.parameters()]
model.zero_grad()
model.to("xla")
model(x.to("xla")).backward(grad.to("xla"))
torch_xla.sync()
for p, grad in zip(model.parameters(), wanted):
    torch.testing.assert_close(p.grad.cpu(), grad, rtol=1e-3, atol=1e-3)
"""


def test_images_whose_channels_lie_last_are_not_turned(
    tmp_path: Path, fresh_python: Callable[..., str]
) -> None:
    fresh_python(IMAGES, TORCH_XLA_TIERS="off", TORCH_XLA_DUMP_DIR=str(tmp_path),
                 TORCH_XLA_CACHE_DIR=str(tmp_path / "cache"))  # fmt: skip
    newest = max(tmp_path.glob("*.optimized.hlo"), key=lambda path: path.stat().st_mtime_ns)
    turned = re.findall(r"= f32\[([\d,]+)\]\S* transpose\(.*", newest.read_text())
    image = 8 * 48 * 8 * 8
    assert not [dims for dims in turned if math.prod(map(int, dims.split(","))) >= image]
