"""`python -m torch_xla COMMAND`; without a command, a report of the environment."""

import argparse
import sys

from torch_xla._internal.commands import COMMANDS, report
from torch_xla._internal.commands.refusal import Refusal


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m torch_xla",
        description="Without a command: a report of the environment, for bug reports.",
    )
    parser.set_defaults(run=report.run)
    commands = parser.add_subparsers(metavar="COMMAND")
    for command in COMMANDS:
        command.add_to(commands)
    options = parser.parse_args(arguments)
    try:
        return int(options.run(options))
    except Refusal as refusal:
        print(refusal, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
