"""The kernels of PyTorch/XLA's name: attention, over pages too, and products of groups of rows.

They are computed by ordinary operations, which are right on every platform, and are operators
`torch.ops.xla.*`, too. Kernels of one's own written in Pallas need JAX, and a TPU to run.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from torch_xla._internal import jax_interop
from torch_xla._internal.jax_workarounds import jax_import_guard
from torch_xla.experimental import _library
from torch_xla.experimental._grouped import (
    GMM,
    gmm,
    gmm_backward,
    repeat_with_fixed_output_size,
    tgmm,
)
from torch_xla.experimental._paged import (
    DEFAULT_MASK_VALUE,
    multi_queries_paged_attention,
    paged_attention,
    ragged_paged_attention,
)
from torch_xla.experimental.xla_quantized_matmul import quantized_matmul

__all__ = [
    "jax_import_guard",
    "DEFAULT_MASK_VALUE",
    "GMM",
    "FlashAttention",
    "convert_torch_dtype_to_jax",
    "fa_custom_backward",
    "fa_custom_forward",
    "flash_attention",
    "flash_attention_non_xla",
    "flash_attention_xla",
    "generate_ctx_need_grad",
    "gmm",
    "gmm_backward",
    "gmm_non_xla",
    "gmm_xla",
    "make_kernel_from_pallas",
    "multi_queries_paged_attention",
    "multi_queries_paged_attention_non_xla",
    "multi_queries_paged_attention_xla",
    "non_xla_attetion",
    "non_xla_ragged_paged_attention",
    "paged_attention",
    "paged_attention_non_xla",
    "paged_attention_xla",
    "quantized_matmul_int8",
    "quantized_matmul_int8_non_xla",
    "quantized_matmul_int8_xla",
    "ragged_paged_attention",
    "ragged_paged_attention_non_xla",
    "ragged_paged_attention_xla",
    "repeat_with_fixed_output_size",
    "safe_empty_like",
    "tgmm",
    "to_jax_shape_dtype_struct",
    "trace_pallas",
]

_Segments = torch.Tensor | None


def flash_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,
    q_segment_ids: _Segments = None,
    kv_segment_ids: _Segments = None,
    sm_scale: float = 1.0,
    *,
    ab: torch.Tensor | None = None,
    partition_spec: Any = None,
    mesh: Any = None,
) -> torch.Tensor:
    """Attention over (batch, heads, length, head size). Scores are multiplied by `sm_scale`.

    Positions attend where their segment ids (batch, length) agree; `ab` is added to the scores.
    `partition_spec` and `mesh` are not needed: XLA partitions it as its operands lie.
    """
    bias = _bias(q, k, causal, q_segment_ids, kv_segment_ids, ab)
    causal = causal and bias is None
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=causal, scale=sm_scale)


def _bias(
    q: torch.Tensor,
    k: torch.Tensor,
    causal: bool,
    q_segment_ids: _Segments,
    kv_segment_ids: _Segments,
    ab: torch.Tensor | None,
) -> torch.Tensor | None:
    """What is added to the scores; None when it is nothing, or only what `causal` says."""
    if (q_segment_ids is None) != (kv_segment_ids is None):
        raise ValueError("q_segment_ids and kv_segment_ids must be given together")
    bias = ab
    if q_segment_ids is not None and kv_segment_ids is not None:
        apart = q_segment_ids[:, None, :, None] != kv_segment_ids[:, None, None, :]
        bias = _mask(bias, apart, q)
    if causal and bias is not None:
        bias = _mask(bias, _future(q, k), q)
    return bias


def _future(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).triu(1)


def _mask(bias: torch.Tensor | None, forbidden: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    base = torch.zeros((), dtype=like.dtype, device=like.device) if bias is None else bias
    return base.masked_fill(forbidden, float("-inf"))


def _scores(q: torch.Tensor, k: torch.Tensor, causal: bool, scale: float, *bias: Any) -> Any:
    added = _bias(q, k, causal, *bias)
    if causal and added is None:
        added = _mask(None, _future(q, k), q)
    scores = (q @ k.transpose(-1, -2)).float() * scale
    return scores if added is None else scores + added


def fa_custom_forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool,
    q_segment_ids: _Segments,
    kv_segment_ids: _Segments,
    sm_scale: float,
    ab: torch.Tensor | None,
    partition_spec: Any = None,
    mesh: Any = None,
    ctx_grad: Sequence[bool] = (),
) -> tuple[Any, ...]:
    """`flash_attention` and what its gradient needs: (output, q, k, v, l, m, ab), where `m` is the
    largest score of each row and `l` the sum of the exponentials of the scores without it."""
    scores = _scores(q, k, causal, sm_scale, q_segment_ids, kv_segment_ids, ab)
    m = scores.amax(-1)
    weights = (scores - m[..., None]).exp()
    sums = weights.sum(-1)
    output = (weights / sums[..., None]).to(v.dtype) @ v
    return output, q, k, v, sums, m, ab


def fa_custom_backward(
    grad_output: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    l: torch.Tensor,  # noqa: E741  (PyTorch/XLA's name)
    m: torch.Tensor,
    q_segment_ids: _Segments,
    kv_segment_ids: _Segments,
    ab: torch.Tensor | None,
    causal: bool,
    sm_scale: float,
    *_: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of q, k, v and ab."""
    scores = _scores(q, k, causal, sm_scale, q_segment_ids, kv_segment_ids, ab)
    weights = (scores - m[..., None]).exp() / l[..., None]
    gradient = grad_output.float()
    of_v = weights.transpose(-1, -2) @ gradient
    own = (gradient * o.float()).sum(-1, keepdim=True)
    of_scores = weights * (gradient @ v.float().transpose(-1, -2) - own)
    of_q = of_scores @ k.float() * sm_scale
    of_k = of_scores.transpose(-1, -2) @ q.float() * sm_scale
    of_ab = of_scores if ab is None else of_scores.sum_to_size(ab.shape)
    return of_q.to(q.dtype), of_k.to(k.dtype), of_v.to(v.dtype), of_ab.to(q.dtype)


class FlashAttention(torch.autograd.Function):
    """`FlashAttention.apply(q, k, v, causal, q_segment_ids, kv_segment_ids, sm_scale, ab,
    partition_spec, mesh)` is `flash_attention`; for the gradient the scores are computed again."""

    DEFAULT_MASK_VALUE = DEFAULT_MASK_VALUE

    @staticmethod
    def forward(
        ctx: Any,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        causal: bool = False,
        q_segment_ids: _Segments = None,
        kv_segment_ids: _Segments = None,
        sm_scale: float = 1.0,
        ab: torch.Tensor | None = None,
        *rest: Any,
    ) -> torch.Tensor:
        arguments = (causal, q_segment_ids, kv_segment_ids, sm_scale, ab)
        output: torch.Tensor
        output, _, _, _, sums, m, _ = fa_custom_forward(q, k, v, *arguments)
        ctx.save_for_backward(q, k, v, output, sums, m, q_segment_ids, kv_segment_ids, ab)
        ctx.causal, ctx.sm_scale = causal, sm_scale
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        found = fa_custom_backward(gradients[0], *ctx.saved_tensors, ctx.causal, ctx.sm_scale)
        needed = ctx.needs_input_grad
        of_ab = found[3] if len(needed) > 7 and needed[7] else None
        return (*found[:3], None, None, None, None, of_ab, None, None)[: len(needed)]


def quantized_matmul_int8(
    x: torch.Tensor,
    w: torch.Tensor,
    scalar: torch.Tensor,
    zero_point: torch.Tensor | None = None,
    quant_block_size: Any = None,
    quantize_activation: bool = False,
    batch_block_size: int | None = None,
    out_block_size: int | None = None,
    in_block_size: int | None = None,
) -> torch.Tensor:
    """`quantized_matmul` with one scale for each output. Sizes of blocks have no effect."""
    result = quantized_matmul(x, w, scalar, zero_point, quantize_activation=quantize_activation)
    return result.to(x.dtype)


def generate_ctx_need_grad(*args: Any) -> list[bool]:
    """Which of the arguments need gradients."""
    return [isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args]


def safe_empty_like(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """`torch.empty_like`, or None for None."""
    return None if tensor is None else torch.empty_like(tensor)


def non_xla_attetion(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, attention_type: str = "flash"
) -> torch.Tensor:
    """Attention of tensors on other devices, which is the same."""
    if attention_type != "flash":
        raise ValueError(
            f"non_xla_attetion: {attention_type} attention needs its pages: call "
            f"{attention_type}_attention"
        )
    return flash_attention(q, k, v)


# One function for all devices, under each of its names.
flash_attention_xla = flash_attention_non_xla = flash_attention
paged_attention_xla = paged_attention_non_xla = paged_attention
multi_queries_paged_attention_xla = multi_queries_paged_attention
multi_queries_paged_attention_non_xla = multi_queries_paged_attention
ragged_paged_attention_xla = ragged_paged_attention_non_xla = ragged_paged_attention
non_xla_ragged_paged_attention = ragged_paged_attention
gmm_xla = gmm_non_xla = gmm
quantized_matmul_int8_xla = quantized_matmul_int8_non_xla = quantized_matmul_int8

_library.define(
    "flash_attention(Tensor q, Tensor k, Tensor v, bool casual=False) -> Tensor", flash_attention
)
_library.define(
    "paged_attention(Tensor q, Tensor k_pages, Tensor v_pages, Tensor lengths, "
    "Tensor page_indices, int pages_per_compute_block, str? megacore_mode=None, "
    "float? attn_logits_soft_cap=None) -> Tensor",
    paged_attention,
)
_library.define(
    "multi_queries_paged_attention(Tensor q, Tensor k_pages, Tensor v_pages, Tensor lengths, "
    "Tensor page_indices, Tensor effective_q_lens, int num_kv_pages_per_compute_block, "
    "int num_queries_per_compute_block, bool use_kernel, float? attn_logits_soft_cap=None) "
    "-> Tensor",
    multi_queries_paged_attention,
)
_library.define(
    "ragged_paged_attention(Tensor q, Tensor kv_pages, Tensor kv_lens, Tensor page_indices, "
    "Tensor cu_q_lens, Tensor num_seqs, float sm_scale=1, int? sliding_window=None, "
    "float? soft_cap=None, float? mask_value=None, float? k_scale=None, float? v_scale=None, "
    "bool use_kernel=True, int? num_kv_pages_per_block=None, int? num_queries_per_block=None, "
    "int? vmem_limit_bytes=None) -> Tensor",
    ragged_paged_attention,
)
_library.define(
    "gmm(Tensor lhs, Tensor rhs, Tensor group_sizes, int[]? tiling=None, "
    "Tensor? group_offset=None, bool transpose_rhs=False) -> Tensor",
    gmm,
)
_library.define(
    "quantized_matmul_int8(Tensor x, Tensor w, Tensor scalar, Tensor? zero_point=None, "
    "Tensor? quant_block_size=None, bool quantize_activation=False, "
    "int? batch_block_size=None, int? out_block_size=None, int? in_block_size=None) -> Tensor",
    quantized_matmul_int8,
)


# Pallas


def convert_torch_dtype_to_jax(dtype: torch.dtype) -> Any:
    """JAX's dtype for PyTorch's."""
    return jax_interop.dtype_of(dtype)


def to_jax_shape_dtype_struct(tensor: torch.Tensor) -> Any:
    """A jax.ShapeDtypeStruct of a tensor."""
    return jax_interop.struct_of(tensor)


def trace_pallas(
    kernel: Callable[..., Any],
    *args: Any,
    static_argnums: Any = None,
    static_argnames: Any = None,
    use_cache: bool = False,
    **kwargs: Any,
) -> tuple[str, list[torch.Tensor]]:
    """A Pallas kernel as what a TPU is told to run, and the tensors among its arguments."""
    jax = jax_interop.jax("a Pallas kernel")
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    given = [jax_interop.struct_of(a) if isinstance(a, torch.Tensor) else a for a in args]
    jitted = jax.jit(kernel, static_argnums=static_argnums, static_argnames=static_argnames)
    lowered = jitted.trace(*given, **kwargs).lower(lowering_platforms=("tpu",))
    payload = _payload_of(lowered.compiler_ir())
    if payload is None:
        raise ValueError(f"trace_pallas: {kernel} calls no Pallas kernel for TPUs")
    return payload, tensors


def _payload_of(operation: Any) -> str | None:
    """What the first kernel of a module is told to do."""
    for block in (block for region in operation.operation.regions for block in region.blocks):
        for inner in block.operations:
            attributes = inner.operation.attributes
            if "backend_config" in attributes and "call_target_name" in attributes:
                return str(attributes["backend_config"].value)
            found = _payload_of(inner)
            if found is not None:
                return found
    return None


def make_kernel_from_pallas(
    kernel: Callable[..., Any], output_shape_dtype_fn: Callable[..., Any]
) -> Callable[..., Any]:
    """A Pallas kernel as a function of tensors, for a TPU. `output_shape_dtype_fn(*args)` gives a
    list of (shape, dtype)."""

    def call(*args: Any, **options: Any) -> Any:
        from torch_xla.experimental.stablehlo_custom_call import stablehlo_custom_call

        payload, tensors = trace_pallas(kernel, *args, **options)
        shapes, dtypes = zip(*output_shape_dtype_fn(*args), strict=True)
        results = stablehlo_custom_call(
            tensors,
            "tpu_custom_call",
            list(shapes),
            list(dtypes),
            backend_config=payload,
            api_version=2,
        )
        return tuple(results) if isinstance(results, list) else results

    return call
