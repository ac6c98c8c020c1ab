"""Check what compilers do not: which folders include which, declared metrics, size of files, and
functions that hide others of their name."""

import re
import subprocess
import sys
from pathlib import Path

# From top to bottom: a folder includes only those after it.
LAYERS = [
    "pure",
    "compile",
    "record",
    "eager",
    "spmd",
    "execution",
    "trace",
    "values",
    "interpret",
    "host_ops",
    "tiers",
    "graph",
    "explain",
    "lower",
    "stablehlo",
    "serve",
    "program",
    "pjrt",
    "ir",
    "sharding",
    "timeline",
    "metrics",
    "base",
]
ATEN_LAYERS = set(LAYERS[: LAYERS.index("tiers")])
MAX_LINES = 600
METRICS = Path("src/metrics/metrics.inc")
FUNCTION = re.compile(
    r"^[a-zA-Z][\w:<>,&* ]*?[ &*](\w+)\(([^()]*)\)(?: const)?[;\s{]", re.MULTILINE
)
UNNAMED = re.compile(r"^namespace \{\n(.*?)^\}  // namespace\n", re.MULTILINE | re.DOTALL)


def functions_in(text: str) -> set[str]:
    """Those that begin a line, by name and types of parameters: those of no class."""
    found = set()
    for name, parameters in FUNCTION.findall(text):
        types = [re.sub(r"\s*\w+(\s*=.*)?$", "", one.strip()) for one in parameters.split(",")]
        found.add(f"{name}({', '.join(types)})")
    return found


def hidden_functions(sources: list[Path]) -> list[str]:
    """Files are compiled several at a time: where one has a function of its own like that of a
    header, the others' calls of the header's go to it."""
    texts = {path: path.read_text() for path in sources if path.parts[0] == "src"}
    declared: dict[str, Path] = {}
    for path, text in texts.items():
        if path.suffix == ".h":
            declared.update(dict.fromkeys(functions_in(text), path))
    return [
        f"{path}: {function} hides that of {declared[function]} in files compiled with it"
        for path, text in texts.items()
        if path.suffix == ".cpp"
        for part in UNNAMED.findall(text)
        for function in sorted(functions_in(part) & declared.keys())
    ]


def problems_of(path: Path) -> list[str]:
    text = path.read_text()
    found = []
    if text.count("\n") > MAX_LINES:
        found.append(f"{path}: {text.count(chr(10))} lines, more than {MAX_LINES}")
    if path.parts[0] != "src":
        return found
    if "at::parallel_for(" in text:
        found.append(f"{path}: at::parallel_for() has one thread here; use run_in_team()")
    layer = path.parts[1]
    for included in re.findall(r'#include "(\w+)/', text):
        if included in LAYERS and LAYERS.index(included) < LAYERS.index(layer):
            found.append(f"{path}: {layer}/ includes {included}/, which is above it")
    if layer not in ATEN_LAYERS and re.search(r"#include <(ATen|torch)/", text):
        found.append(f"{path}: {layer}/ includes ATen; it belongs in host_ops/ or above")
    if not path.stem.endswith("_test"):
        declared = re.findall(r"^(?:COUNTER|METRIC)\((\w+),", METRICS.read_text(), re.MULTILINE)
        for name in re.findall(r'metrics::(?:counter|metric)\("(\w+)"', text):
            if name not in declared:
                found.append(f"{path}: the metric {name} is not declared in {METRICS}")
    if "Python.h" in text or "pybind11" in text:
        found.append(f"{path}: the core knows no Python")
    return found


def chart() -> str:
    """The layers as docs/architecture.md shows them: those with ATen, and those without."""
    lower = LAYERS.index("tiers")
    return f"{' > '.join(LAYERS[:lower])}\n> {' > '.join(LAYERS[lower:])}"


def main() -> None:
    if sys.argv[1:] == ["--print"]:
        print(chart())
        return
    listing = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True)
    sources = [Path(name) for name in listing.stdout.splitlines()]
    checked = [path for path in sources if path.suffix in {".cpp", ".h", ".py"} and path.exists()]
    problems = [problem for path in checked for problem in problems_of(path)]
    problems += hidden_functions(checked)
    if chart() not in Path("docs/architecture.md").read_text():
        problems.append("docs/architecture.md: not the layers that dev/layers.py --print prints")
    print("\n".join(problems), end="\n" if problems else "")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
