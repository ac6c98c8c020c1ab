"""What libraries rely on, with PyTorch alone: storages, ties, optimizers, checkpoints, autocast."""

import copy

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
import torch_xla
import torch_xla.amp
import torch_xla.amp.syncfree as syncfree
from torch import nn

DEVICE = torch.device("xla:0")


class TiedModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.norm = nn.LayerNorm(8)
        self.dropout = nn.Dropout(0.0)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.dropout(self.norm(self.embedding(tokens))))


def train(model, optimizer, steps=4, device=DEVICE):
    torch.manual_seed(0)
    tokens = torch.randint(0, 11, (4, 6)).to(device)
    losses = []
    for _ in range(steps):
        loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch_xla.sync()
        losses.append(loss.item())
    return losses


def same_model():
    torch.manual_seed(4)
    return TiedModel()


def test_storage_addresses_identify_storages():
    one, two = torch.zeros(6, device=DEVICE), torch.zeros(6, device=DEVICE)
    assert one.data_ptr() != 0 and one.data_ptr() != two.data_ptr()
    assert one.untyped_storage().nbytes() == 24
    assert one[2:].untyped_storage().data_ptr() == one.untyped_storage().data_ptr()
    assert one[2:].data_ptr() == one.data_ptr() + 8
    assert one.view(2, 3).flatten()[-1].data_ptr() == one.data_ptr() + 20
    address = one.data_ptr()
    one.add_(1)
    torch_xla.sync()
    assert one.data_ptr() == address
    assert one[1:].is_set_to(one[1:]) and torch._C._is_alias_of(one, one[2:])


def test_ties_and_optimizers_survive_the_move():
    model = same_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    parameters = dict(model.named_parameters())
    model.to("xla")
    assert model.head.weight is model.embedding.weight
    assert all(value is parameters[name] for name, value in model.named_parameters())
    assert model.head.weight.device == DEVICE
    reference = same_model()
    expected = train(reference, torch.optim.SGD(reference.parameters(), lr=0.5), device="cpu")
    assert train(model, optimizer) == pytest.approx(expected, rel=1e-4)
    assert expected[-1] < expected[0]
    model.cpu()
    assert model.head.weight is model.embedding.weight
    torch.testing.assert_close(model.state_dict(), reference.state_dict(), rtol=1e-4, atol=1e-5)


def test_models_copy_and_load():
    model = same_model().to("xla")
    twin = copy.deepcopy(model)
    assert twin.head.weight is twin.embedding.weight is not model.head.weight
    with torch.no_grad():
        twin.norm.weight.add_(1)
    model.load_state_dict(twin.state_dict())
    assert model.norm.weight.tolist() == [2.0] * 8
    model.load_state_dict({key: value.cpu() for key, value in same_model().state_dict().items()})
    assert model.norm.weight.tolist() == [1.0] * 8 and model.norm.weight.device == DEVICE


@pytest.mark.parametrize(
    "kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad]
)
def test_fused_optimizers_are_accepted(kind):
    model, reference = same_model().to("xla"), same_model()
    losses = train(model, kind(model.parameters(), lr=0.05, fused=True))
    expected = train(reference, kind(reference.parameters(), lr=0.05), device="cpu")
    assert losses == pytest.approx(expected, rel=1e-4)


def test_fused_step_is_one_execution(counters):
    model = same_model().to("xla")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, fused=True)
    tokens = torch.arange(8, device=DEVICE)
    executed = []
    for _ in range(4):
        F.cross_entropy(model(tokens), tokens).backward()
        optimizer.step()
        optimizer.zero_grad()
        torch_xla.sync()
        executed.append(counters("ExecuteTime"))
    assert executed[3] - executed[2] == 1


def checkpointed_gradient(use_reentrant, dropout):
    torch.manual_seed(9)
    layer = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 1))
    layer.to("xla")
    x = torch.linspace(-1, 1, 8).view(2, 4).to(DEVICE).requires_grad_()
    torch.manual_seed(10)
    y = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=use_reentrant)
    torch.manual_seed(10)
    plain = layer(x)
    y.sum().backward()
    recomputed = x.grad.clone()
    x.grad = None
    plain.sum().backward()
    return y, plain, recomputed, x.grad


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_checkpoint_repeats_the_random_numbers(use_reentrant, dropout):
    y, plain, recomputed, gradient = checkpointed_gradient(use_reentrant, dropout)
    torch.testing.assert_close(y.cpu(), plain.cpu())
    torch.testing.assert_close(recomputed.cpu(), gradient.cpu())


def test_checkpoint_does_not_read_the_device(counters):
    layer = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).to("xla")
    x = torch.ones(2, 4, device=DEVICE, requires_grad=True)
    torch_xla.sync()
    torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False).sum().backward()
    assert counters("TransferFromDeviceTime") == 0
    executed = counters("ExecuteTime")
    torch_xla.sync()
    assert counters("ExecuteTime") == executed + 1


def attention_block(q, k, v, weight):
    hidden = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return F.layer_norm(hidden @ weight, (4,))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_casts_as_cuda_does(dtype):
    q, k = (torch.randn(2, 2, 5, 4, device=DEVICE) for _ in range(2))
    v = torch.randn(2, 2, 5, 4, device=DEVICE, dtype=dtype)  # a mix that fails without the cast
    weight = torch.randn(4, 4, device=DEVICE, requires_grad=True)
    with torch.autocast("xla", dtype=dtype):
        assert (q @ weight).dtype == dtype
        assert F.scaled_dot_product_attention(q, k, v).dtype == dtype
        assert F.softmax(q.to(dtype), -1).dtype == torch.float32
        result = attention_block(q, k, v, weight)
        with torch.autocast("xla", enabled=False):
            assert (q @ weight).dtype == torch.float32
    result.sum().backward()
    assert weight.grad.dtype == torch.float32
    expected = attention_block(q.cpu(), k.cpu(), v.cpu().float(), weight.detach().cpu())
    torch.testing.assert_close(result.float().cpu(), expected, rtol=0.1, atol=0.1)


def test_autocast_of_the_package():
    with torch_xla.amp.autocast(DEVICE, dtype=torch.bfloat16):
        assert torch.is_autocast_enabled("xla")
        ones = torch.ones(2, 2, device=DEVICE)
        assert (ones @ ones).dtype == torch.bfloat16
    assert not torch.is_autocast_enabled("xla")


@pytest.mark.parametrize("kind", [syncfree.SGD, syncfree.AdamW, torch.optim.SGD])
def test_grad_scaler_skips_steps_that_overflow(kind):
    weight = nn.Parameter(torch.ones(2, device=DEVICE))
    optimizer = kind([weight], lr=0.5)
    scaler = torch_xla.amp.GradScaler(init_scale=4.0, growth_interval=1)

    def step(factor):
        optimizer.zero_grad()
        scaler.scale((weight * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        return weight.tolist()

    after = step(1.0)
    assert after == pytest.approx([0.5, 0.5], abs=0.01)
    assert scaler.get_scale() == 8.0
    assert step(float("inf")) == after
    assert scaler.get_scale() == 4.0


@pytest.mark.parametrize(
    ("kind", "options"), [(syncfree.AdamW, {}), (torch.optim.SGD, {"use_zero_grad": True})]
)
def test_scaler_steps_that_read_nothing(counters, kind, options):
    weight = nn.Parameter(torch.ones(2, device=DEVICE))
    optimizer = kind([weight], lr=0.5)
    scaler = torch_xla.amp.GradScaler(**options)
    torch_xla.sync()
    scaler.scale(weight.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    torch_xla.sync()
    assert counters("TransferFromDeviceTime") == 0


def test_scaler_takes_the_arguments_of_2_9_and_steps_with_zeros_where_gradients_overflow():
    weight = nn.Parameter(torch.ones(2, device=DEVICE))
    optimizer = torch.optim.SGD([weight], lr=0.5, momentum=0.5)
    scaler = torch_xla.amp.GradScaler(4.0, 2.0, 0.25, 1, True, True)
    for factor in (1.0, float("inf")):
        optimizer.zero_grad()
        scaler.scale((weight * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    assert weight.tolist() == [0.25, 0.25]  # 1 - 0.5, and then half of that from the momentum
    assert scaler.get_scale() == 2.0


def test_clip_grad_norm():
    model, reference = same_model().to("xla"), same_model()
    norms = []
    for each in (model, reference):
        tokens = torch.arange(8).to(each.norm.weight.device)
        F.cross_entropy(each(tokens), tokens).backward()
        norms.append(nn.utils.clip_grad_norm_(each.parameters(), 0.01).item())
    assert norms[0] == pytest.approx(norms[1], rel=1e-4)
    torch.testing.assert_close(model.norm.weight.grad.cpu(), reference.norm.weight.grad)


def test_worker_processes_of_a_data_loader():
    torch.ones(1, device=DEVICE).cpu()  # the client runs when the workers are forked
    data = torch.utils.data.TensorDataset(torch.arange(8.0))
    loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=1)
    assert [batch[0].sum().item() for batch in loader] == [6, 22]
