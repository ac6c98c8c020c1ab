"""The C++ examples, built from the installed package as a user would, learn and serve."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
import torch_xla
from tiny import MODELS
from torch_xla import stablehlo

EXAMPLES = Path(__file__).parents[1] / "examples"
PACKAGE = Path(torch_xla.__file__).parent

pytestmark = pytest.mark.skipif(shutil.which("cmake") is None, reason="CMake is not installed")


def started(*command: object, **environment: str) -> "subprocess.CompletedProcess[str]":
    parts = [str(part) for part in command]
    env = {**os.environ, **environment}
    return subprocess.run(parts, capture_output=True, text=True, timeout=600, env=env)


def run(*command: object, **environment: str) -> str:
    done = started(*command, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def built(example: str, build: Path) -> Path:
    launcher = "ccache" if shutil.which("ccache") else ""
    run(
        *("cmake", "-S", EXAMPLES / example, "-B", build, f"-DCMAKE_PREFIX_PATH={PACKAGE}"),
        *("-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher}"),
    )
    run("cmake", "--build", build)
    return build


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("cpp", tmp_path_factory.mktemp("cpp_example"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("serve", tmp_path_factory.mktemp("serve_example")) / "serve"


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
    reasons = re.findall(r"compiled .*, \d+ operations: (.*)", output)
    assert len(reasons) == compiled and reasons[0].startswith("first graph run")


def test_it_serves_exports_without_python_and_pytorch(server: Path, tmp_path: Path) -> None:
    libraries = run("ldd", server)
    assert "libtorch_xla_serve.so" in libraries
    assert not re.search(r"libtorch(_cpu|_python)?\.so|libc10|libpython|not found", libraries)
    tiny = MODELS["resnet18"]
    model, (images, _) = tiny.model().eval(), tiny.batches(1)[0]
    folder, output = tmp_path / "model", tmp_path / "out"
    stablehlo.save_torch_model_as_stablehlo(model, (images,), folder)
    np.save(tmp_path / "images.npy", images.numpy())
    text = run(server, folder, output, tmp_path / "images.npy", THREADS="4")
    assert text.startswith("output 0: float32")
    expected = model(images).detach().numpy()
    np.testing.assert_allclose(np.load(output / "0.npy"), expected, atol=1e-4, rtol=1e-4)
    options = stablehlo.StableHLOExportOptions(weights_format="safetensors")
    stablehlo.save_torch_model_as_stablehlo(model, (images,), tmp_path / "safe", options)
    run(server, tmp_path / "safe", tmp_path / "safe_out", tmp_path / "images.npy")
    safe = np.load(tmp_path / "safe_out" / "0.npy")
    assert np.array_equal(safe, np.load(output / "0.npy"))
    weights = tmp_path / "safe" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    cut = started(server, tmp_path / "safe", tmp_path / "safe_out", tmp_path / "images.npy")
    assert cut.returncode == 1 and "ends within its tensor" in cut.stderr
    for path in (folder / "functions").glob("*.mlir"):  # portable bytecode alone is enough
        path.unlink()
    if list((folder / "functions").glob("*.bytecode")):
        run(server, folder, output, tmp_path / "images.npy")
        np.testing.assert_allclose(np.load(output / "0.npy"), expected, atol=1e-4, rtol=1e-4)


def test_it_serves_programs_with_dynamic_sizes(server: Path, tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Softmax(1)).eval()
    x, size = torch.randn(2, 6, 4), torch.export.Dim("length", max=12)
    program = torch.export.export(model, (x,), dynamic_shapes=({1: 2 * size},))
    folder, output, path = tmp_path / "model", tmp_path / "out", tmp_path / "x.npy"
    stablehlo.save_as_stablehlo(program, folder)
    for length in (6, 4, 24):
        x = torch.randn(2, length, 4)
        np.save(path, x.numpy())
        run(server, folder, output, path, THREADS="3")
        np.testing.assert_allclose(np.load(output / "0.npy"), model(x).detach(), atol=1e-5)
    for sizes, message in (
        ((2, 26, 4), "from 2 to 12, and is given 13"),
        ((2, 5, 4), r"input 0 must be float32\[2, 4, 4\] .*\[2, 5, 4\]"),
        ((2, 4), r"2 dimensions was given for one of the sizes \[2, 2\*s\w+, 4\]"),
    ):
        np.save(path, np.zeros(sizes, np.float32))
        refused = started(server, folder, output, path)
        assert refused.returncode == 1 and re.search(message, refused.stderr), refused.stderr


def test_what_serving_refuses(server: Path, tmp_path: Path) -> None:
    class Mixed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.full((3,), 1.5, dtype=torch.bfloat16))

        def forward(self, given, scale):
            return given["x"] * self.weight.float() + given["i"] * scale, self.weight + 1

    arguments = ({"x": torch.ones(2, 3), "i": torch.arange(3)}, 2.0)
    folder, output = tmp_path / "model", tmp_path / "out"
    stablehlo.save_torch_model_as_stablehlo(Mixed(), arguments, folder)
    paths = [tmp_path / "x.npy", tmp_path / "i.npy"]
    for path, value in zip(paths, arguments[0].values(), strict=True):
        np.save(path, value.numpy())
    run(server, folder, output, *paths)
    assert np.load(output / "0.npy").tolist() == [[1.5, 3.5, 5.5]] * 2
    bits = torch.from_numpy(np.load(output / "1.npy")).view(torch.bfloat16)
    assert bits.tolist() == [2.5] * 3
    np.save(tmp_path / "wide.npy", np.ones((2, 4), np.float32))
    np.save(tmp_path / "columns.npy", np.asfortranarray(np.ones((2, 3), np.float32)))
    (tmp_path / "broken.npy").write_bytes(b"no array")
    for inputs, message in (
        (paths[:1], "takes 2 inputs, and was given 1"),
        (paths[::-1], "it holds int64, and float32 is needed"),
        ([tmp_path / "wide.npy", paths[1]], r"input 0 must be float32\[2, 3\] .*\[2, 4\]"),
        ([tmp_path / "columns.npy", paths[1]], "columns come first"),
        ([tmp_path / "broken.npy", paths[1]], "it does not begin as one"),
    ):
        refused = started(server, folder, output, *inputs)
        assert refused.returncode == 1 and re.search(message, refused.stderr), refused.stderr
    assert "no function 'forward'" in started(server, tmp_path, output).stderr
    (folder / "functions" / "forward.meta").write_text("{")
    assert "not JSON" in started(server, folder, output).stderr


KEPT = """
#include <torch_xla/serve.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>

namespace fs = std::filesystem;

int main(int, char** argv) {
  const torch_xla::serve::Model model(argv[1]);
  const fs::path cache = std::getenv("TORCH_XLA_CACHE_DIR");
  auto compiles = [&](int64_t rows) {  // leaves a file on the disk
    for (const fs::directory_entry& file : fs::directory_iterator(cache)) {
      fs::remove(file);
    }
    torch_xla::serve::Array rows_of_ones{{"float32", {rows, 3}}, {}};
    rows_of_ones.bytes.resize(rows * 3 * sizeof(float));
    model.run({rows_of_ones});
    return !fs::is_empty(cache);
  };
  for (int64_t rows = 1; rows <= 8; ++rows) {
    compiles(rows);
  }
  for (int64_t rows : {8, 5, 1, 6, 5}) {
    std::cout << compiles(rows);
  }
}
"""


def test_sizes_used_last_are_kept(tmp_path: Path) -> None:
    size = torch.export.Dim("rows", max=64)
    program = torch.export.export(
        torch.nn.Linear(3, 2), (torch.ones(2, 3),), dynamic_shapes=({0: size},)
    )
    stablehlo.save_as_stablehlo(program, tmp_path / "model")
    (tmp_path / "kept.cpp").write_text(KEPT)
    library = PACKAGE / "lib"
    run(
        *("g++", "-std=c++20", tmp_path / "kept.cpp", "-o", tmp_path / "kept"),
        *(f"-I{PACKAGE / 'include'}", f"-L{library}", "-ltorch_xla_serve"),
        f"-Wl,-rpath,{library}",
    )
    (tmp_path / "cache").mkdir(mode=0o700)
    environment = {"TORCH_XLA_CACHE_DIR": str(tmp_path / "cache"), "TORCH_XLA_MEMORY_PROGRAMS": "4"}
    assert run(tmp_path / "kept", tmp_path / "model", **environment) == "00110"
