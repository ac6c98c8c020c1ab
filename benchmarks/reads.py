"""What a few small operations cost before a number is read, as often as filters and solvers do it.

Microseconds from the first operation to the number, by how many operations there are, of a Kalman
filter's likelihood with its gradient, and of an agent that acts and trains in turns. Each side
lives in a process of its own; they take turns, and of each length the best round counts.
`interpreted` and `program` say what the tiers choose between.
"""

import sys
import time
from collections.abc import Callable

from timing import best_in_turn, options_of, workers_of, write_json

SIDES = {
    "cpu": {},
    "eager": {},
    "lazy": {},
    "interpreted": {"TORCH_XLA_TIERS": "never"},
    "program": {"TORCH_XLA_TIER_RUNS": "32"},
}
LENGTHS = (4, 16, 32, 48, 64)


def chain(device: str, size: int, length: int) -> Callable[[], float]:
    import torch

    x = torch.randn(size, size).to(device) / size

    def read() -> float:
        y = x
        for i in range(length):
            y = torch.mm(y, x) if i % 4 == 0 else y + x
        return y[0, 0].item()

    return read


def kalman(device: str) -> Callable[[], float]:
    import torch

    torch.manual_seed(0)
    move, seen, data = (
        (torch.eye(6) + 0.01 * torch.randn(6, 6)).to(device),
        torch.randn(3, 6).to(device),
        torch.randn(100, 3).to(device),
    )
    noise = torch.zeros(3, device=device, requires_grad=True)

    def read() -> float:
        state, spread = torch.zeros(6, device=device), torch.eye(6, device=device)
        loss = torch.zeros((), device=device)
        for row in data:
            state, spread = move @ state, move @ spread @ move.T
            expected = seen @ spread @ seen.T + torch.diag(noise.exp())
            gain = torch.linalg.solve(expected, seen @ spread).T
            error = row - seen @ state
            loss = loss + torch.logdet(expected) + error @ torch.linalg.solve(expected, error)
            state, spread = state + gain @ error, spread - gain @ seen @ spread
        noise.grad = None
        loss.backward()
        return loss.item()

    return read


def agent(device: str) -> Callable[[], float]:
    """As Q-learning does it: acts four times by a small network, then trains it once."""
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU(),
        torch.nn.Linear(64, 2),
    ).to(device)  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    seen = torch.randn(64, 4).numpy()

    def act_and_train() -> float:
        for step in range(4):
            with torch.no_grad():
                values = model(torch.as_tensor(seen[step : step + 1], device=device))
                values.argmax(dim=1).cpu().numpy()
        states = torch.as_tensor(seen, device=device)
        with torch.no_grad():
            targets = states.sum(dim=1, keepdim=True) + 0.99 * model(states).amax(1, keepdim=True)
        chosen = model(states).gather(1, (states[:, :1] > 0).long())
        loss = torch.nn.functional.smooth_l1_loss(chosen, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return act_and_train


def works(device: str) -> dict[str, tuple[Callable[[], float], int]]:
    """And how often each is called in a round."""
    chains = {
        f"{length} operations on {size} x {size}": (chain(device, size, length), 200)
        for size in (6, 64)
        for length in LENGTHS
    }
    return chains | {
        "100 steps of a Kalman filter": (kalman(device), 2),
        "an agent's 4 acts and training": (agent(device), 100),
    }


def worker(side: str) -> None:
    import torch

    torch.manual_seed(0)
    if side != "cpu":
        import torch_xla

        torch_xla.experimental.eager_mode(side == "eager")
    calls = works("cpu" if side == "cpu" else "xla")
    for read, count in calls.values():
        for _ in range(600 if count > 2 else 6):
            read()
    for line in sys.stdin:
        read, count = calls[line.strip()]
        started = time.perf_counter()
        for _ in range(count):
            read()
        print((time.perf_counter() - started) / count * 1e6, flush=True)


def main() -> None:
    options = options_of(__doc__, worker, rounds=10)
    print(" " * 30 + "".join(f"{side:>12}" for side in SIDES) + "   lazy / cpu")
    results: dict[str, dict[str, float]] = {}
    with workers_of(__file__, SIDES) as workers:
        for name in works("cpu"):
            best = best_in_turn(workers, name, options.rounds)
            results[name] = {**best, "ratio": best["lazy"] / best["cpu"]}
            times = "".join(f"{best[side]:12.1f}" for side in SIDES)
            print(f"{name:30}{times}   {results[name]['ratio']:.2f}", flush=True)
    write_json(options.json, results)


if __name__ == "__main__":
    main()
