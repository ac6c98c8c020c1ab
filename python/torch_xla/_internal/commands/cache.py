"""`python -m torch_xla cache`: the programs on disk."""

import argparse
import sys
import time
from typing import Any

from torch_xla import _XLAC


def add_to(commands: Any) -> None:
    parser = commands.add_parser("cache", help="list, verify or delete the programs on disk")
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    for action, description in (
        (list_programs, "each program: when it was used last, its size, its name"),
        (size, "how many there are, and how much room they take"),
        (verify, "read every program, and name those that would not be used"),
        (clear, "delete them all"),
    ):
        name = action.__name__.removesuffix("_programs")
        part = actions.add_parser(name, help=description, description=description)
        part.add_argument("--dir", help="the cache's folder, if not the one in use")
        part.set_defaults(run=run, action=action)


def run(options: argparse.Namespace) -> int:
    directory = options.dir or _XLAC.default_cache_directory()
    if not directory:
        print("no folder: name one with --dir or TORCH_XLA_CACHE_DIR", file=sys.stderr)
        return 1
    try:
        return int(options.action(directory))
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1


def list_programs(directory: str) -> int:
    for entry in _XLAC.list_cache(directory, verify=False):
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used))
        print(f"{used} {entry.size:12,}  {entry.problem and described(entry) or entry.name}")
    return size(directory)


def size(directory: str) -> int:
    print(f"{total(_XLAC.list_cache(directory, verify=False))} in {directory}")
    return 0


def verify(directory: str) -> int:
    entries = _XLAC.list_cache(directory, verify=True)
    refused = [entry for entry in entries if entry.problem]
    for entry in refused:
        print(described(entry))
    print(f"{total(entries)} in {directory}, {len(refused)} of them not used")
    return 1 if refused else 0


def clear(directory: str) -> int:
    before = _XLAC.list_cache(directory, verify=False)
    left = _XLAC.clear_cache(directory)
    for entry in left:
        print(f"not deleted: {described(entry)}")
    gone = {entry.file for entry in before} - {entry.file for entry in left}
    print(f"deleted {total([e for e in before if e.file in gone])} in {directory}")
    return 1 if left else 0


def described(entry: _XLAC.CacheEntry) -> str:
    return f"{entry.file}: {entry.problem}"


def total(entries: list[_XLAC.CacheEntry]) -> str:
    megabytes = sum(entry.size for entry in entries) / 2**20
    return f"{len(entries)} {'entry' if len(entries) == 1 else 'entries'} of {megabytes:.1f} MB"
