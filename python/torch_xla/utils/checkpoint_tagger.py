"""Names ("latest", "best") for checkpoints, which are removed when no name is left."""

import json
from collections.abc import Callable
from typing import Any


class CheckpointTagger:
    """Names of checkpoints' paths. `remover(path)` is called when the last name of a path goes."""

    def __init__(self, remover: Callable[[str], Any] | None = None) -> None:
        if remover is not None and not callable(remover):
            raise TypeError(f"CheckpointTagger: remover must be callable, got {remover!r}")
        self._remover = remover
        self._tags: dict[str, str] = {}

    def tag(self, name: str, path: str) -> None:
        """From now on `name` stands for `path`."""
        former = self._tags.get(name)
        self._tags[name] = path
        if former is not None and former not in self._tags.values() and self._remover is not None:
            self._remover(former)

    @property
    def tags(self) -> dict[str, str]:
        return self._tags

    def save_to_json(self) -> str:
        return json.dumps(self._tags)

    @classmethod
    def load_from_json(
        cls, str_json: str, remover: Callable[[str], Any] | None = None
    ) -> "CheckpointTagger":
        tagger = cls(remover)
        tagger._tags.update(json.loads(str_json))
        return tagger
