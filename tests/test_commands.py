"""`python -m torch_xla`: what it prints and how it ends."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch_xla
from process import output_of
from torch_xla.__main__ import main

PROGRAM = """
import sys
@torch_xla.compile
def doubled(x):
    return x * 2
doubled(torch.ones(int(sys.argv[1]), device="xla")).sum().item()
"""


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "torch_xla", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    folder = tmp_path / "cache"
    output_of(PROGRAM, "3", TORCH_XLA_CACHE_DIR=str(folder))
    return folder


def test_cache_list_names_programs(cache: Path) -> None:
    for done in (
        command("cache", "list", "--dir", str(cache)),
        command("cache", "list", TORCH_XLA_CACHE_DIR=str(cache)),
    ):
        assert done.returncode == 0, done.stderr
        *entries, summary = done.stdout.splitlines()
        assert any(entry.endswith("  doubled") for entry in entries)
        assert any("digest of" in entry for entry in entries)
        assert summary.startswith(f"{len(entries)} entries of 0.") and summary.endswith(str(cache))


def test_cache_size_counts_them(cache: Path) -> None:
    done = command("cache", "size", "--dir", str(cache))
    count = len(list(cache.iterdir()))
    assert done.returncode == 0
    assert done.stdout.startswith(f"{count} entries of ")


def test_cache_verify_names_what_is_not_used(cache: Path) -> None:
    assert command("cache", "verify", "--dir", str(cache)).returncode == 0
    program = max(cache.iterdir(), key=lambda path: path.stat().st_size)
    content = bytearray(program.read_bytes())
    content[len(content) // 2] ^= 1
    program.write_bytes(content)
    (cache / "x.program").mkdir()
    os.mkfifo(cache / "y.program")
    done = command("cache", "verify", "--dir", str(cache))
    assert done.returncode == 1
    assert f"{program.name}: it is damaged" in done.stdout
    assert "x.program: it is a folder" in done.stdout
    assert "y.program: it is a pipe" in done.stdout
    assert "3 of them not used" in done.stdout


def test_cache_clear_deletes_programs_only(cache: Path) -> None:
    (cache / "thesis.txt").write_text("mine")
    done = command("cache", "clear", "--dir", str(cache))
    assert done.returncode == 0 and done.stdout.startswith("deleted ")
    assert [path.name for path in cache.iterdir()] == ["thesis.txt"]
    (cache / "x.program").mkdir()
    (cache / "x.program" / "file").touch()
    done = command("cache", "clear", "--dir", str(cache))
    assert done.returncode == 1 and "not deleted: x.program: it is a folder" in done.stdout


def test_cache_says_what_is_wrong_with_a_folder(tmp_path: Path) -> None:
    assert command("cache", "list", "--dir", str(tmp_path / "none")).stdout.startswith("0 entries")
    tmp_path.chmod(0o777)
    done = command("cache", "clear", "--dir", str(tmp_path))
    assert done.returncode == 1 and "other users may write to it" in done.stderr


def test_no_command_and_unknown_ones_are_explained() -> None:
    assert "cache" in command("--help").stdout
    done = command("cash")
    assert done.returncode == 2 and "cache" in done.stderr


def test_the_report_says_what_a_bug_report_should(cache: Path) -> None:
    done = command(TORCH_XLA_CACHE_DIR=str(cache), PJRT_DEVICE="CPU")
    assert done.returncode == 0, done.stderr
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert lines["PyTorch"].startswith(torch.__version__)
    assert lines["torch-pjrt"].startswith(torch_xla.__version__)
    for text in (
        "libpjrt_cpu.so",
        "PJRT API 0.",
        "1, the first of them",
        f"in {cache}",
        "PJRT_DEVICE              'CPU'",
        "one addition             passed",
        "one training step        passed",
    ):
        assert text in done.stdout


def test_the_report_of_a_machine_that_does_not_work() -> None:
    done = command(PJRT_DEVICE="NEURON")
    assert done.returncode == 1
    assert "plugin                   error: No PjRtPlugin registered for: NEURON" in done.stdout
    assert "one addition             FAILED: RuntimeError: as above" in done.stdout
    assert done.stdout.count("No PjRtPlugin") == 1, "one cause is read once"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_disk_that_fills_up_is_warned_of_once(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir(mode=0o700)
    options = ["-t", "tmpfs", "-o", "size=16k,mode=700", "tmpfs", str(disk)]
    if subprocess.run(["mount", *options], capture_output=True).returncode != 0:
        pytest.skip("this system does not let us mount")
    try:
        program = (
            PROGRAM
            + "for size in range(2, 9): doubled(torch.ones(size, device='xla')).sum().item()"
        )
        done = subprocess.run(
            [sys.executable, "-c", "import torch, torch_xla\n" + program, "3"],
            env={**os.environ, "TORCH_XLA_CACHE_DIR": str(disk)},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("No space left on device") == 1
        assert all(path.suffix == ".program" for path in disk.iterdir())
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `linear.pt2`, what `export` made of it in `linear`, and files of arrays."""
    folder = tmp_path_factory.mktemp("exported")
    model, x = torch.nn.Linear(3, 2), torch.ones(4, 3)
    torch.export.save(torch.export.export(model, (x,)), folder / "linear.pt2")
    torch.save(model.state_dict(), folder / "weights.pt")
    for weights in ("npy", "safetensors"):
        name = "linear" if weights == "npy" else weights
        arguments = ["export", str(folder / "linear.pt2"), str(folder / name)]
        assert main([*arguments, "--weights", weights]) == 0
    np.save(folder / "x.npy", x.numpy())
    np.save(folder / "short.npy", np.ones((3, 3), np.float32))
    np.save(folder / "double.npy", np.ones((4, 3)))
    np.save(folder / "objects.npy", np.array([{}]), allow_pickle=True)
    np.save(folder / "words.npy", np.array(["a"]))
    (folder / "text.npy").write_text("hello")
    (folder / "empty").mkdir()
    return folder


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("export none.pt2 new", "there is no file .*none.pt2"),
        ("export empty new", "there is no file .*empty"),
        ("export weights.pt new", "weights.pt is not what torch.export.save writes"),
        ("export x.npy new", "x.npy is not what torch.export.save writes"),
        ("export linear.pt2 x.npy", "cannot export .* to .*x.npy: .*Not a directory"),
        ("run none x.npy", "cannot load .*none: .* is not a folder that save_as_stablehlo wrote"),
        ("run empty x.npy", "cannot load .*empty: .* it has no functions"),
        ("run linear", "linear takes 1 inputs, got 0"),
        ("run linear x.npy x.npy", "linear takes 1 inputs, got 2"),
        ("run linear none.npy", "there is no file .*none.npy"),
        ("run linear text.npy", "text.npy is not an array of numbers"),
        ("run linear objects.npy", "objects.npy is not an array of numbers"),
        ("run linear words.npy", "words.npy is not an array of numbers"),
        ("run linear short.npy", r"argument 0 .* must be float32\[4, 3\], and is float32\[3, 3\]"),
        ("run linear double.npy", r"must be float32\[4, 3\], and is float64\[4, 3\]"),
        ("run linear x.npy --output x.npy", "cannot write to .*x.npy: .*exists"),
    ],
)
def test_mistakes_are_one_sentence(
    exported: Path, arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command_, *paths = arguments.split()
    words = [path if path.startswith("-") else str(exported / path) for path in paths]
    assert main([command_, *words]) == 1
    (sentence,) = capsys.readouterr().err.splitlines()
    assert re.search(message, sentence), sentence


def junk(path: Path) -> None:
    path.write_bytes(b"junk")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: junk(folder / "functions" / "forward.meta"), "forward.meta is damaged"),
        (lambda folder: (folder / "functions" / "forward.meta").write_text("{}"), "is damaged"),
        (lambda folder: junk(folder / "functions" / "forward.mlir"), "cannot run"),
        (lambda folder: shutil.rmtree(folder / "data"), "without its weights"),
        (lambda folder: junk(folder / "data" / "weight"), "weight is damaged"),
        (
            lambda folder: np.save(open(folder / "data" / "weight", "wb"), np.ones(2, np.float32)),
            r"parameter weight must be float32\[2, 3\], and is float32\[2\]",
        ),
        (
            lambda folder: [path.unlink() for path in folder.glob("functions/forward.[mb][ly]*")],
            "has no program",
        ),
    ],
)
def test_damaged_folders_are_one_sentence(
    exported: Path,
    tmp_path: Path,
    spoil: Callable[[Path], object],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "damaged"
    shutil.copytree(exported / "linear", folder)
    for path in folder.glob("functions/*.bytecode"):
        path.unlink()  # the text alone
    spoil(folder)
    assert main(["run", str(folder), str(exported / "x.npy")]) == 1
    (sentence,) = capsys.readouterr().err.splitlines()
    assert re.search(message, sentence), sentence


def test_safetensors_that_end_too_early_are_one_sentence(
    exported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(exported / "safetensors"), str(exported / "x.npy")]) == 0
    weights = exported / "safetensors" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    assert main(["run", str(exported / "safetensors"), str(exported / "x.npy")]) == 1
    (sentence,) = capsys.readouterr().err.splitlines()
    assert "weights.safetensors is damaged" in sentence
