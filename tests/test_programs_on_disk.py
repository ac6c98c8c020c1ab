"""Programs of the size users have: found by the next process, and as fast there."""

import os
import shutil
from pathlib import Path

from process import output_of, run_python
from torch_xla._internal import plugins

# Prints compilations, programs found on disk, page faults of the last steps, and the loss.
TRAIN = """
import resource, statistics
import torch.nn.functional as F
from models import Decoder, DecoderConfig

torch.manual_seed(0)
model = Decoder(DecoderConfig()).to("xla")
tokens = torch.randint(3200, (8, 129)).to("xla")
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

def faults_of_a_step():
    global loss
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    optimizer.zero_grad()
    loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    torch_xla.sync(wait=True)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults = [faults_of_a_step() for _ in range(16)]
counter = lambda name: metrics.counter_value(name) or 0
print(counter("UncachedCompile"), counter("PersistentCacheHit"), statistics.median(faults[-9:]))
print(f"{loss.item():.6f}")
"""


def test_a_second_process_finds_every_program_and_has_no_page_faults(tmp_path: Path) -> None:
    def train() -> tuple[int, int, float, str]:
        done = run_python(TRAIN, timeout=600, TORCH_XLA_CACHE_DIR=str(tmp_path))
        assert done.returncode == 0, done.stderr
        counts, loss = done.stdout.splitlines()
        compiled, found, faults = counts.split()
        return int(compiled), int(found), float(faults), loss

    compiled, found, faults, loss = train()
    assert compiled > 0 and found == 0
    again = train()
    assert again[:2] == (0, compiled) and again[3] == loss
    assert faults < 1000 and again[2] < 1000  # 20,000 if memory came from the kernel at each step


PROGRAM = """
import sys
from torch_xla.experimental.assume_pure import assume_pure
layer = assume_pure(lambda x, w: torch.special.gammaln((x @ w).abs() + 1))
x = torch.ones(3, 3, device="xla")
y = layer(layer(x, x), x)
torch_xla.sync()
@torch_xla.compile
def step(x):
    return x.sin() * 2
step(y)
torch_xla.sync()
"""

# The same work elsewhere: other lines, names, imports, and other work before it.
MOVED = """
import sys, decimal, sqlite3
from torch_xla.experimental.assume_pure import assume_pure
import os
os.chdir("/")


def my_layer(value, weight):
    product = value @ weight
    return torch.special.gammaln(product.abs() + 1)

@torch_xla.compile
def my_step(value):

    return value.sin() * 2

def main():
    my_function = assume_pure(my_layer)
    x = torch.ones(3, 3, device="xla")
    y = my_function(my_function(x, x), x)
    torch_xla.sync()
    my_step(y)
    torch_xla.sync()

main()
"""


COUNTS = """
print(*[metrics.counter_value(name) or 0 for name in ("UncachedCompile", "PersistentCacheHit")])
"""


def counts(program: str, cache: Path, **environment: str) -> tuple[int, int]:
    """Programs compiled, and found on disk."""
    output = output_of(program + COUNTS, TORCH_XLA_CACHE_DIR=str(cache), **environment)
    compiled, found = output.split()
    return int(compiled), int(found)


def test_paths_lines_names_and_order_of_imports_change_no_key(tmp_path: Path) -> None:
    compiled, _ = counts(PROGRAM, tmp_path)
    assert compiled == 2
    assert counts(MOVED, tmp_path, PYTHONHASHSEED="7") == (0, compiled)


def test_options_of_the_compiler_change_the_key(tmp_path: Path) -> None:
    compiled, _ = counts(PROGRAM, tmp_path)
    flags = "--xla_cpu_enable_fast_math=true"
    assert counts(PROGRAM, tmp_path, XLA_FLAGS=flags) == (compiled, 0)
    assert counts(PROGRAM, tmp_path, XLA_FLAGS=flags) == (0, compiled)
    assert counts(PROGRAM, tmp_path) == (0, compiled)


def test_the_plugin_changes_the_key_and_its_place_does_not(tmp_path: Path) -> None:
    compiled, _ = counts(PROGRAM, tmp_path / "cache")
    plugin = tmp_path / "moved.so"
    shutil.copyfile(plugins.find("CPU"), plugin)
    elsewhere = {"TORCH_XLA_PLUGIN_PATH": str(plugin)}
    assert counts(PROGRAM, tmp_path / "cache", **elsewhere) == (0, compiled)
    with plugin.open("r+b") as file:  # another build, as large: what nobody reads differs
        file.seek(-1, os.SEEK_END)
        file.write(b"x")
    assert counts(PROGRAM, tmp_path / "cache", **elsewhere) == (compiled, 0)
