"""Run the OpInfo comparison in worker processes and collect what happened to each operator.

python tests/opinfo_runner.py --ops 'add|mul' --limit 3 --json results.json
"""

import argparse
import json
import queue
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any

CATEGORIES = ("float32", "gradient", "inplace", "int64", "bool", "bfloat16")
SLOW_CATEGORIES = ("complex64",)  # only when they are asked for
Result = dict[str, Any]


class Worker:
    """A worker process, started again whenever it dies or is killed for hanging."""

    def __init__(self, device: str, seconds_per_sample: float):
        self.device = device
        self.seconds_per_sample = seconds_per_sample
        self.process: subprocess.Popen[str] | None = None
        self.answers: queue.Queue[str | None] = queue.Queue()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("opinfo_worker.py")), self.device],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.answers = queue.Queue()
        assert self.process.stdout is not None
        threading.Thread(
            target=self.read, args=(self.process.stdout, self.answers), daemon=True
        ).start()
        if self.next_answer(300.0) is None:
            raise RuntimeError("the OpInfo worker does not start; run opinfo_worker.py by hand")

    @staticmethod
    def read(stream: IO[str], answers: "queue.Queue[str | None]") -> None:
        for line in stream:
            answers.put(line)
        answers.put(None)

    def next_answer(self, seconds: float) -> dict[str, Any] | None:
        """None when the worker has died; queue.Empty when it has hung."""
        line = self.answers.get(timeout=seconds)
        return None if line is None else json.loads(line)

    def stop(self) -> int:
        assert self.process is not None
        self.process.kill()
        code = self.process.wait()
        self.process = None
        return code

    def ask(self, op: str, category: str, limit: int | None) -> Result:
        if self.process is None:
            self.start()
        assert self.process is not None and self.process.stdin is not None
        request = {"op": op, "category": category, "limit": limit}
        started, sample = time.monotonic(), None
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            while (answer := self.next_answer(self.seconds_per_sample)) is not None:
                if "outcome" in answer:
                    seconds = round(time.monotonic() - started, 2)
                    return {"op": op, "category": category, "seconds": seconds, **answer["outcome"]}
                sample = answer["sample"]
            status, detail = "crash", f"exit status {self.process.wait()} at sample {sample}"
        except queue.Empty:
            status, detail = (
                "hang",
                f"no answer within {self.seconds_per_sample} s at sample {sample}",
            )
        except BrokenPipeError:
            status, detail = "crash", "the worker died before the request"
        self.stop()
        return {"op": op, "category": category, "status": status, "detail": detail}


def run(
    ops: Iterable[str],
    samples: Mapping[str, int | None],
    device: str = "xla",
    workers: int = 2,
    seconds_per_sample: float = 60.0,
    report: Callable[[Result], None] = lambda result: None,
) -> list[Result]:
    """One result per operator and category, of so many samples; in order of both."""
    pending: queue.Queue[str] = queue.Queue()
    names = list(ops)
    for name in names:
        pending.put(name)
    results: dict[tuple[str, str], Result] = {}

    def serve() -> None:
        worker = Worker(device, seconds_per_sample)
        while True:
            try:
                name = pending.get_nowait()
            except queue.Empty:
                break
            for category, limit in samples.items():
                results[name, category] = worker.ask(name, category, limit)
                report(results[name, category])
        if worker.process is not None:
            worker.stop()

    threads = [threading.Thread(target=serve) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[name, category] for name in names for category in samples]


def pass_rates(results: list[Result]) -> dict[str, float]:
    """Passed operators as a share of those the CPU supports, per category."""
    passed = Counter(r["category"] for r in results if r["status"] == "pass")
    supported = Counter(r["category"] for r in results if r["status"] != "skip")
    return {category: passed[category] / total for category, total in supported.items()}


def summary(results: list[Result]) -> str:
    lines = []
    for category, rate in pass_rates(results).items():
        statuses = Counter(r["status"] for r in results if r["category"] == category)
        counted = ", ".join(f"{count} {status}" for status, count in sorted(statuses.items()))
        lines.append(f"{category:9s} {rate:6.1%}  ({counted})")
    return "\n".join(lines)


def main() -> None:
    from opinfo_check import FORMATTED_OPS

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ops", default="", help="regular expression for operator names")
    parser.add_argument(
        "--categories", nargs="+", default=CATEGORIES, choices=CATEGORIES + SLOW_CATEGORIES
    )
    parser.add_argument("--device", default="xla")
    parser.add_argument("--limit", type=int, default=3, help="samples per operator and category")
    parser.add_argument("--all", action="store_true", help="every sample of the database")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", help="write the results to this file")
    options = parser.parse_args()

    names = [name for name in FORMATTED_OPS if re.search(options.ops, name)]
    limit = None if options.all else options.limit

    def report(result: Result) -> None:
        if result["status"] not in ("pass", "skip"):
            line = f"{result['status']:6s} {result['op']} [{result['category']}] {result['detail']}"
            print(line, flush=True)

    samples = dict.fromkeys(options.categories, limit)
    results = run(names, samples, options.device, options.workers, report=report)
    print(summary(results))
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
