"""A test that hangs names itself: the stacks of its processes, then their end.

A process beside each process of tests is told when a test begins and ends. It can look where the
interpreter cannot: into a process that waits with the interpreter's lock held. What it saw is the
last that the run prints, as briefly as a log's end has room for.
"""

import contextlib
import faulthandler
import itertools
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

import pytest

REPORTS = "TESTS_HANG_REPORTS"  # a folder that the workers of a run inherit
FRAMES = 10


class Watchdog:
    """Lives in the process that runs the tests; ends it when one takes longer than `limit`."""

    def __init__(self, limit: float) -> None:
        report = Path(os.environ[REPORTS], str(os.getpid()))
        self._stacks: IO[str] = report.with_suffix(".python").open("w")
        faulthandler.register(signal.SIGUSR2, file=self._stacks, all_threads=True)
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(os.getpid()), str(limit), str(report)],
            stdin=subprocess.PIPE,
            text=True,
        )

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._tell(nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self) -> None:
        self._tell("")

    def pytest_unconfigure(self) -> None:
        faulthandler.unregister(signal.SIGUSR2)
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()

    def _tell(self, line: str) -> None:
        stream = self._process.stdin
        if stream is not None:
            stream.write(line.encode("unicode_escape").decode() + "\n")
            stream.flush()


def watch(pid: int, limit: float, report: Path) -> None:
    """Reads from the standard input what runs, until that is not followed by anything in time."""
    test = told = ""
    while select.select([sys.stdin], [], [], limit if test else None)[0]:
        read = os.read(sys.stdin.fileno(), 1 << 16).decode()
        if not read:
            return
        *lines, told = (told + read).split("\n")
        test = lines[-1] if lines else test
    processes = [pid, *descendants(pid)]
    lines = [f"{test} did not end within {limit:g} s"]
    lines += [line for process in processes for line in native_stacks(process)]
    os.kill(pid, signal.SIGUSR2)
    time.sleep(5)  # the process writes its stacks
    lines += python_stacks(report.with_suffix(".python").read_text())
    report.with_suffix(".hang").write_text("\n".join(lines) + "\n")
    print(*lines, sep="\n", file=sys.stderr)  # a run without workers ends with this process
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    found = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            if child != os.getpid():
                found += [child, *descendants(child)]
    return found


def native_stacks(pid: int) -> list[str]:
    """A line for each thread, innermost function first; none where gdb is not installed."""
    command = ["gdb", "-nx", "-batch", "-p", str(pid)]
    for what in ("set print frame-arguments none", "thread apply all bt"):
        command += ["-ex", what]
    try:
        text = subprocess.run(command, capture_output=True, text=True, timeout=240).stdout
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        return [f"process {pid}: no native stacks: {error}"]
    threads = re.split(r"^Thread (\d+) .*$", text, flags=re.MULTILINE)[1:]
    return [
        f"process {pid} thread {number}: {functions}"
        for number, stack in zip(threads[::2], threads[1::2], strict=True)
        if (functions := " < ".join(native_functions(stack)[:FRAMES]))
    ]


def native_functions(stack: str) -> list[str]:
    names = re.findall(r"^#\d+ +(?:0x[0-9a-f]+ in )?([^\s(<]+)", stack, flags=re.MULTILINE)
    return [name for name in names if not name.startswith("_PyEval")]


def python_stacks(text: str) -> list[str]:
    """A line for each thread as faulthandler printed it, the main thread's last."""
    lines = []
    for stack in re.split(r"^(?:Current t|T)hread .*$", text, flags=re.MULTILINE)[1:]:
        frames = re.findall(r'File "([^"]+)", line (\d+) in (\S+)', stack)
        inner = itertools.takewhile(lambda frame: frame[2] != "pytest_pyfunc_call", frames)
        names = [f"{Path(file).name}:{line} {name}" for file, line, name in inner]
        lines.append("python: " + " < ".join(names[:FRAMES]))
    return lines


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("hang_timeout", "seconds after which a test hangs; 0 is never", default="0")


def pytest_configure(config: pytest.Config) -> None:
    limit = float(config.getini("hang_timeout"))
    is_worker = hasattr(config, "workerinput")
    if limit == 0 or config.option.collectonly:
        return
    if not is_worker:
        folder = tempfile.TemporaryDirectory(prefix="torch_xla_hangs_")
        config.add_cleanup(folder.cleanup)
        os.environ[REPORTS] = folder.name
    if is_worker or not config.getoption("numprocesses", None):
        config.pluginmanager.register(Watchdog(limit))


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if REPORTS not in os.environ:
        return
    for report in sorted(Path(os.environ[REPORTS]).glob("*.hang")):
        terminalreporter.section("a test hung", red=True)
        terminalreporter.write(report.read_text())


if __name__ == "__main__":
    watch(int(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3]))
