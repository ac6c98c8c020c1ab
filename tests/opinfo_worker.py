"""Checks operators named on stdin, one request a line, and answers in JSON lines.

A process of its own, so that a crash or a hang costs one answer and not the run.
"""

import json
import os
import sys
import traceback
import warnings
from dataclasses import asdict
from typing import Any

import torch
from opinfo_check import FORMATTED_OPS, check_op


def main() -> None:
    device = sys.argv[1]
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what operators print must not mix with the answers
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if device.startswith("xla"):
        import torch_xla  # noqa: F401  (registers the device)

    def answer(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")

    answer({"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        op = FORMATTED_OPS[request["op"]]
        try:
            outcome = check_op(
                op,
                request["category"],
                device,
                request["limit"],
                lambda index: answer({"sample": index}),
            )
            answer({"outcome": asdict(outcome)})
        except Exception:
            answer({"outcome": {"status": "raises", "detail": traceback.format_exc()[-800:]}})


if __name__ == "__main__":
    main()
