"""Attention under PyTorch/XLA's kernel names."""

import torch
import torch.nn.functional as F


def flash_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,
    q_segment_ids: torch.Tensor | None = None,
    kv_segment_ids: torch.Tensor | None = None,
    sm_scale: float = 1.0,
    *,
    ab: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention over (batch, heads, length, head size). Scores are multiplied by `sm_scale`.

    Positions attend where their segment ids (batch, length) agree; `ab` is added to the scores.
    """
    if (q_segment_ids is None) != (kv_segment_ids is None):
        raise ValueError("q_segment_ids and kv_segment_ids must be given together")
    bias = ab
    if q_segment_ids is not None and kv_segment_ids is not None:
        apart = q_segment_ids[:, None, :, None] != kv_segment_ids[:, None, None, :]
        bias = _mask(bias, apart, q)
    if causal and bias is not None:
        future = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).triu(1)
        bias, causal = _mask(bias, future, q), False
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=causal, scale=sm_scale)


def _mask(bias: torch.Tensor | None, forbidden: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    base = torch.zeros((), dtype=like.dtype, device=like.device) if bias is None else bias
    return base.masked_fill(forbidden, float("-inf"))
