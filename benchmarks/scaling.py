"""What more processors bring: steps on one, two, ... of them, beside CPU eager's on as many.

Each runs in a process of its own that may use that many processors only, in turn (suite.py).
"""

import argparse
import os
import statistics

from suite import CONTENDERS, SECONDS_A_TURN, contend
from timing import Contender, take_turns


def on(processors: int, workload: str, name: str) -> Contender:
    return contend(
        workload, name, before=("taskset", "-c", f"0-{processors - 1}"),
        OMP_NUM_THREADS=str(processors),
    )  # fmt: skip


def measure(workload: str, name: str, most: int, rounds: int) -> None:
    one: dict[str, float] = {}
    for processors in range(1, most + 1):
        contenders = [on(processors, workload, side) for side in ("cpu", name)]
        ratio = statistics.median(take_turns(contenders, rounds, SECONDS_A_TURN)[name])
        took = {side.name: statistics.median(side.turns) for side in contenders}
        one = one or took
        text = ", ".join(
            f"{side} {ms:.1f} ms ({one[side] / ms:.2f} x)" for side, ms in took.items()
        )
        print(f"{workload} on {processors}: {text}; ratio {ratio:.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=["decoder", "resnet50"], metavar="WORKLOAD")
    parser.add_argument("--contender", default="traced", choices=CONTENDERS)
    parser.add_argument("--most", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for workload in options.only:
        measure(workload, options.contender, options.most, options.rounds)


if __name__ == "__main__":
    main()
