"""Forward and backward of every model, once, against the CPU."""

import pytest
import tiny
import torch
import torch_xla
from models import Decoder, DecoderConfig
from work import Work


@pytest.mark.parametrize("name", tiny.MODELS)
def test_logits_and_gradients(name: str) -> None:
    case = tiny.MODELS[name]
    batch = case.batches(1)[0]
    reference, model = case.model(), case.model().to("xla")
    tiny.loss_of(reference, batch).backward()
    tiny.loss_of(model, (batch[0].to("xla"), batch[1].to("xla"))).backward()
    torch_xla.sync()
    for (path, expected), moved in zip(
        reference.named_parameters(), model.parameters(), strict=True
    ):
        scale = expected.grad.abs().max().item() + 1e-6
        difference = (moved.grad.cpu() - expected.grad).abs().max().item()
        assert difference < 2e-3 * scale, path


@pytest.mark.parametrize("name", tiny.MODELS)
def test_bfloat16_forward(name: str) -> None:
    case = tiny.MODELS[name]
    inputs = case.batches(1)[0][0]
    model = case.model().eval()
    with torch.no_grad():
        expected = model(inputs)
        with torch.autocast("xla", dtype=torch.bfloat16):
            logits = model.to("xla")(inputs.to("xla")).float().cpu()
    assert (logits - expected).abs().mean() < 0.03 * expected.abs().mean() + 0.01


def test_the_deep_decoder_has_the_parameters_of_the_benchmark() -> None:
    with torch.device("meta"):
        model = Decoder(DecoderConfig.deep())
    assert len(list(model.parameters())) == 9 * 100 + 3


def test_inference_repeats_one_program() -> None:
    case = tiny.MODELS["decoder"]
    model = case.model().to("xla").eval()
    works = []
    with torch.no_grad():
        for inputs, _ in case.batches(4):
            before = Work.so_far()
            logits = model(inputs.to("xla"))
            torch_xla.sync(wait=True)
            works.append(Work.so_far().since(before))
    assert logits.shape[-1] == tiny.VOCABULARY
    steady = Work(executions=1, compilations=0, fallbacks=0, device_to_host=0)
    assert works[1:] == [steady] * 3
