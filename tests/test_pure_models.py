"""assume_pure on whole models: the numbers of the undecorated ones."""

import copy

import pytest
import tiny
import torch
import torch.nn.functional as F
import torch_xla
from torch import Tensor, nn
from torch_xla.experimental.assume_pure import PureModule, assume_pure

STEPS = 20
MODELS = tiny.MODELS | tiny.WITH_DROPOUT
del MODELS["resnet50"]  # resnet18 has all its parts


def losses(model: nn.Module, case: tiny.Tiny) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=case.learning_rate)
    torch.manual_seed(7)
    result = []
    for batch in case.batches(STEPS):
        optimizer.zero_grad()
        loss = tiny.loss_of(model, (batch[0].to("xla"), batch[1].to("xla")))
        loss.backward()
        optimizer.step()
        torch_xla.sync()
        result.append(loss.detach())
    return [loss.item() for loss in result]


@pytest.mark.parametrize("name", MODELS)
def test_training_tracks_the_plain_model(name: str) -> None:
    case = MODELS[name]
    plain = case.model().to("xla")
    pure = PureModule(copy.deepcopy(plain))
    expected, actual = losses(plain, case), losses(pure, case)
    torch.testing.assert_close(actual[0], expected[0], rtol=1e-5, atol=1e-6)
    # Other fusions round otherwise, and training amplifies it.
    torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-4)
    assert pure.cache_info().traces == 1


def test_a_whole_step_as_one_pure_function() -> None:
    model = nn.Linear(4, 1).to("xla")
    x, y = torch.randn(16, 4, device="xla"), torch.randn(16, 1, device="xla")
    plain = copy.deepcopy(model)

    def step(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        loss = F.mse_loss(module(x), y)
        grads = torch.autograd.grad(loss, list(module.parameters()))
        with torch.no_grad():
            for parameter, grad in zip(module.parameters(), grads, strict=True):
                parameter.sub_(grad, alpha=0.1)
        return loss.detach()

    pure = assume_pure(step)
    for _ in range(STEPS):
        torch.testing.assert_close(pure(model, x, y), step(plain, x, y))
        torch_xla.sync()
    assert pure.cache_info().traces == 1
