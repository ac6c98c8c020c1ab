"""The processes that run random programs: why one ended, and when it must."""

import os
import signal
import subprocess
import sys
import threading

ALONE = """
import sys, warnings
import random_helpers, torch
from random_programs import program_of, values
warnings.simplefilter("ignore")
program = program_of(int(sys.argv[1]))
scope = {"torch": torch, "H": random_helpers, "values": values, "device": "cpu"}
for text in [*program.inputs, *(line.text for line in program.lines)]:
    try:
        exec(text, scope)
    except Exception:
        pass
"""


def ends_without_the_device(seed: int) -> bool:
    """PyTorch's own code ends some processes; there is nothing to compare with then."""
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(seed)],
        env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        cwd=os.path.dirname(os.path.abspath(__file__)), capture_output=True, check=False,
    )  # fmt: skip
    return done.returncode < 0


class Watch:
    """Aborts a worker that takes too long for one program: it says where its threads are then."""

    def __init__(self, worker: "subprocess.Popen[str]", seconds: float) -> None:
        self.worker, self.seconds, self.late = worker, seconds, False
        self.timer = threading.Timer(seconds, self.abort)
        self.timer.start()

    def restart(self) -> None:
        self.timer.cancel()
        self.timer = threading.Timer(self.seconds, self.abort)
        self.timer.start()

    def abort(self) -> None:
        self.late = True
        self.worker.send_signal(signal.SIGABRT)

    def verdict(self) -> str:
        late = f"took longer than {self.seconds:g} s (a loaded machine needs --seconds) and "
        return f"{late * self.late}ended with {self.worker.returncode}"
