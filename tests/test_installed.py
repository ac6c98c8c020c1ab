"""What a user gets who installs the package: the wheel, the device without an import, and CPU
programs that stay as they were."""

import importlib.metadata
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename

ROOT = Path(__file__).parents[1]
FIRST_PROGRAM = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]


def newest_source() -> float:
    listing = subprocess.run(
        [
            "git",
            "ls-files",
            "src",
            "include",
            "python",
            "cmake",
            "CMakeLists.txt",
            "pyproject.toml",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = [ROOT / name for name in listing.stdout.splitlines()]
    return max(path.stat().st_mtime for path in paths if path.exists())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That of `make wheel` if it is up to date; else one of the same build."""
    supported = set(sys_tags())
    for made in (ROOT / "dist").glob("*.whl"):
        if (
            made.stat().st_mtime >= newest_source()
            and parse_wheel_filename(made.name)[3] & supported
        ):
            return made
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps"]
    subprocess.run(
        [*command, "--wheel-dir", str(folder), str(ROOT)],
        env={**os.environ, "TORCH_XLA_BUILD_TESTS": "ON"},  # as dev/build has configured it
        check=True,
    )
    return next(folder.glob("*.whl"))


def distributions(name: str, found: dict[str, importlib.metadata.Distribution]) -> None:
    """Adds a distribution and all that it requires."""
    if name in found:
        return
    found[name] = importlib.metadata.distribution(name)
    for text in found[name].requires or []:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            distributions(requirement.name, found)


@pytest.fixture(scope="module")
def bare_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter of a new environment with PyTorch, the plugin and the wheel."""
    environment = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(environment)}))
    needed: dict[str, importlib.metadata.Distribution] = {}
    for name in ("torch", "numpy", "fastatomstruct-xla-cpu"):
        distributions(name, needed)
    for distribution in needed.values():
        for top in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            (packages / top).symlink_to(distribution.locate_file(top))
    # Requirements are checked against what is there: nothing is downloaded.
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-index"]
    subprocess.run([*command, str(wheel)], check=True)
    return python


def run(python: Path, program: str, folder: Path) -> str:
    """In an environment without compilers, home or settings."""
    done = subprocess.run(
        [python, "-I", "-c", program],
        cwd=folder,
        env={"HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


def test_the_wheel_runs_the_first_program(bare_python: Path, tmp_path: Path) -> None:
    assert 0 < float(run(bare_python, FIRST_PROGRAM, tmp_path)) < 10


def test_pytorch_alone_finds_the_device(bare_python: Path, tmp_path: Path) -> None:
    program = """
import torch
print(torch.ones(2, device="xla").sum().item(), torch.accelerator.is_available())
import sys, torch_xla
print(torch_xla.__version__, "torch_xla._XLAC" in sys.modules)
"""
    found = run(bare_python, program, tmp_path).splitlines()
    assert found == ["2.0 False", f"{importlib.metadata.version('torch-pjrt')} True"]


def test_the_wheel_holds_what_it_needs(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    libraries = [name for name in names if ".so" in name]
    # Not PyTorch's, and not the plugin's.
    assert {Path(name).name.partition(".")[0] for name in libraries} == {
        "_XLAC", "libtorch_xla", "libtorch_xla_serve",
    }  # fmt: skip
    for name in ("py.typed", "_XLAC.pyi", "include/torch_xla/torch_xla.h"):
        assert f"torch_xla/{name}" in names
    assert "_torch_xla_autoload.py" in names


def test_the_source_distribution_is_complete(tmp_path: Path) -> None:
    program = f"from scikit_build_core.build import build_sdist; build_sdist({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True)
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    listing = subprocess.run(
        ["git", "ls-files", "src", "include", "python", "cmake", "tests", "docs/*.md", "*.txt"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    missing = {name for name in listing.stdout.splitlines() if (ROOT / name).exists()} - names
    assert not missing
    assert "pyproject.toml" in names
    assert not any(name.startswith(("build/", "dist/", ".venv/")) for name in names)


# The device without an import


def test_autoload_is_cheap_and_starts_nothing(fresh_python) -> None:
    program = """
import sys, torch
loaded = "torch_xla" in sys.modules
from torch_xla import _XLAC
print(loaded, _XLAC.client_started())
"""
    assert fresh_python(program) == "True False"


def test_autoload_can_be_switched_off(fresh_python) -> None:
    program = "import sys, torch; print('torch_xla' in sys.modules)"
    assert fresh_python(program, TORCH_DEVICE_BACKEND_AUTOLOAD="0") == "False"
    program = "import torch_xla, torch; print(torch.ones(2, device='xla').sum().item())"
    assert fresh_python(program, TORCH_DEVICE_BACKEND_AUTOLOAD="0") == "2.0"


@pytest.mark.parametrize("first", ["torch_xla", "torch_xla.core.xla_model", "torch", "torch.nn"])
def test_either_package_may_be_imported_first(fresh_python, first: str) -> None:
    program = f"import {first}, torch, torch_xla; print(torch.ones(2, device='xla').tolist())"
    assert fresh_python(program) == "[1.0, 1.0]"


def test_a_device_that_does_not_load_leaves_pytorch_alone(fresh_python) -> None:
    """Another release of PyTorch is told in one sentence; it goes on without the device."""
    program = """
import os, warnings
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
import torch, _torch_xla_autoload
torch.__version__ = "2.14.0"
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    _torch_xla_autoload.load()
print(caught[0].message)
try:
    import torch_xla
except ImportError as error:
    print(error)
"""
    warned, raised = fresh_python(program).splitlines()
    assert warned == f"the device 'xla' is not available: {raised}"
    assert "is built for PyTorch 2.13.0, and PyTorch 2.14.0 is installed: run `pip" in raised


# Programs that did not ask


def test_the_device_is_asked_for_by_its_platform(fresh_python) -> None:
    program = """
import os, sys, torch
for value in (None, "", " ", "CPU"):
    os.environ.pop("PJRT_DEVICE", None)
    if value is not None:
        os.environ["PJRT_DEVICE"] = value
    print(sys.modules["torch_xla._internal.libraries"].asked_for(),
          torch.accelerator.is_available(),
          not torch.cuda.amp.common.amp_definitely_not_available())
"""
    assert fresh_python(program).splitlines() == ["False False False"] * 3 + ["True True True"]


@pytest.mark.parametrize("name", ["CPU ", "cpu", "\tCpu\n", "  "])
def test_the_platform_is_found_in_any_letters_and_between_spaces(fresh_python, name: str) -> None:
    program = """
import torch, torch_xla, torch_xla.runtime as xr
print(torch.xla.device_count(), xr.device_type(), torch.ones(2, device="xla").sum().item())
"""
    assert fresh_python(program, PJRT_DEVICE=name) == "1 CPU 2.0"


def test_a_program_that_imports_the_package_asks(fresh_python) -> None:
    """Also after the library: imports are often sorted by name."""
    pytest.importorskip("accelerate")
    ask = "from accelerate.utils import is_torch_xla_available as asked"
    assert fresh_python(f"{ask}\nimport torch_xla\nprint(asked())") == "True"
    assert fresh_python(f"import torch\n{ask}\nimport torch_xla as t\nprint(asked())") == "True"
    named = "import torch_xla.core.xla_model as xm"
    assert fresh_python(f"import torch, transformers\n{ask}\n{named}\nprint(asked())") == "True"


def test_a_file_of_the_program_that_imports_the_package_asks(
    fresh_python, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As the conftest.py of a suite does for files that import the library in a function."""
    pytest.importorskip("accelerate")
    monkeypatch.delenv("PJRT_DEVICE", raising=False)
    (tmp_path / "settings.py").write_text("import torch_xla as t\nCHOSEN = True\n")
    program = """
import torch
from settings import CHOSEN
from accelerate.utils import is_torch_xla_available as asked
print(asked())
"""
    assert fresh_python(program, PYTHONPATH=str(tmp_path)) == "True"
    (tmp_path / "settings.py").write_text("CHOSEN = True\n")
    assert fresh_python(program, PYTHONPATH=str(tmp_path)) == "False"


def test_a_library_that_runs_from_its_checkout_asks_for_nothing(
    fresh_python, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("PJRT_DEVICE", "USE_TORCH_XLA"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "lightning.py").write_text(
        "def devices():\n    from torch_xla._internal import tpu\n"
        "    return tpu.num_available_devices()\n"
    )
    program = "import torch, lightning\nprint(lightning.devices())"
    place = {"PYTHONPATH": str(tmp_path)}
    assert fresh_python(program, **place) == "0"
    assert fresh_python(program, **place, PJRT_DEVICE="CPU") == "1"
    assert fresh_python(program, **place, PJRT_DEVICE="CPU", USE_TORCH_XLA="0") == "0"


def test_an_installation_in_any_folder_asks_for_nothing(
    fresh_python, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As `pip install --target` makes one."""
    pytest.importorskip("accelerate")
    for name in ("PJRT_DEVICE", "USE_TORCH_XLA"):
        monkeypatch.delenv(name, raising=False)
    packages = Path(sysconfig.get_path("purelib"))
    for name in ("torch_xla", "_torch_xla_autoload.py"):
        (tmp_path / name).symlink_to(packages / name)
    program = """
import torch
from accelerate.utils import is_torch_xla_available as asked
import _torch_xla_autoload
print(_torch_xla_autoload.__file__, asked())
"""
    place = {"PYTHONPATH": str(tmp_path)}
    assert fresh_python(program, **place) == f"{tmp_path / '_torch_xla_autoload.py'} False"


def test_what_was_read_is_left_in_the_environment(
    fresh_python, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The switch is set for a library's import only: later ones, and children, decide anew."""
    pytest.importorskip("accelerate")
    for name in ("PJRT_DEVICE", "USE_TORCH_XLA"):
        monkeypatch.delenv(name, raising=False)
    program = """
import os, torch
from accelerate.utils import is_torch_xla_available as unasked
import transformers.utils.import_utils as readers
print(unasked(), readers.is_torch_xla_available(), os.environ.get("USE_TORCH_XLA"))
"""
    assert fresh_python(program) == "False False None"
    assert fresh_python("import transformers\n" + program) == "False False None"
    assert fresh_python(program, USE_TORCH_XLA="1") == "True True 1"
    assert fresh_python("import os, torch; os.environ['PJRT_DEVICE'] = 'CPU'\n" + program) == (
        "True True None"
    )
    # A function that imports the library later, in a file that imports us under another name.
    late = (
        "import torch_xla.core.xla_model as xm\ndef late():\n    from accelerate import Accelerator"
    )
    assert fresh_python(late + "\n    print(Accelerator().device.type)\nlate()") == "xla"


@pytest.mark.parametrize("first", ["import transformers.utils.import_utils", "import torch"])
def test_other_versions_of_libraries_can_be_imported(
    fresh_python, tmp_path: Path, first: str
) -> None:
    """Those of transformers before 5 do not say whether a graph is traced, and import PyTorch."""
    (tmp_path / "transformers" / "utils").mkdir(parents=True)
    (tmp_path / "transformers" / "__init__.py").touch()
    (tmp_path / "transformers" / "utils" / "__init__.py").write_text("from . import import_utils")
    (tmp_path / "transformers" / "utils" / "import_utils.py").write_text("import torch")
    program = (
        f"{first}\nimport torch, transformers.utils\nprint(torch.ones(1, device='xla').item())"
    )
    assert fresh_python(program, PYTHONPATH=str(tmp_path)) == "1.0"


# What matters here of diffusers' files: it has no switch, and some pipelines make timesteps on the
# host where it sees the package.
DIFFUSERS = {
    "__init__.py": "from . import utils, configuration_utils",
    "utils/__init__.py": "from .import_utils import is_torch_xla_available",
    "utils/import_utils.py": """
import importlib.util
import torch
_torch_xla_available = importlib.util.find_spec("torch_xla") is not None
def is_torch_xla_available():
    return _torch_xla_available
""",
    "configuration_utils.py": "",
    "models/__init__.py": "",
    "models/embeddings.py": """
from torch import nn
class TimestepEmbedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear_1 = nn.Linear(2, 1)
    def forward(self, sample, condition=None):
        return self.linear_1(sample)
""",
    "pipeline.py": """
from .utils import is_torch_xla_available
XLA_AVAILABLE = is_torch_xla_available()
""",
}


@pytest.fixture
def diffusers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of processes that find it."""
    for name in ("PJRT_DEVICE", "USE_TORCH_XLA"):
        monkeypatch.delenv(name, raising=False)
    for name, text in DIFFUSERS.items():
        file = tmp_path / "site-packages" / "diffusers" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return {"PYTHONPATH": str(tmp_path / "site-packages")}


@pytest.mark.parametrize("first", ["", "import torch\n"])
def test_diffusers_sees_the_package_where_it_is_asked_for(
    fresh_python, diffusers: dict[str, str], first: str
) -> None:
    program = first + "from diffusers.pipeline import XLA_AVAILABLE\nprint(XLA_AVAILABLE)"
    assert fresh_python(program, **diffusers) == "False"
    assert fresh_python(program, **diffusers, PJRT_DEVICE="CPU") == "True"
    assert fresh_python(program, **diffusers, PJRT_DEVICE="CPU", USE_TORCH_XLA="0") == "False"
    assert fresh_python("import torch_xla\n" + program, **diffusers) == "True"


def test_diffusers_layers_take_timesteps_of_the_host(
    fresh_python, diffusers: dict[str, str]
) -> None:
    program = """
import torch
from diffusers.models.embeddings import TimestepEmbedding
layer = TimestepEmbedding().to("xla")
print(layer(torch.ones(3, 2)).device, layer(torch.ones(3, 2, device="xla"), condition=None).shape)
"""
    assert fresh_python(program, **diffusers) == "xla:0 torch.Size([3, 1])"


# What matters here of datasets' files.
SHARED_EPOCH = """
import torch
def _maybe_share_with_torch_persistent_workers(value):
    return torch.tensor(value).share_memory_()
class IterableDataset:
    def __init__(self):
        self.epoch = _maybe_share_with_torch_persistent_workers(0)
"""


def test_streaming_data_sets_share_their_epoch(fresh_python, tmp_path: Path) -> None:
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "__init__.py").touch()
    (tmp_path / "datasets" / "iterable_dataset.py").write_text(SHARED_EPOCH)
    program = """
import torch, torch_xla
from datasets.iterable_dataset import IterableDataset
torch.set_default_device("xla")
print(IterableDataset().epoch.is_shared(), torch.ones(1).device)
"""
    assert fresh_python(program, PYTHONPATH=str(tmp_path)) == "True xla:0"


def test_a_file_that_hides_a_package_is_named(tmp_path: Path) -> None:
    """What beginners call their first scripts."""

    def errors_of(program: str) -> str:
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.stderr

    mine = tmp_path / "torch_xla.py"
    mine.write_text("import torch")
    said = errors_of("import torch; assert torch.ones(2).sum() == 2")
    assert f"'xla' is not available: {mine} hides the package torch_xla" in said
    assert "Traceback" not in said
    mine.unlink()
    (tmp_path / "torch.py").write_text("")
    said = errors_of("import torch_xla")
    assert f"ImportError: {tmp_path / 'torch.py'} is not PyTorch and hides it" in said
