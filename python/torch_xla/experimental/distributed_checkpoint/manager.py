"""Numbered checkpoints of a training run in one folder."""

import logging
import os
import shutil
import signal
import threading
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from torch_xla._internal.transfer import to_cpu
from torch_xla.experimental.distributed_checkpoint.planners import SPMDLoadPlanner, SPMDSavePlanner

_logger = logging.getLogger(__name__)
_watching = threading.Event()
_told_to_end = threading.Event()


def _watch_for_the_end() -> None:
    """Notes the first SIGTERM, which machines send before they are taken away; the next one does
    what it did before. Signals can be watched from the main thread only."""
    if threading.current_thread() is not threading.main_thread() or _watching.is_set():
        return
    previous = signal.getsignal(signal.SIGTERM)

    def note(*_: Any) -> None:
        signal.signal(signal.SIGTERM, previous)
        _watching.clear()
        _told_to_end.set()

    signal.signal(signal.SIGTERM, note)
    _watching.set()


class CheckpointManager:
    """Saves the state of a run every `save_interval` steps below `path`, and keeps the newest
    `max_to_keep` checkpoints (0: all). A checkpoint counts once it is complete."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        save_interval: int,
        max_to_keep: int = 0,
        max_pending_async: int = 1,
        num_of_threads: int = 1,
        process_group: Any = None,
        chkpt_on_preemption: bool = True,
    ) -> None:
        if save_interval < 1:
            raise ValueError(f"save_interval must be at least 1, got {save_interval}")
        if chkpt_on_preemption:
            _watch_for_the_end()
        self._on_preemption = chkpt_on_preemption
        self._last_step: int | None = None
        self._path = Path(path)
        self._save_interval = save_interval
        self._max_to_keep = max_to_keep
        self._threads = num_of_threads
        self._process_group = process_group
        self._pending: threading.Thread | None = None
        self._failure: BaseException | None = None

    def all_steps(self) -> list[int]:
        """The steps of which there is a complete checkpoint."""
        return sorted(int(done.parent.name) for done in self._path.glob("[0-9]*/.metadata"))

    def reached_preemption(self, step: int) -> bool:
        """Whether this is the last step to save: the first that is asked about after a process of
        the run was told to end (SIGTERM). All processes ask about the same steps."""
        if not self._on_preemption:
            raise RuntimeError(
                "Preemption detection not enabled. reached_preemption: create the "
                "CheckpointManager with chkpt_on_preemption=True"
            )
        if self._last_step is None and self._anybody_told():
            self._last_step = step
        return step == self._last_step

    def _anybody_told(self) -> bool:
        told = _told_to_end.is_set()
        if not dist.is_initialized() or dist.get_world_size(self._process_group) == 1:
            return told
        anybody = torch.tensor(int(told))
        dist.all_reduce(anybody, dist.ReduceOp.MAX, group=self._process_group)
        return bool(anybody.item())

    def should_save(self, step: int) -> bool:
        """Whether `step` is one to save: by its number, or because the run is about to end."""
        if step % self._save_interval == 0:
            return True
        if not self._on_preemption or not self.reached_preemption(step):
            return False
        _logger.warning("told to end at step %d: saving a checkpoint", step)
        return True

    def save(self, step: int, state_dict: dict[str, Any], force: bool = False) -> bool:
        """Saves and returns True if `step` is one to save, or with `force`."""
        if not force and not self.should_save(step):
            return False
        self.join()
        self._write(step, state_dict, SPMDSavePlanner())
        return True

    def save_async(self, step: int, state_dict: dict[str, Any], force: bool = False) -> bool:
        """The same in a thread, of a copy of the state on the host."""
        if not force and not self.should_save(step):
            return False
        self.join()
        copy = to_cpu(state_dict)
        self._pending = threading.Thread(
            target=self._write_in_thread, args=(step, copy), name="torch_xla-checkpoint"
        )
        self._pending.start()
        return True

    def restore(self, step: int, state_dict: dict[str, Any]) -> None:
        """Loads into the tensors of `state_dict`, which keep their shardings, and replaces its
        other values."""
        self.join()
        load(
            state_dict,
            checkpoint_id=str(self._path / str(step)),
            planner=SPMDLoadPlanner(),
            process_group=self._process_group,
            no_dist=not dist.is_initialized(),
        )

    def join(self) -> None:
        """Waits for a pending save, and raises what went wrong with it."""
        if self._pending is not None:
            self._pending.join()
            self._pending = None
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise RuntimeError("an asynchronous checkpoint failed") from failure

    def _write(self, step: int, state_dict: dict[str, Any], planner: Any) -> None:
        save(
            state_dict,
            storage_writer=FileSystemWriter(self._path / str(step), thread_count=self._threads),
            planner=planner,
            process_group=self._process_group,
            no_dist=not dist.is_initialized(),
        )
        if self._max_to_keep > 0:
            for old in self.all_steps()[: -self._max_to_keep]:
                shutil.rmtree(self._path / str(old))

    def _write_in_thread(self, step: int, state_dict: dict[str, Any]) -> None:
        try:
            self._write(step, state_dict, None)
        except BaseException as error:
            self._failure = error
