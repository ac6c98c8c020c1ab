"""What `python -m torch_xla` can do: a module for each command, listed in COMMANDS.

A module's `add_to(commands)` adds its parser, whose default `run` takes the parsed arguments and
returns the exit status.
"""

from torch_xla._internal.commands import cache, export

COMMANDS = (cache, export)
