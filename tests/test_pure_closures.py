"""Optimizers that call a closure, and decide by what it returns: its closure is what is traced."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch_xla
from steps import batches, mlp
from torch import Tensor
from torch_xla.experimental.assume_pure import assume_pure

Closure = Callable[[], Tensor]

WRAPPERS: dict[str, Callable[[Closure], Closure]] = {
    "assume_pure": assume_pure,
    "compile": lambda closure: torch_xla.compile(closure, assume_pure=True),
}


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_XLA_TIERS", "never")


def train(wrap: Callable[[Closure], Closure], line_search: str | None) -> tuple[list[float], Any]:
    model = mlp()
    optimizer = torch.optim.LBFGS(
        model.parameters(), lr=0.5, max_iter=4, line_search_fn=line_search
    )
    ((x, y),) = batches(1, size=20)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    wrapped = wrap(closure)
    losses = [optimizer.step(wrapped).item() for _ in range(5)]  # type: ignore[arg-type]
    return losses, wrapped


@pytest.mark.parametrize("line_search", [None, "strong_wolfe"])
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_the_closure_of_lbfgs_is_traced_once(wrapper: str, line_search: str | None) -> None:
    plain, _ = train(lambda closure: closure, line_search)
    traced, closure = train(WRAPPERS[wrapper], line_search)
    torch.testing.assert_close(traced, plain, rtol=1e-5, atol=1e-6)
    assert plain[-1] < plain[0] and closure.cache_info().traces == 1


def test_a_traced_step_of_lbfgs_says_what_to_do() -> None:
    model = mlp()
    optimizer = torch.optim.LBFGS(model.parameters())
    ((x, y),) = batches(1)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    @assume_pure
    def step() -> None:
        optimizer.step(closure)  # type: ignore[arg-type]

    step()
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(RuntimeError, match=r"assume_pure\(closure\)") as refused:
        step()
    line = step._function.__code__.co_firstlineno + 2
    assert f"{__file__.rpartition('/')[2]}:{line}" in str(refused.value)
    for p, q in zip(model.parameters(), before, strict=True):
        assert torch.equal(p, q)
