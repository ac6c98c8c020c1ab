"""What three steps of a small model take in a new process, its optimizer's first included, and the
process's peak memory, beside the same on the CPU without this package.

Each process is one step of a round; prints medians and the range of seconds, imports not counted.
"""

import json
import resource
import statistics
import sys
import time

from timing import Worker

ROUNDS = 5


def work(device: str) -> None:
    import torch

    if device == "xla":
        import torch_xla  # noqa: F401
    started = time.perf_counter()
    layers = torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)
    model = torch.nn.Sequential(*layers).to(device)
    rows, classes = torch.randn(32, 64).to(device), torch.zeros(32, dtype=torch.long).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(rows), classes)
        loss.backward()
        optimizer.step()
        loss.item()
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps([seconds, peak]), flush=True)


def main() -> None:
    if len(sys.argv) > 1:
        work(sys.argv[1])
        return
    answers: dict[str, list[list[float]]] = {"cpu": [], "xla": []}
    for _ in range(ROUNDS):
        for device, found in answers.items():
            worker = Worker(sys.executable, __file__, device)
            found.append(json.loads(worker.answer()))
            worker.end()
    for device, found in answers.items():
        seconds, megabytes = zip(*found, strict=True)
        print(
            f"{device}: {statistics.median(seconds):.2f} s ({min(seconds):.2f} to "
            f"{max(seconds):.2f}), {statistics.median(megabytes):.0f} MB"
        )


if __name__ == "__main__":
    main()
