"""The C++ example, built from the installed package as a user would, learns."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch_xla

EXAMPLE = Path(__file__).parents[1] / "examples" / "cpp"
PACKAGE = Path(torch_xla.__file__).parent

pytestmark = pytest.mark.skipif(shutil.which("cmake") is None, reason="CMake is not installed")


def run(*command: object) -> str:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    build = tmp_path_factory.mktemp("cpp_example")
    launcher = "ccache" if shutil.which("ccache") else ""
    run(
        *("cmake", "-S", EXAMPLE, "-B", build, f"-DCMAKE_PREFIX_PATH={PACKAGE}"),
        *("-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher}"),
    )
    run("cmake", "--build", build)
    return build


def test_pure_functions_are_traced_once_per_kind_of_call(program: Path) -> None:
    output = run(program / "pure")
    assert "traces 2, hits 9" in output
    assert "all equal" in output


def test_it_learns_with_one_program_a_step(program: Path) -> None:
    steps = 120
    output = run(program / "train", steps)
    losses = [float(loss) for loss in re.findall(r"loss (\S+)", output)]
    assert losses[-1] < 0.1 * losses[0]
    compiled, executions = map(int, re.findall(r"compiled (\d+) programs, ran (\d+)", output)[0])
    assert steps <= executions <= steps + 3
    assert compiled <= 4
