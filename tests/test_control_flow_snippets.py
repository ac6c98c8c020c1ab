"""The examples of docs/control_flow.md run as they stand there."""

import re
from pathlib import Path

import pytest
import torch
from work import Work

_PAGE = Path(__file__).parents[1] / "docs" / "control_flow.md"
_SNIPPETS = re.findall(r"```python\n(.*?)```", _PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize("snippet", _SNIPPETS, ids=lambda text: text.splitlines()[-1][:40])
def test_snippet(snippet: str) -> None:
    names: dict[str, object] = {}
    before = Work.so_far()
    exec(compile(snippet, str(_PAGE), "exec"), names)
    tensors = [value for value in names.values() if isinstance(value, torch.Tensor)]
    gradients = [tensor.grad for tensor in tensors if tensor.is_leaf and tensor.grad is not None]
    for tensor in (*tensors, *gradients):
        assert torch.isfinite(tensor).all()
    assert Work.so_far().since(before).fallbacks == 0
