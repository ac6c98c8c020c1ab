"""Attention over long sequences with masks of several kinds, by ordinary operations."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from torch_xla.experimental._paged import DEFAULT_MASK_VALUE

__all__ = [
    "SplashAttention",
    "SplashAttentionConfig",
    "sa_custom_backward",
    "sa_custom_forward",
    "splash_attention",
    "splash_attention_jax_wrapper",
    "tpu_splash_attention_jax_call_wrapper",
]

_Spec = tuple[Any, ...]


@dataclass(eq=True, unsafe_hash=True)
class SplashAttentionConfig:
    """Sizes of blocks, layouts and shardings are for kernels, and have no effect.

    `attentiontype_local_sliding`: positions attend to those at most `slide_window_size` away.
    """

    sa_block_q: int = 2048
    sa_block_kv: int = 2048
    sa_block_kv_compute: int = 2048
    sa_block_q_dkv: int = 2048
    sa_block_kv_dkv: int = 2048
    sa_block_kv_dkv_compute: int = 2048
    sa_block_q_dq: int = 2048
    sa_block_kv_dq: int = 2048
    sa_use_fused_bwd_kernel: bool = True
    sa_q_layout: str = "HEAD_DIM_MINOR"
    sa_k_layout: str = "HEAD_DIM_MINOR"
    sa_v_layout: str = "HEAD_DIM_MINOR"
    mesh: str | None = None
    qkv_partition_spec: _Spec = (("data", "fsdp"), None, None, None)
    segment_ids_partition_spec: _Spec = (("data", "fsdp"), None)
    attentiontype_local_sliding: bool = False
    slide_window_size: int | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, data: str) -> "SplashAttentionConfig":
        return cls(**{name: _tuples(value) for name, value in json.loads(data).items()})


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _allowed(
    q: torch.Tensor, k: torch.Tensor, config: SplashAttentionConfig, segments: Any, causal: bool
) -> torch.Tensor:
    rows = torch.arange(q.size(-2), device=q.device)[:, None]
    columns = torch.arange(k.size(-2), device=q.device)
    allowed = rows >= columns if causal else torch.ones_like(rows >= columns)
    if config.attentiontype_local_sliding:
        if config.slide_window_size is None:
            raise ValueError("attentiontype_local_sliding needs a slide_window_size")
        allowed = allowed & ((rows - columns).abs() <= config.slide_window_size)
    if segments is not None:
        same = segments[:, None, :, None] == segments[:, None, None, :]
        allowed = allowed & same
    return allowed


def splash_attention_jax_wrapper(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    decoder_segment_ids: torch.Tensor | None,
    causal: bool,
    config: SplashAttentionConfig,
    attn_logits_soft_cap: float | None = None,
) -> torch.Tensor:
    """Attention over (batch, heads, length, head size), of tensors: JAX is not needed. Queries are
    already scaled; keys and values may have fewer heads."""
    groups = query.size(1) // key.size(1)
    key, value = (t.repeat_interleave(groups, 1) if groups > 1 else t for t in (key, value))
    scores = (query @ key.transpose(-1, -2)).float()
    if attn_logits_soft_cap is not None:
        scores = attn_logits_soft_cap * torch.tanh(scores / attn_logits_soft_cap)
    allowed = _allowed(query, key, config, decoder_segment_ids, causal)
    weights = scores.masked_fill(~allowed, DEFAULT_MASK_VALUE).softmax(-1)
    return weights.to(value.dtype) @ value


def tpu_splash_attention_jax_call_wrapper(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    config: SplashAttentionConfig,
    decoder_segment_ids: torch.Tensor | None,
    causal: bool,
    attn_logits_soft_cap: float | None = None,
    is_forward: bool = True,
    grad_output: torch.Tensor | None = None,
) -> tuple[Any, Any, Any]:
    """(output, None, None), or the gradients of query, key and value for `grad_output`."""
    options: Any = (decoder_segment_ids, causal, config, attn_logits_soft_cap)
    if is_forward:
        return splash_attention_jax_wrapper(query, key, value, *options), None, None
    with torch.enable_grad():
        leaves: Any = [t.detach().requires_grad_() for t in (query, key, value)]
        output = splash_attention_jax_wrapper(*leaves, *options)
    gradients: Sequence[Any] = torch.autograd.grad(output, leaves, grad_output)
    return gradients[0], gradients[1], gradients[2]


def sa_custom_forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    config: str,
    decoder_segment_ids: torch.Tensor | None,
    causal: bool | None,
    attn_logits_soft_cap: float | None,
) -> tuple[torch.Tensor, None, None]:
    """The same with the configuration as JSON."""
    parsed = SplashAttentionConfig.from_json(config)
    options = (parsed, decoder_segment_ids, bool(causal), attn_logits_soft_cap)
    return tpu_splash_attention_jax_call_wrapper(q, k, v, *options)


def sa_custom_backward(
    grad_output: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    config: str,
    decoder_segment_ids: torch.Tensor | None,
    causal: bool | None,
    attn_logits_soft_cap: float | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of q, k and v."""
    parsed = SplashAttentionConfig.from_json(config)
    options = (parsed, decoder_segment_ids, bool(causal), attn_logits_soft_cap)
    return tpu_splash_attention_jax_call_wrapper(q, k, v, *options, False, grad_output)


class SplashAttention(torch.autograd.Function):
    """`SplashAttention.apply(q, k, v, config, decoder_segment_ids, causal, soft_cap)`; for the
    gradient the scores are computed again."""

    @staticmethod
    def forward(
        ctx: Any,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        config: str,
        decoder_segment_ids: torch.Tensor | None,
        causal: bool,
        attn_logits_soft_cap: float | None,
    ) -> torch.Tensor:
        ctx.save_for_backward(q, k, v, decoder_segment_ids)
        ctx.options = (config, causal, attn_logits_soft_cap)
        options = (config, decoder_segment_ids, causal, attn_logits_soft_cap)
        return sa_custom_forward(q, k, v, *options)[0]

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        q, k, v, segments = ctx.saved_tensors
        config, causal, soft_cap = ctx.options
        found = sa_custom_backward(gradients[0], q, k, v, config, segments, causal, soft_cap)
        return *found, None, None, None, None


def splash_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    config: str,
    decoder_segment_ids: torch.Tensor | None = None,
    causal: bool = True,
    attn_logits_soft_cap: float | None = None,
) -> torch.Tensor:
    """Attention over (batch, heads, length, head size), of queries that are already scaled.

    `config`: SplashAttentionConfig.to_json(). Positions attend where their segment ids (batch,
    length) agree.
    """
    options = (config, decoder_segment_ids, causal, attn_logits_soft_cap)
    result: torch.Tensor = SplashAttention.apply(q, k, v, *options)  # type: ignore[no-untyped-call]
    return result
