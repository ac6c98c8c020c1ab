"""The data sets of suites_hub.py: made of lines of our own pages, or by a suite's scripts."""

import functools
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
REVISION = "0" * 40

# Data sets of sentences and numbers: their configuration and columns.
DATASETS = {
    "sentence-transformers/stsb": ("default", "sentence1 sentence2 score"),
    "sentence-transformers/all-nli": ("pair-class", "premise hypothesis label"),
    "sentence-transformers/natural-questions": ("default", "query answer"),
    "ybelkada/english_quotes_copy": ("default", "quote author"),
    "nyu-mll/glue": ("sst2", "sentence label idx"),
}
SPLITS = ("train", "validation", "test")


@functools.cache
def text() -> list[str]:
    return [line for page in sorted(ROOT.glob("*.md")) for line in page.read_text().splitlines()]


def values(column: str) -> list[Any]:
    """200 numbers, or lines, others in each column."""
    if column == "score":
        return [row % 10 / 10 for row in range(200)]
    if column in ("label", "idx"):
        return [row % 2 if column == "label" else row for row in range(200)]
    lines = [line for line in text() if len(line.split()) > 4]
    return [lines[(row + sum(column.encode())) % len(lines)] for row in range(200)]


def write_dataset(cache: Path, name: str, configuration: str, splits: dict[str, Any]) -> None:
    """As `datasets` keeps what it has loaded once."""
    from datasets import DatasetInfo, Features
    from datasets.arrow_writer import ArrowWriter
    from datasets.splits import SplitDict, SplitInfo

    owner, _, short = name.partition("/")
    place = cache / "datasets" / f"{owner}___{short}" / configuration / "0.0.0" / REVISION
    if place.exists():
        return
    place.mkdir(parents=True)
    infos, features = SplitDict(dataset_name=short), Features()
    for split, rows in splits.items():
        features = rows.features
        writer = ArrowWriter(features=features, path=str(place / f"{short}-{split}.arrow"))
        for row in rows:
            writer.write(row)
        writer.finalize()
        infos.add(SplitInfo(split, num_examples=len(rows), dataset_name=short))
    information = {"dataset_name": short, "config_name": configuration, "version": "0.0.0"}
    DatasetInfo(features=features, splits=infos, **information).write_to_directory(str(place))


def write_datasets(cache: Path, folder: Path) -> None:
    """Lines of our pages, and those that scripts of the suite make, which push them to the hub."""
    from datasets import Dataset, DatasetDict

    for name, (configuration, columns) in DATASETS.items():
        made = Dataset.from_dict({column: values(column) for column in columns.split()})
        write_dataset(cache, name, configuration, dict.fromkeys(SPLITS, made))

    def keep(splits: Any, name: str, config_name: str = "default", **_: Any) -> None:
        splits = splits if isinstance(splits, DatasetDict) else {"train": splits}
        write_dataset(cache, name, config_name, splits)

    DatasetDict.push_to_hub = Dataset.push_to_hub = keep
    for script in sorted(folder.glob("scripts/generate_*_dataset.py")):
        main = runpy.run_path(str(script))["main"]
        name = re.findall(r"""default="([\w-]+/[\w-]+)""", script.read_text())[0]
        attempt(name, functools.partial(main, 0.1, True, name))  # a tenth to test; push


def attempt(name: str, make: Callable[[], None]) -> bool:
    try:
        make()
        return True
    except Exception as error:  # many a configuration has demands of its own
        print(f"not on this hub: {name}: {error!r:.300}")
        return False
