"""Programs on disk: found by the next process, and no harm when the disk misbehaves."""

import os
from pathlib import Path

import pytest
from process import output_of, run_python

TRAIN = """
from tiny import MODELS, loss_of
model = MODELS["decoder"].model().to("xla")
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for inputs, targets in MODELS["decoder"].batches(4):
    optimizer.zero_grad()
    loss = loss_of(model, (inputs.to("xla"), targets.to("xla")))
    loss.backward()
    optimizer.step()
    torch_xla.sync()
print(metrics.counter_value("UncachedCompile") or 0, f"{loss.item():.6f}")
"""


def train(cache: Path, **environment: str) -> tuple[int, str]:
    """Compilations and the last loss of a short training run."""
    compilations, loss = output_of(TRAIN, TORCH_XLA_CACHE_DIR=str(cache), **environment).split()
    return int(compilations), loss


def entries(cache: Path) -> list[Path]:
    return sorted(path for path in cache.rglob("*") if path.is_file())


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    first, loss = train(tmp_path / "cache")
    assert first > 0
    assert train(tmp_path / "cache") == (0, loss)


def test_damaged_entries_are_compiled_again(tmp_path: Path) -> None:
    _, loss = train(tmp_path)
    files = entries(tmp_path)
    assert files
    for index, path in enumerate(files):
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2] if index % 2 else b"\0" * len(content))
    compilations, again = train(tmp_path)
    assert compilations > 0 and again == loss
    assert train(tmp_path) == (0, loss)


def test_cache_turned_off(tmp_path: Path) -> None:
    train(tmp_path, TORCH_XLA_CACHE="0")
    assert entries(tmp_path) == []


def test_initialize_cache_chooses_the_folder(tmp_path: Path) -> None:
    program = """
    import sys
    import torch_xla.runtime as xr
    xr.initialize_cache(sys.argv[1])
    (torch.ones(3, device="xla") * 5).sum().item()
    """
    output_of(program, str(tmp_path / "chosen"))
    assert entries(tmp_path / "chosen")
    output_of(program, "~/at_home", HOME=str(tmp_path))
    assert entries(tmp_path / "at_home")


ONE_PROGRAM = 'print((torch.ones(3, device="xla") * 5).sum().item())'


def test_folder_that_cannot_be_made() -> None:
    done = run_python(ONE_PROGRAM, TORCH_XLA_CACHE_DIR="/proc/torch_xla_cache")
    assert done.returncode == 0 and done.stdout.strip() == "15.0"
    assert "warning" in done.stderr.lower() and "/proc/torch_xla_cache" in done.stderr


def test_full_disk() -> None:
    if not os.access("/dev/full", os.W_OK):
        pytest.skip("there is no /dev/full here")
    done = run_python(ONE_PROGRAM, TORCH_XLA_CACHE_DIR="/dev/full")
    assert done.returncode == 0 and done.stdout.strip() == "15.0"


def test_file_size_limit(tmp_path: Path) -> None:
    """Writes fail half-way, as on a full disk; what they leave must not be used."""
    limited = (
        """
    import resource, signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (512, resource.RLIM_INFINITY))
    """
        + ONE_PROGRAM
    )
    done = run_python(limited, TORCH_XLA_CACHE_DIR=str(tmp_path))
    assert done.returncode == 0 and done.stdout.strip() == "15.0"
    again = run_python(ONE_PROGRAM, TORCH_XLA_CACHE_DIR=str(tmp_path))
    assert again.returncode == 0 and again.stdout.strip() == "15.0"


def test_folder_others_can_write_is_refused(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    done = run_python(ONE_PROGRAM, TORCH_XLA_CACHE_DIR=str(shared))
    assert done.returncode == 0 and done.stdout.strip() == "15.0"
    assert str(shared) in done.stderr
    assert entries(shared) == []


@pytest.mark.skipif(not Path("/proc/sys").exists(), reason="needs a folder nobody can write to")
def test_a_folder_that_cannot_be_made_says_why() -> None:
    done = run_python(ONE_PROGRAM, TORCH_XLA_CACHE_DIR="/proc/sys/none/programs")
    assert done.returncode == 0 and done.stdout.strip() == "15.0"
    assert "/proc/sys/none/programs cannot be used: " in done.stderr
    reason = done.stderr.split("cannot be used: ")[1]
    with pytest.raises(OSError) as error:
        os.mkdir("/proc/sys/none")
    assert reason.startswith(os.strerror(error.value.errno or 0))


def test_entry_others_can_write_is_refused(tmp_path: Path) -> None:
    _, loss = train(tmp_path)
    for path in entries(tmp_path):
        path.chmod(0o666)
    compilations, again = train(tmp_path)
    assert compilations > 0 and again == loss


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_entry_that_is_not_a_file_is_called_that(kind: str, tmp_path: Path) -> None:
    run_python(ONE_PROGRAM, TORCH_XLA_CACHE_DIR=str(tmp_path))
    for path in entries(tmp_path):
        path.unlink()
        path.mkdir() if kind == "folder" else os.mkfifo(path)
    done = run_python(ONE_PROGRAM, TORCH_XLA_CACHE_DIR=str(tmp_path))
    assert done.returncode == 0 and done.stdout.strip() == "15.0"
    assert done.stderr.count(f"is refused: it is a {kind}") == 1


def test_size_cap(tmp_path: Path) -> None:
    program = """
    for size in range(1, 60):
        weight = torch.ones(size, 7, device="xla")
        (weight @ weight.t()).softmax(0).sum().item()
    """
    output_of(program, TORCH_XLA_CACHE_DIR=str(tmp_path), TORCH_XLA_CACHE_SIZE_MB="1")
    assert sum(path.stat().st_size for path in entries(tmp_path)) <= 1.1 * 2**20


def test_processes_share_a_cache(tmp_path: Path) -> None:
    program = """
    import os
    children = []
    for _ in range(3):
        child = os.fork()
        if child == 0:
            for size in range(2, 8):
                assert (torch.ones(size, device="xla") * 2).sum().item() == 2 * size
            os._exit(0)
        children.append(child)
    print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
    """
    assert output_of(program, TORCH_XLA_CACHE_DIR=str(tmp_path)).strip() == "[0, 0, 0]"
