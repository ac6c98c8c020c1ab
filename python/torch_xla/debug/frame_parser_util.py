"""Which Python lines ran operators outside of programs, from the stack traces that PyTorch/XLA 2.9
writes (PT_XLA_DEBUG_FILE). Here torch_xla.debug.recompiles() and the counters `aten::<op>` say it.
"""

import logging
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping

_logger = logging.getLogger("torch_xla.debug.frame_parser_util")

_FRAME = re.compile(r".*\s\(.*:\d*\)")
_OPERATOR = re.compile(r"\[TAG\s(.*)\sFrom Thread\s\d*\]")
_END = "*** End stack trace ***"


def parse_frame_content(line: str) -> str | None:
    """A line of a trace that is to be reported, as it is reported; None for others."""
    if line.startswith("Python Frames:") or _FRAME.match(line):
        return line
    operator = _OPERATOR.match(line)
    return f'Unlowered Op: "{operator.group(1)}"\n' if operator else None


def parse_frames(lines: Iterable[str]) -> dict[str, int]:
    """How often each stack of Python frames occurs; frames of C++ are left out."""
    found: Counter[str] = Counter()
    stack: list[str] = []
    in_cpp = False
    for line in [*lines, ""]:
        in_cpp = (in_cpp or line.startswith("C++ Frames:")) and not line.startswith(_END)
        content = None if in_cpp else parse_frame_content(line)
        if content is not None:
            stack.append(content)
        elif stack and not in_cpp:
            found["".join(stack)] += 1
            stack = []
    return dict(found)


def create_report(frames: Mapping[str, int]) -> None:
    """Appends what `parse_frames` found to PT_XLA_DEBUG_FILE, the most frequent first; without
    that variable it is logged."""
    rule = "=" * 80
    report = [
        rule,
        "Unlowered Op usage summary (more of these ops, lower performance)",
        "Note: _local_scalar_dense typically indicates CPU context access",
        "-" * 80,
    ]
    for frame, count in sorted(frames.items(), key=lambda item: -item[1]):
        report += [f"FRAME (count={count}):", frame, ""]
    report.append(rule)
    path = os.environ.get("PT_XLA_DEBUG_FILE")
    if path:
        with open(path, "a") as file:
            file.write("\n".join(report))
    else:
        for line in "\n".join(report).splitlines():
            _logger.warning("%s", line)


def process_frames(fname: str) -> None:
    """Reads a file of stack traces and reports on it."""
    with open(fname) as file:
        frames = parse_frames(file)
    create_report(frames)
