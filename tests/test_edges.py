"""Whole numbers that grow beside a model leave its program as it is (src/graph/edges.h)."""

import pytest
import torch
import torch_xla
import torch_xla.debug.metrics as met
from process import output_of
from torch import nn


class Next(nn.Module):
    """A token from the last one, its position and which positions count."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(32, 16)
        self.places = nn.Embedding(64, 16)
        self.layers = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 32))

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        position = mask.long().sum(-1, keepdim=True) - 1
        hidden = self.embed(tokens[:, -1:].clone()) + self.places(position)
        return self.layers(hidden)[:, -1].argmax(-1)


def generate(model: nn.Module, count: int) -> tuple[torch.Tensor, list[bool]]:
    device = next(model.parameters()).device
    tokens = torch.tensor([[3, 4], [5, 6]], device=device)
    mask = torch.ones_like(tokens)
    ended = torch.zeros(2, dtype=torch.bool, device=device)
    seen = []
    with torch.no_grad():
        for _ in range(count):
            token = model(tokens, mask)
            tokens = torch.cat([tokens, token[:, None]], dim=-1)
            mask = torch.cat([mask, mask.new_ones(2, 1)], dim=-1)
            ended = ended | (token == 7)
            seen.append(ended.all().item())
    return tokens, seen


@pytest.mark.host_only("edges are interpreted where memory is the host's, and programs elsewhere")
def test_tokens_that_grow_are_one_program() -> None:
    torch.manual_seed(0)
    model = Next()
    expected, ends = generate(model, 24)
    model.to("xla")
    torch_xla.sync()
    met.clear_all()
    tokens, seen = generate(model, 24)
    assert torch.equal(tokens.cpu(), expected)
    assert seen == ends
    # The first run whole, then the core; on the way what only the first runs have.
    assert (met.counter_value("UncachedCompile") or 0) <= 4
    generate(model, 24)
    assert (met.counter_value("UncachedCompile") or 0) <= 4


@pytest.mark.host_only("edges are interpreted where memory is the host's, and programs elsewhere")
@pytest.mark.parametrize("tiers", ["off", "counted"])
def test_a_large_cache_that_each_token_writes_to_is_neither_copied_nor_another_program(
    tiers: str,
) -> None:
    output = output_of(
        """
        import torch, torch_xla
        import torch_xla.debug.metrics as met
        torch.manual_seed(0)
        weight, table = torch.randn(256, 256), torch.randn(32, 256)
        def generate(device):
            keys = torch.zeros(4096, 256, device=device)  # 4 MB
            w, t = weight.to(device), table.to(device)
            tokens = torch.tensor([3], device=device)
            mask = torch.ones(1, dtype=torch.int64, device=device)
            addresses = set()
            for step in range(12):
                place = mask.sum(-1, keepdim=True) - 1
                row = torch.nn.functional.embedding(tokens[-1:].clone(), t) @ w
                keys.index_copy_(0, place, row)
                token = (keys.sum(0, keepdim=True) @ t.T).argmax(-1)
                tokens = torch.cat([tokens, token])
                mask = torch.cat([mask, mask.new_ones(1)])
                (tokens == 40).any().item()
                if device == "xla" and step >= 4:
                    addresses.add(torch_xla._XLAC.host_address(keys))
            return tokens.tolist(), len(addresses)
        expected, _ = generate("cpu")
        torch_xla.sync()
        tokens, addresses = generate("xla")
        assert tokens == expected, (tokens, expected)
        print("places", addresses, "programs", met.counter_value("UncachedCompile") or 0)
        """,
        TORCH_XLA_TIERS=tiers,
    )
    _, places, _, programs = output.split()
    assert int(places) == 1 and int(programs) <= 5


@pytest.mark.host_only("programs call no kernels of this process elsewhere, and check no index")
def test_an_error_of_the_core_is_whose_reads_it() -> None:
    """The edges that do not need it have their values, and the device goes on."""
    output = output_of(
        """
        import torch, torch_xla
        table = torch.arange(32.0).reshape(8, 4).to("xla")
        ids = torch.tensor([1, 2], device="xla")
        for step in range(6):
            wrong = 9 if step == 4 else 1
            length = torch.full((1,), len(ids), device="xla")
            row = torch.nn.functional.embedding(ids[-1:] * wrong, table).sin().sum()
            grown = torch.cat([ids, ids.new_zeros(1) + step])
            try:
                print(round(row.item(), 3), grown.tolist(), length.item())
            except IndexError as error:
                print("IndexError", grown.tolist(), length.item())
            ids = grown.clamp(0, 7)
        """,
        TORCH_XLA_TIERS="off",
        TORCH_XLA_CHECK_INDICES="1",
    )
    lines = output.splitlines()
    assert len(lines) == 6
    assert [line.startswith("IndexError") for line in lines] == [False] * 4 + [True, False]
    assert lines[4].endswith("[1, 2, 0, 1, 2, 3, 4] 6")


def test_a_graph_of_one_shape_is_run_whole() -> None:
    weight = torch.randn(8, 8).to("xla")
    for _ in range(4):
        index = torch.arange(8, device="xla")
        value = (weight[index] @ weight).sum()
        order = index + 1
        met.clear_all()
        assert value.isfinite().item()
        assert met.metric_data("ExecuteTime")[0] == 1
        assert order.tolist() == list(range(1, 9))


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool])
def test_edges_alone_and_beside_each_other(dtype: torch.dtype) -> None:
    scale = torch.randn(4).to("xla")
    for n in range(1, 6):
        flags = (torch.arange(n) % 2).to(dtype)
        given = flags.to("xla")
        grown = torch.cat([given, given])
        assert grown.cpu().tolist() == torch.cat([flags, flags]).tolist()
        joined = torch.cat([grown, (scale > 0).to(dtype)])
        value = (scale.exp() * 2).sum()
        assert value.item() == pytest.approx((scale.cpu().exp() * 2).sum().item(), rel=1e-6)
        assert joined.cpu().tolist() == [
            *grown.cpu().tolist(),
            *(scale.cpu() > 0).to(dtype).tolist(),
        ]


@pytest.mark.host_only("edges are interpreted where memory is the host's, and programs elsewhere")
def test_bookkeeping_that_grows_by_itself_is_no_program_for_each_length() -> None:
    """A loop that asks at each token whether all have ended."""
    output = output_of(
        """
        import torch, torch_xla
        import torch_xla.debug.metrics as met
        def generate(device):
            tokens = torch.tensor([[3], [4]], device=device)
            mask, seen = torch.ones_like(tokens), []
            for step in range(20):
                token = (tokens[:, -1:] * 5 + mask.sum(-1, keepdim=True)).remainder(23)
                tokens = torch.cat([tokens, token], dim=-1)
                mask = torch.cat([mask, mask.new_ones(2, 1)], dim=-1)
                seen.append((tokens == 7).any(-1).all().item())
            return tokens.tolist(), mask.tolist(), seen
        assert generate("xla") == generate("cpu")
        assert generate("xla") == generate("cpu")
        print(met.counter_value("UncachedCompile") or 0)
        """,
        TORCH_XLA_TIERS="off",
    )
    assert int(output) <= 5
