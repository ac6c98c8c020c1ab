"""Attention: the CPU's flash kernel where PyTorch takes it, else matrix products."""

import pytest
import torch
import torch.nn.functional as F
import torch_xla
from torch import Tensor, nn
from torch_xla.experimental.assume_pure import assume_pure

# Elsewhere the kernel of the gradients is called in 32 bits.
HAS_BFLOAT16 = torch.ops.mkldnn._is_mkldnn_bf16_supported()

BATCH, HEADS, LENGTH, SIZE = 2, 4, 33, 16


def inputs(dtype: torch.dtype = torch.float32, kv_heads: int = HEADS) -> list[Tensor]:
    torch.manual_seed(0)
    shapes = [(BATCH, heads, LENGTH, SIZE) for heads in (HEADS, kv_heads, kv_heads)]
    return [torch.randn(shape).to(dtype) for shape in shapes]


def masks() -> dict[str, Tensor | None]:
    hidden = torch.zeros(BATCH, 1, LENGTH, LENGTH)
    hidden[:, :, 3] = -torch.inf
    return {
        "none": None,
        "added": torch.linspace(-2, 2, LENGTH * LENGTH).view(LENGTH, LENGTH),
        "truths": torch.arange(LENGTH * LENGTH).view(LENGTH, LENGTH) % 3 != 0,
        "nothing seen": hidden,
    }


def attend(leaves: list[Tensor], **options: object) -> list[Tensor]:
    leaves = [leaf.detach().requires_grad_() for leaf in leaves]
    result = F.scaled_dot_product_attention(*leaves, **options)
    (result * torch.linspace(0, 1, result.size(-1)).to(result.device)).sum().backward()
    return [result.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]


def compare(leaves: list[Tensor], exact: bool, **options: object) -> None:
    def on(device: str) -> list[Tensor]:
        moved = {k: v.to(device) if isinstance(v, Tensor) else v for k, v in options.items()}
        return [x.cpu() for x in attend([leaf.to(device) for leaf in leaves], **moved)]

    for i, (got, wanted) in enumerate(zip(on("xla"), on("cpu"), strict=True)):
        widened = i > 0 and got.dtype == torch.bfloat16 and not HAS_BFLOAT16  # a gradient
        if exact and torch_xla._XLAC.has_ffi() and not widened:
            assert torch.equal(got, wanted)
        elif got.dtype == torch.bfloat16:  # the kernel's sums are of float32
            torch.testing.assert_close(got, wanted, rtol=3e-2, atol=3e-2)
        else:
            torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("mask", masks())
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_has_the_bits_of_the_cpu(mask: str, dtype: torch.dtype, each_tier: str) -> None:
    chosen = masks()[mask]
    if chosen is not None and chosen.dtype != torch.bool:
        chosen = chosen.to(dtype)
    compare(inputs(dtype), exact=True, attn_mask=chosen)
    if chosen is None:
        compare(inputs(dtype), exact=True, is_causal=True)
        compare(inputs(dtype), exact=True, scale=0.3)


def test_programs_divide_it(each_tier: str) -> None:
    for images in (4, 1):
        leaves = [torch.randn(images, 4, 128, 32) for _ in range(3)]
        for mask in (None, torch.randn(128, 128), torch.randn(images, 4, 128, 128)):
            compare(leaves, exact=True, attn_mask=mask)


def test_what_the_kernel_does_not_take(each_tier: str) -> None:
    compare(inputs(kv_heads=2), exact=False, enable_gqa=True)
    mask = torch.zeros(LENGTH, LENGTH, requires_grad=True)
    compare(inputs(), exact=False, attn_mask=mask)
    compare([leaf[0] for leaf in inputs()], exact=False)  # three dimensions
    compare([leaf[:, :, :0] for leaf in inputs()], exact=False)


@pytest.mark.lazy_only
@pytest.mark.host_only("the kernel is the CPU's")
def test_is_one_operation_forward_and_one_backward() -> None:
    leaves = [leaf.to("xla").requires_grad_() for leaf in inputs()]
    result = F.scaled_dot_product_attention(*leaves)
    gradient = torch.autograd.grad(result.sum(), leaves[0])[0]
    text = torch_xla._XLAC._get_xla_tensors_text([gradient])
    assert text.count("_scaled_dot_product_flash_attention_for_cpu(") == 1
    assert text.count("_scaled_dot_product_flash_attention_for_cpu_backward(") == 1
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        chosen = F.scaled_dot_product_attention(*leaves)
    assert "flash" not in torch_xla._XLAC._get_xla_tensors_text([chosen])


class Flash(nn.Module):
    """Forward and, where the kernel has one, backward; called as autograd calls them."""

    def __init__(self, causal: bool, backward: bool):
        super().__init__()
        self.causal, self.backward = causal, backward

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        q, k, v, gradient, *mask = tensors
        options = {"is_causal": self.causal, "attn_mask": mask[0] if mask else None}
        aten = torch.ops.aten
        out, lse = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, **options)
        if not self.backward:
            return out, lse
        causal = options.pop("is_causal")
        backward = aten._scaled_dot_product_flash_attention_for_cpu_backward
        return out, lse, *backward(gradient, q, k, v, out, lse, 0.0, causal, **options)


@pytest.mark.lazy_only
@pytest.mark.parametrize("mask", ["none", "added", "nothing seen"])
@pytest.mark.parametrize("kv_heads", [HEADS, 2])
@pytest.mark.parametrize("causal", [False, True])
def test_programs_for_others_have_matrix_products(mask: str, kv_heads: int, causal: bool) -> None:
    """What is exported holds no call of a kernel of this process, and computes the same."""
    gradient = torch.linspace(-1, 1, BATCH * HEADS * LENGTH * SIZE)
    chosen = masks()[mask]
    arguments = [*inputs(kv_heads=kv_heads), gradient.view(BATCH, HEADS, LENGTH, SIZE)]
    arguments += [] if chosen is None else [chosen]
    module = Flash(causal, backward=kv_heads == HEADS)
    sources = [tensor.to("xla") for tensor in arguments]
    outputs = module(*sources)
    text, captured, operators = torch_xla._XLAC.export_graph(list(outputs), sources, "flash")
    assert "dot_general" in text and not operators and not captured
    results = torch.ops.torch_xla.stablehlo(sources, text)
    for got, wanted in zip(results, module(*arguments), strict=True):
        as_it_lies = got.cpu().flatten().as_strided(wanted.shape, wanted.stride())
        torch.testing.assert_close(as_it_lies, wanted)


@pytest.mark.parametrize("train", [False, True])
def test_in_modules_and_functions(train: bool) -> None:
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(16, 4, batch_first=True).train(train)
    x = torch.randn(2, 7, 16)
    wanted = layer(x, x, x, need_weights=False)[0]
    layer.to("xla")
    on_device = x.to("xla")
    for function in (
        lambda y: layer(y, y, y, need_weights=False)[0],
        assume_pure(lambda y: layer(y, y, y, need_weights=False)[0]),
        torch.compile(lambda y: layer(y, y, y, need_weights=False)[0], backend="openxla"),
    ):
        torch.testing.assert_close(function(on_device).cpu(), wanted)
    with torch.autocast("xla", torch.bfloat16):
        assert layer(on_device, on_device, on_device, need_weights=False)[0].dtype == torch.bfloat16


def test_flex_attention() -> None:
    """PyTorch's, with functions of scores and masks; it has gradients here, as on GPUs."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    query, key, value = (x.requires_grad_() for x in inputs())
    slopes = torch.linspace(0.1, 1, HEADS)
    rows, columns = torch.arange(LENGTH)[:, None], torch.arange(LENGTH)
    bias = slopes[:, None, None] * (columns - rows) + torch.where(columns > rows, -torch.inf, 0.0)
    expected = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
    expected_gradients = torch.autograd.grad(expected.square().sum(), (query, key, value))

    leaves = [x.detach().to("xla").requires_grad_() for x in (query, key, value)]
    device_slopes = slopes.to("xla")
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, LENGTH, LENGTH, device="xla")
    for attention in (flex_attention, torch.compile(flex_attention)):
        actual = attention(
            *leaves, score_mod=lambda s, b, h, i, j: s + device_slopes[h] * (j - i), block_mask=mask
        )
        gradients = torch.autograd.grad(actual.square().sum(), leaves)
        for got, wanted in zip((actual, *gradients), (expected, *expected_gradients), strict=True):
            torch.testing.assert_close(got.cpu(), wanted, rtol=1e-4, atol=1e-4)
    with pytest.raises(NotImplementedError, match="does not support backward on CPU"):
        flex_attention(query, key, value)
