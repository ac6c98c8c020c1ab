"""The processes that take part in collectives: who they are, and how bytes go between them.

Several processes of one program, started by torchrun, torch_xla.launch or xmp.spawn, or joined by
torch.distributed.init_process_group("xla"). What they exchange goes through the hosts' memory, over
gloo. Nothing is connected before the first exchange. In SPMD mode the processes are one program
and the world has one member.
"""

import atexit
import functools
import importlib
import os
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from torch_xla import _XLAC

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

# Set for the processes of xmp.spawn, and by torchrun for its own.
SPAWNED = "TORCH_XLA_SPAWNED"
_TORCHRUN = "TORCHELASTIC_RUN_ID"
_DEFAULT_TIMEOUT = 1800


@dataclass
class _Member:
    rank: int
    size: int
    store: "Store | None" = None
    timeout: timedelta | None = None


_joined: _Member | None = None


def _member() -> _Member:
    if _XLAC.spmd_enabled():
        return _Member(0, 1)
    if _joined is not None:
        return _joined
    started = SPAWNED in os.environ or _TORCHRUN in os.environ
    if not started or _XLAC.process_count() > 1:
        return _Member(0, 1)
    return _Member(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))


def rank() -> int:
    return _member().rank


def size() -> int:
    return _member().size


def local_rank() -> int:
    return int(os.environ.get("LOCAL_RANK", rank())) if size() > 1 else 0


def local_size() -> int:
    return int(os.environ.get("LOCAL_WORLD_SIZE", size())) if size() > 1 else 1


def join(rank: int, size: int, store: "Store", timeout: timedelta | None) -> None:
    """This process is number `rank` of `size`, which meet in `store`."""
    global _joined
    if _joined is not None and (_joined.rank, _joined.size) != (rank, size):
        raise RuntimeError(
            f"this process is number {_joined.rank} of {_joined.size} already, and cannot become "
            f"number {rank} of {size}: a process joins one world"
        )
    if _joined is None:
        _joined = _Member(rank, size, store, timeout)


def group_of(groups: Sequence[Sequence[int]] | None) -> tuple[int, ...]:
    """The members that this process exchanges with: those of its group, or all."""
    if not groups:
        return tuple(range(size()))
    for group in groups:
        if not set(group) <= set(range(size())):
            raise ValueError(f"groups hold ordinals below {size()}, got {list(groups)}")
    mine = [tuple(group) for group in groups if rank() in group]
    if len(mine) != 1:
        raise ValueError(f"ordinal {rank()} must be in one of the groups, got {list(groups)}")
    return mine[0]


def group_name(members: tuple[int, ...]) -> str:
    """The name of the group of these members, for `gloo`."""
    return ",".join(map(str, members))


class Gloo:
    """A gloo group, connected when it is first asked for. All are closed while the interpreter can
    still run: gloo's threads let go of tensors after the exchange, and with them of Python's
    objects."""

    def __init__(self, *place: Any) -> None:
        """`place`: the store where the members meet, this one's position, how many, how long."""
        self._place = place
        self._lock = threading.Lock()
        self._group: Any = None

    def connected(self) -> Any:
        with self._lock:
            if self._group is None:
                dist: Any = importlib.import_module("torch.distributed")
                self._group = dist.ProcessGroupGloo(*self._place)
                _connected.add(self)
            return self._group

    def close(self) -> None:
        """Waits for its threads."""
        self._group = None


_connected: weakref.WeakSet[Gloo] = weakref.WeakSet()
# A forked child has the groups of its parent, but not their threads.
os.register_at_fork(after_in_child=_connected.clear)


@atexit.register
def _close_all() -> None:
    for group in list(_connected):
        group.close()


_named: dict[str, Gloo] = {}  # groups of torch.distributed


def name_group(group: Gloo) -> str:
    """A name for a group, the same in all its members if all make their groups in the same
    order."""
    name = f"group {len(_named)}"
    _named[name] = group
    return name


def gloo(name: str) -> Any:
    """The gloo group of this name, which all its members ask for at the same time."""
    if name in _named:
        return _named[name].connected()
    group = _gloo(name, os.getpid())
    try:
        return group.connected()
    except RuntimeError as error:
        raise RuntimeError(
            f"process {rank()} of {size()} cannot reach the others of [{name}]: {error}"
        ) from error


@functools.cache
def _gloo(name: str, process: int) -> Gloo:
    dist: Any = importlib.import_module("torch.distributed")
    members = [int(member) for member in name.split(",")]
    place = dist.PrefixStore(f"torch_xla/{name}", store())
    return Gloo(place, members.index(rank()), len(members), timeout())


@functools.cache
def store() -> "Store":
    """Where the members meet."""
    if _joined is not None and _joined.store is not None:
        return _joined.store
    address = os.environ.get("MASTER_ADDR", "localhost")
    port = os.environ.get("MASTER_PORT")
    if port is None:
        raise RuntimeError(
            "the processes do not know where to meet: start them with torchrun, torch_xla.launch "
            "or xmp.spawn, or set MASTER_ADDR and MASTER_PORT"
        )
    # The agent of torchrun holds the store; else process 0 does.
    holds = rank() == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    dist: Any = importlib.import_module("torch.distributed")
    return dist.TCPStore(  # type: ignore[no-any-return]
        address, int(port), size(), holds, timeout(), wait_for_workers=False, multi_tenant=True
    )


def timeout() -> timedelta:
    """How long an exchange waits for a member."""
    if _joined is not None and _joined.timeout is not None:
        return _joined.timeout
    seconds = os.environ.get("TORCH_XLA_COLLECTIVE_TIMEOUT", str(_DEFAULT_TIMEOUT))
    return timedelta(seconds=float(seconds))
