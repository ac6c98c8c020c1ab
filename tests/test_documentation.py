"""The documentation: links lead somewhere, every public name has its place, tutorials run."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
PACKAGE = ROOT / "python" / "torch_xla"

# What a page needs to run beyond the device.
ENVIRONMENT = {"tutorials/spmd.md": {"CPU_NUM_DEVICES": "8"}}
RUNNING = [DOCS / "index.md", DOCS / "device_api.md", *sorted((DOCS / "tutorials").glob("*.md"))]


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-") for text in headings}


@pytest.mark.parametrize(
    "page", [*PAGES, *ROOT.glob("*.md")], ids=lambda page: str(page.relative_to(ROOT))
)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http:", "https:", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"{page.name} links to {target}"
        if DOCS in page.parents:
            assert DOCS in linked.parents, f"{target} is not part of the site"
        if anchor:
            assert anchor in anchors(linked), f"{page.name} links to {target}"


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r"- ([\w./]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    assert listed == {str(page.relative_to(DOCS)) for page in PAGES}


def test_every_public_module_is_in_the_reference() -> None:
    public = set()
    for source in PACKAGE.rglob("*.py"):
        names = source.relative_to(PACKAGE.parent).with_suffix("").parts
        if names[-1] == "__init__":
            names = names[:-1]
        if not any(name.startswith("_") for name in names):
            public.add(".".join(names))
    text = "".join(page.read_text() for page in (DOCS / "api").glob("*.md"))
    documented = set(re.findall(r"^::: ([\w.]+)$", text, re.MULTILINE))
    assert {name for name in documented if "._internal" not in name} == public


def runs(page: Path) -> subprocess.Popen[str]:
    snippets = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    assert snippets
    environment = ENVIRONMENT.get(str(page.relative_to(DOCS)), {})
    return subprocess.Popen(
        [sys.executable, "-c", "\n".join(snippets)],
        env={**os.environ, "TORCH_XLA_TIERS": "counted", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.lazy_only
@pytest.mark.parametrize("page", RUNNING, ids=lambda page: str(page.relative_to(DOCS)))
def test_snippets_run(page: Path) -> None:
    process = runs(page)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors


@pytest.mark.skipif(
    importlib.util.find_spec("mkdocs") is None, reason="the documentation's packages are missing"
)
def test_the_site_is_built_without_warnings(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    reference = (tmp_path / "api" / "torch_xla.html").read_text()
    assert 'id="torch_xla.torch_xla.sync"' in reference
