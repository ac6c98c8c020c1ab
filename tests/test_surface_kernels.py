"""Kernels under PyTorch/XLA's names, computed by ordinary operations: compared with the plainest
formulas on the CPU."""

import json
import math

import pytest
import torch
import torch.nn.functional as F
import torch_xla.experimental.custom_kernel as ck
import torch_xla.experimental.splash_attention as sa
from torch_xla.experimental import quantized, xla_quantized_matmul


def randn(*sizes: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


def on_device(*tensors):
    moved = [t.detach().to("xla").requires_grad_(t.requires_grad) for t in tensors]
    return moved[0] if len(moved) == 1 else moved


def close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual.detach().cpu(), expected.detach(), atol=1e-5, rtol=1e-4)


def attention(q, k, v, allowed, scale=1.0, bias=0.0, soft_cap=None):
    """(length, head size), one head."""
    scores = q @ k.T * scale + bias
    if soft_cap is not None:
        scores = soft_cap * torch.tanh(scores / soft_cap)
    return torch.softmax(scores.masked_fill(~allowed, -math.inf), -1) @ v


@pytest.mark.parametrize("function", ["apply", "flash_attention"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("segments", [False, True])
def test_flash_attention(function, causal, segments):
    q, k, v = (randn(2, 3, 8, 4, seed=s).requires_grad_() for s in range(3))
    ab = randn(2, 3, 8, 8, seed=4).requires_grad_()
    ids = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1], [0] * 8]) if segments else None
    xq, xk, xv, xab = on_device(q, k, v, ab)
    xids = None if ids is None else ids.to("xla")
    if function == "apply":
        out = ck.FlashAttention.apply(xq, xk, xv, causal, xids, xids, 0.5, xab, None, None)
    else:
        out = ck.flash_attention(xq, xk, xv, causal, xids, xids, 0.5, ab=xab)
    allowed = torch.ones(2, 8, 8, dtype=torch.bool)
    if causal:
        allowed = allowed.tril()
    if ids is not None:
        allowed = allowed & (ids[:, :, None] == ids[:, None, :])
    scores = (q @ k.transpose(-1, -2) * 0.5 + ab).masked_fill(~allowed[:, None], -math.inf)
    expected = scores.softmax(-1) @ v
    close(out, expected)
    weights = randn(2, 3, 8, 4, seed=9)
    (expected * weights).sum().backward()
    (out * weights.to("xla")).sum().backward()
    for ours, theirs in zip((xq, xk, xv, xab), (q, k, v, ab), strict=True):
        close(ours.grad, theirs.grad)


def test_flash_attention_is_an_operator():
    q, k, v = (randn(1, 2, 8, 4, seed=s) for s in range(3))
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=1.0)
    close(torch.ops.xla.flash_attention(*on_device(q, k, v), True), expected)
    close(ck.flash_attention_xla(*on_device(q, k, v), causal=True), expected)
    close(ck.flash_attention_non_xla(q, k, v, causal=True), expected)
    plain = F.scaled_dot_product_attention(q, k, v, scale=1.0)
    close(ck.non_xla_attetion(*on_device(q, k, v)), plain)
    with pytest.raises(ValueError, match="paged"):
        ck.non_xla_attetion(q, k, v, "paged")


PAGES, PAGE, HEADS, SIZE = 7, 4, 2, 8


@pytest.mark.parametrize("soft_cap", [None, 2.0])
def test_paged_attention(soft_cap):
    q = randn(3, 4, SIZE)
    k_pages, v_pages = (
        randn(HEADS, PAGES, PAGE, SIZE, seed=1),
        randn(HEADS, PAGES, PAGE, SIZE, seed=2),
    )
    lengths = torch.tensor([5, 8, 1], dtype=torch.int32)
    indices = torch.tensor([[3, 1], [0, 6], [2, 5]], dtype=torch.int32)
    args = on_device(q, k_pages, v_pages, lengths, indices)
    out = torch.ops.xla.paged_attention(*args, 1, None, soft_cap)
    for b in range(3):
        for head in range(4):
            k = k_pages[head // 2, indices[b].long()].reshape(-1, SIZE)[: lengths[b]]
            v = v_pages[head // 2, indices[b].long()].reshape(-1, SIZE)[: lengths[b]]
            everything = torch.ones(1, int(lengths[b]), dtype=torch.bool)
            expected = attention(q[b, head][None], k, v, everything, soft_cap=soft_cap)[0]
            close(out[b, head], expected)
    close(ck.paged_attention_xla(*args, 1, attn_logits_soft_cap=soft_cap), out.cpu())
    with pytest.raises(ValueError, match="megacore_mode"):
        ck.paged_attention(*args, 1, "other")


def test_multi_queries_paged_attention():
    q = randn(2, 3, 4, SIZE)
    k_pages, v_pages = (
        randn(HEADS, PAGES, PAGE, SIZE, seed=1),
        randn(HEADS, PAGES, PAGE, SIZE, seed=2),
    )
    lengths = torch.tensor([5, 8], dtype=torch.int32)
    indices = torch.tensor([[3, 1], [0, 6]], dtype=torch.int32)
    counts = torch.tensor([3, 2], dtype=torch.int32)
    args = on_device(q, k_pages, v_pages, lengths, indices, counts)
    out = torch.ops.xla.multi_queries_paged_attention(*args, 1, 1, True)
    for b in range(2):
        length, count = int(lengths[b]), int(counts[b])
        allowed = torch.ones(count, length, dtype=torch.bool).tril(length - count)
        for head in range(4):
            k = k_pages[head // 2, indices[b].long()].reshape(-1, SIZE)[:length]
            v = v_pages[head // 2, indices[b].long()].reshape(-1, SIZE)[:length]
            close(out[b, :count, head], attention(q[b, :count, head], k, v, allowed))


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("soft_cap", [None, 2.0])
def test_ragged_paged_attention(window, soft_cap):
    q = randn(10, 4, SIZE)
    kv_pages = randn(PAGES, PAGE, 2 * HEADS, SIZE, seed=1)
    kv_lens = torch.tensor([6, 3, 0], dtype=torch.int32)
    indices = torch.tensor([[4, 2], [1, 0], [0, 0]], dtype=torch.int32)
    cu_q_lens = torch.tensor([0, 5, 8, 8], dtype=torch.int32)
    num_seqs = torch.tensor([2], dtype=torch.int32)
    args = on_device(q, kv_pages, kv_lens, indices, cu_q_lens, num_seqs)
    options = {"sm_scale": 0.3, "sliding_window": window, "soft_cap": soft_cap, "v_scale": 2.0}
    out = ck.ragged_paged_attention(*args, **options)
    for s in range(2):
        first, last, length = int(cu_q_lens[s]), int(cu_q_lens[s + 1]), int(kv_lens[s])
        count = last - first
        allowed = torch.ones(count, length, dtype=torch.bool).tril(length - count)
        if window is not None:
            allowed = allowed.triu(length - count - window + 1)
        for head in range(4):
            pages = kv_pages[indices[s].long()].reshape(-1, 2 * HEADS, SIZE)[:length]
            k, v = pages[:, 2 * (head // 2)], pages[:, 2 * (head // 2) + 1] * 2
            ours = out[first:last, head]
            close(ours, attention(q[first:last, head], k, v, allowed, 0.3, soft_cap=soft_cap))
    assert out[8:].abs().max().item() == 0
    operator = torch.ops.xla.ragged_paged_attention(*args, 0.3, window, soft_cap, v_scale=2.0)
    close(operator, out.cpu())


@pytest.mark.parametrize("transposed", [False, True])
def test_products_of_groups(transposed):
    lhs = randn(9, 4).requires_grad_()
    rhs = (randn(3, 5, 4, seed=1) if transposed else randn(3, 4, 5, seed=1)).requires_grad_()
    sizes = torch.tensor([2, 0, 6])
    xl, xr = on_device(lhs, rhs)
    out = torch.ops.xla.gmm(xl, xr, sizes.to("xla"), transpose_rhs=transposed)
    matrices = rhs.transpose(1, 2) if transposed else rhs
    expected = torch.cat([lhs[:2] @ matrices[0], lhs[2:8] @ matrices[2], torch.zeros(1, 5)])
    close(out, expected)
    offset = torch.tensor([2], device="xla")
    last = ck.gmm(xl, xr[2:], sizes.to("xla"), None, offset, transposed)
    close(last[2:8], expected[2:8])
    assert last[:2].abs().max().item() == 0
    if transposed:
        return
    weights = randn(9, 5, seed=3)
    (expected * weights).sum().backward()
    (ck.GMM.apply(xl, xr, sizes.to("xla")) * weights.to("xla")).sum().backward()
    close(xl.grad, lhs.grad)
    close(xr.grad, rhs.grad)
    products = ck.tgmm(xl.detach().t(), weights.to("xla"), sizes.to("xla"))
    close(products[2], lhs[2:8].T @ weights[2:8])
    of_lhs, of_rhs = ck.gmm_backward(weights.to("xla"), xl.detach(), xr.detach(), sizes.to("xla"))
    close(of_lhs, lhs.grad)
    close(of_rhs, rhs.grad)


def test_repeat_with_fixed_output_size():
    x, repeats = torch.tensor([5, 6, 7]), torch.tensor([2, 0, 3])
    for length, expected in ((5, [5, 5, 7, 7, 7]), (7, [5, 5, 7, 7, 7, 7, 7]), (3, [5, 5, 7])):
        result = ck.repeat_with_fixed_output_size(x.to("xla"), repeats.to("xla"), length)
        assert result.tolist() == expected


def quantize(weight: torch.Tensor, dim: int):
    scale = weight.abs().amax(dim, keepdim=True) / 127
    return torch.round(weight / scale).to(torch.int8), scale.squeeze(dim)


@pytest.mark.parametrize("activation", [False, True])
@pytest.mark.parametrize("zeros", [False, True])
def test_quantized_matmul_with_scales_of_outputs(activation, zeros):
    x, weight = randn(5, 8), randn(6, 8, seed=1)
    w, scale = quantize(weight, 1)
    zero = randn(6, seed=2) * 0.1 if zeros else None
    layer = xla_quantized_matmul.XlaQuantizedLinear(
        8, 6, is_symmetric=not zeros, quantize_activation=activation
    )
    layer.load_quantized_weight(w, scale, zero)
    expected = x @ (w.float() * scale[:, None]).T
    if zero is not None:
        expected = expected - x.sum(1, keepdim=True) * zero
    out = layer.to("xla")(x.to("xla")).cpu()
    torch.testing.assert_close(out, expected, atol=0.1 if activation else 1e-5, rtol=1e-2)
    moved = on_device(x, w, scale)
    int8 = ck.quantized_matmul_int8(*moved, None if zero is None else zero.to("xla"))
    close(int8, expected)
    operator = torch.ops.xla.quantized_matmul(*moved, quantize_activation=activation)
    assert operator.shape == (5, 6)


def test_quantized_matmul_with_scales_of_blocks():
    x, weight = randn(5, 8), randn(2, 4, 6, seed=1)
    w, scale = quantize(weight, 1)
    zero = randn(2, 6, seed=2) * 0.1
    layer = xla_quantized_matmul.XlaQuantizedLinear(8, 6, block_size=4)
    layer.load_quantized_weight(w, scale, zero)
    whole = (w.float() * scale[:, None] - zero[:, None]).reshape(8, 6)
    close(layer.to("xla")(x.to("xla")), x @ whole)
    with pytest.raises(ValueError, match="the scaler must be"):
        layer.load_quantized_weight(w, scale[0], zero)


def test_quantized_decomposed():
    ops = torch.ops.quantized_decomposed
    x, scales, zeros = randn(3, 4), torch.tensor([0.1, 0.2, 0.3]), torch.tensor([1, 0, -2])
    limits = (-128, 127, torch.int8)
    for arguments in ((0.05, 3, *limits), (scales, zeros, 0, *limits)):
        kind = "per_channel" if isinstance(arguments[0], torch.Tensor) else "per_tensor"
        moved = [a.to("xla") if isinstance(a, torch.Tensor) else a for a in arguments]
        theirs = getattr(ops, f"quantize_{kind}")(x, *arguments)
        ours = getattr(ops, f"quantize_{kind}")(x.to("xla"), *moved)
        assert torch.equal(ours.cpu(), theirs)
        assert torch.equal(getattr(quantized, f"xla_quantize_{kind}")(x, *arguments), theirs)
        back = getattr(ops, f"dequantize_{kind}")(ours, *moved)
        close(back, getattr(ops, f"dequantize_{kind}")(theirs, *arguments))
    with pytest.raises(ValueError, match="must be 4 numbers"):
        quantized.xla_quantize_per_channel(x, scales, zeros, 1, *limits)


@pytest.mark.parametrize("sliding", [False, True])
@pytest.mark.parametrize("segments", [False, True])
def test_splash_attention(sliding, segments):
    q, k, v = (
        randn(2, heads, 8, 4, seed=heads + s).requires_grad_() for s, heads in enumerate((4, 2, 2))
    )
    config = sa.SplashAttentionConfig(
        attentiontype_local_sliding=sliding, slide_window_size=2 if sliding else None
    )
    assert sa.SplashAttentionConfig.from_json(config.to_json()) == config
    assert json.loads(config.to_json())["sa_block_q"] == 2048
    ids = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1], [0] * 8])
    xq, xk, xv = on_device(q, k, v)
    given = ids.to("xla") if segments else None
    out = sa.splash_attention(xq, xk, xv, config.to_json(), given, True, 5.0)
    allowed = torch.ones(2, 8, 8, dtype=torch.bool).tril()
    allowed = allowed.triu(-2) if sliding else allowed
    allowed = allowed & (ids[:, :, None] == ids[:, None, :]) if segments else allowed
    wide_k, wide_v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
    scores = 5 * torch.tanh(q @ wide_k.transpose(-1, -2) / 5)
    expected = scores.masked_fill(~allowed[:, None], -math.inf).softmax(-1) @ wide_v
    close(out, expected)
    expected.sum().backward()
    out.sum().backward()
    for ours, theirs in zip((xq, xk, xv), (q, k, v), strict=True):
        close(ours.grad, theirs.grad)
    forward, *_ = sa.tpu_splash_attention_jax_call_wrapper(xq, xk, xv, config, given, True, 5.0)
    close(forward, expected)


def test_small_helpers():
    x = torch.ones(2, requires_grad=True)
    assert ck.generate_ctx_need_grad(x, 1, x.detach(), None) == [True, False, False, False]
    assert ck.safe_empty_like(None) is None and ck.safe_empty_like(x).shape == (2,)


def test_pallas_without_jax(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "jax", None)
    for call in (
        lambda: ck.convert_torch_dtype_to_jax(torch.float32),
        lambda: ck.to_jax_shape_dtype_struct(torch.ones(2)),
        lambda: ck.trace_pallas(abs, torch.ones(2)),
        lambda: ck.make_kernel_from_pallas(abs, lambda x: [(x.shape, x.dtype)])(torch.ones(2)),
    ):
        with pytest.raises(RuntimeError, match="needs JAX, which is not installed"):
            call()


def test_every_name_is_the_same_function():
    """`x_xla` and `x_non_xla` are for tensors of the device and of others in 2.9."""
    assert ck.gmm_xla is ck.gmm_non_xla is ck.gmm
    assert ck.paged_attention_non_xla is ck.paged_attention
    assert ck.multi_queries_paged_attention_xla is ck.multi_queries_paged_attention
    assert ck.multi_queries_paged_attention_non_xla is ck.multi_queries_paged_attention
    assert ck.ragged_paged_attention_xla is ck.ragged_paged_attention
    assert ck.ragged_paged_attention_non_xla is ck.non_xla_ragged_paged_attention
    assert ck.quantized_matmul_int8_xla is ck.quantized_matmul_int8_non_xla
    assert xla_quantized_matmul.quantized_matmul_xla is xla_quantized_matmul.quantized_matmul


def test_flash_attention_in_two_halves():
    q, k, v = (randn(1, 2, 8, 4, seed=s).requires_grad_() for s in range(3))
    moved = [t.detach() for t in on_device(q, k, v)]
    out, _, _, _, sums, largest, ab = ck.fa_custom_forward(*moved, True, None, None, 0.5, None)
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.5)
    close(out, expected)
    assert ab is None and sums.shape == largest.shape == (1, 2, 8)
    expected.sum().backward()
    rest = (out, sums, largest, None, None, None, True, 0.5)
    found = ck.fa_custom_backward(torch.ones_like(out), *moved, *rest)
    for ours, theirs in zip(found, (q, k, v), strict=False):
        close(ours, theirs.grad)


def test_splash_attention_in_two_halves():
    q, k, v = (randn(1, 2, 8, 4, seed=s).requires_grad_() for s in range(3))
    moved = [t.detach() for t in on_device(q, k, v)]
    config = sa.SplashAttentionConfig()
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=1.0)
    expected.sum().backward()
    options = (config.to_json(), None, True, None)
    out, *_ = sa.sa_custom_forward(*moved, *options)
    close(out, expected)
    found = sa.sa_custom_backward(torch.ones_like(out), *moved, *options)
    for ours, theirs in zip(found, (q, k, v), strict=True):
        close(ours, theirs.grad)
    close(sa.splash_attention_jax_wrapper(*moved, None, True, config), expected)
    close(sa.SplashAttention.apply(*moved, *options), expected)
    with pytest.raises(ValueError, match="needs a slide_window_size"):
        sliding = sa.SplashAttentionConfig(attentiontype_local_sliding=True)
        sa.splash_attention(*moved, sliding.to_json())


def test_quantized_numbers_of_whole_tensors():
    x = randn(3, 4).to("xla")
    whole = quantized.xla_quantize_per_tensor(x, 0.05, 3, -128, 127, torch.int8)
    back = quantized.xla_dequantize_per_tensor(whole, 0.05, 3, -128, 127, torch.int8)
    assert (back - x).abs().max().item() <= 0.025 + 1e-6
    scales, zeros = torch.full((3,), 0.05), torch.full((3,), 3)
    arguments = (scales, zeros, 0, -128, 127, torch.int8)
    again = quantized.xla_dequantize_per_channel(whole, *arguments)
    assert torch.equal(again.cpu(), back.cpu())
