"""Attention over nested tensors of layout torch.jagged. PyTorch composes it of strided nested ones,
which are memory that it addresses itself; here the sequences are padded and the padding masked."""

import functools
from typing import Any

import torch
from torch import Tensor

from torch_xla._internal.devices import type_name


def correct(module: Any) -> None:
    """Of `torch.nested._internal.ops`, which looks the function up at each call."""
    attention = module.jagged_scaled_dot_product_attention

    @functools.wraps(attention)
    def attention_here(query: Any, key: Any, value: Any, *others: Any, **options: Any) -> Tensor:
        ours = isinstance(query, Tensor) and query.device.type == type_name
        # Sequences that are no batch of their own are attended to as ordinary tensors.
        ours = ours and getattr(query, "_ragged_idx", 1) == 2
        called = _padded_attention if ours else attention
        return called(query, key, value, *others, **options)

    module.jagged_scaled_dot_product_attention = attention_here


def _padded_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    internal: Any = torch.nested._internal

    query, key, value, attn_mask = internal.sdpa._autocast(query, key, value, attn_mask)
    internal.sdpa._validate_sdpa_input(query, key, value, attn_mask, dropout_p, is_causal, scale)
    q, k, v = _padded(query), _padded(key), _padded(value)
    lengths = key.offsets().diff()
    places = torch.arange(key._max_seqlen, device=key.device)
    seen = (places < lengths[:, None])[:, None, None, :]
    if is_causal:
        seen = seen & (places <= torch.arange(query._max_seqlen, device=key.device)[:, None])
    result = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=seen, dropout_p=dropout_p, scale=scale, enable_gqa=enable_gqa
    )
    nested: Tensor = internal.nested_tensor.nested_from_padded(
        result.transpose(1, 2),
        query.offsets(),
        ragged_idx=1,
        min_seqlen=query._maybe_min_seqlen,
        max_seqlen=query._max_seqlen,
        sum_S=query.transpose(1, 2).values().shape[0],
    )
    return nested.transpose(1, 2)


def _padded(nested: Any) -> Tensor:
    """Of sizes (sequences, heads, places, width)."""
    batch = nested.transpose(1, 2)
    sizes = (batch.shape[0], nested._max_seqlen, *batch.shape[2:])
    padded: Tensor = batch.to_padded_tensor(0.0, sizes)
    return padded.transpose(1, 2)
