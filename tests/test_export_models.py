"""Whole models leave as StableHLO, come back from a folder, and give the CPU's results."""

from pathlib import Path

import pytest
import torch
from tiny import MODELS
from torch import Tensor, nn
from torch_xla import stablehlo


def reloaded(program: torch.export.ExportedProgram, folder: Path) -> stablehlo.StableHLOGraphModule:
    stablehlo.save_as_stablehlo(program, folder)
    module = stablehlo.StableHLOGraphModule.load(folder)
    assert "custom_call" not in module.get_stablehlo_text()
    return module


def assert_same(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual.cpu(), expected.detach(), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_the_examples_models(name: str, tmp_path: Path) -> None:
    model, inputs = MODELS[name].model().eval(), MODELS[name].batches(1)[0][0]
    module = reloaded(torch.export.export(model, (inputs,)), tmp_path)
    for given in (inputs, inputs.flip(0)):
        assert_same(module(given), model(given))


def test_bert(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2}
    config = transformers.BertConfig(vocab_size=64, num_hidden_layers=2, **sizes)
    torch.manual_seed(0)
    model = transformers.BertModel(config).eval()
    tokens = torch.randint(0, 64, (2, 12))
    mask = (torch.arange(12) < torch.tensor([[12], [7]])).long()
    given = {"input_ids": tokens, "attention_mask": mask}
    module = reloaded(torch.export.export(model, (), given, strict=False), tmp_path)
    results, expected = module(**given), model(**given)
    assert_same(results["last_hidden_state"], expected.last_hidden_state)
    assert_same(results["pooler_output"], expected.pooler_output)


def test_llama_with_a_static_cache(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    from transformers.integrations.executorch import convert_and_export_with_cache

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}
    config = transformers.LlamaConfig(
        vocab_size=64, num_hidden_layers=2, num_key_value_heads=2, **sizes
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).eval()
    cache = {"batch_size": 1, "max_cache_len": 16}
    model.generation_config = transformers.GenerationConfig(
        use_cache=True, cache_implementation="static", max_length=16, cache_config=cache
    )
    token, place = torch.tensor([[5]]), torch.tensor([0])
    program = convert_and_export_with_cache(model, token, place)
    module = reloaded(program, tmp_path)
    assert module._bundle.stablehlo_funcs[0].meta.changed_buffers  # the cache
    tokens = torch.tensor([[5, 9, 33, 2]])
    expected = model(tokens).logits[0]
    for i in range(tokens.shape[1]):
        logits = module(input_ids=tokens[:, i : i + 1], cache_position=torch.tensor([i]))
        assert_same(logits[0, 0], expected[i])


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        self.total += x
        return self.total * 2


def test_buffers_that_a_program_changes_are_kept(tmp_path: Path) -> None:
    module = reloaded(torch.export.export(Counter(), (torch.ones(3),)), tmp_path)
    assert [module(torch.full((3,), value)).tolist() for value in (1.0, 2.0)] == [[2] * 3, [6] * 3]
    again = stablehlo.StableHLOGraphModule.load(tmp_path)
    assert again(torch.ones(3)).tolist() == [2] * 3


def test_an_export_with_numbers_beside_constants_is_decomposed() -> None:
    """PyTorch replaces `item` meanwhile by a function that a number of Python's does not suit."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rate = torch.as_tensor(42, device="xla")

        def forward(self, x: Tensor) -> Tensor:
            return x * (0.5 * torch.as_tensor(self.rate, device=x.device))

    x = torch.arange(6.0, device="xla").view(2, 3)
    program = torch.export.export(Scaled(), (x,)).run_decompositions({})
    assert torch.equal(program.module()(x), 21 * x)
