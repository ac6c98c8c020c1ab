"""Attention over keys and values that lie in pages, by ordinary operations. Sizes do not depend on
values, so nothing is read on the host. `custom_kernel` publishes these functions."""

import torch

DEFAULT_MASK_VALUE = -0.7 * float(torch.finfo(torch.float32).max)


def _of_pages(pages: torch.Tensor, page_indices: torch.Tensor) -> torch.Tensor:
    """(heads, pages, page size, head size) -> (batch, heads, positions, head size)."""
    chosen = pages[:, page_indices.long()]  # heads, batch, pages, page size, head size
    return chosen.flatten(2, 3).transpose(0, 1)


def _softmax(scores: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    """Over the last dimension; zeros where nothing is allowed."""
    masked = scores.float().masked_fill(~allowed, DEFAULT_MASK_VALUE)
    return masked.softmax(-1).masked_fill(~allowed, 0)


def _capped(scores: torch.Tensor, soft_cap: float | None) -> torch.Tensor:
    return scores if soft_cap is None else soft_cap * torch.tanh(scores / soft_cap)


def multi_queries_paged_attention(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    lengths: torch.Tensor,
    page_indices: torch.Tensor,
    effective_q_lens: torch.Tensor,
    num_kv_pages_per_compute_block: int = 0,
    num_queries_per_compute_block: int = 0,
    use_kernel: bool = True,
    attn_logits_soft_cap: float | None = None,
) -> torch.Tensor:
    """Attention of several queries of each sequence, the last ones of its `lengths` positions.

    `q` (batch, queries, heads, head size), already scaled; pages (heads of keys, pages, page size,
    head size); `page_indices` (batch, pages); `effective_q_lens` (batch): how many of the queries
    are real. The numbers of blocks are for kernels, and have no effect.
    """
    groups = q.size(2) // k_pages.size(0)
    k, v = _of_pages(k_pages, page_indices), _of_pages(v_pages, page_indices)
    grouped = q.reshape(*q.shape[:2], k_pages.size(0), groups, q.size(3))
    scores = torch.einsum("bqhgd,bhld->bhgql", grouped.to(k.dtype), k)
    position = torch.arange(k.size(2), device=q.device)
    query = torch.arange(q.size(1), device=q.device)
    length, count = lengths.view(-1, 1, 1), effective_q_lens.view(-1, 1, 1)
    last = query[:, None] + length - count  # the position of each query
    allowed = (position <= last) & (position < length)
    weights = _softmax(_capped(scores, attn_logits_soft_cap), allowed[:, None, None])
    result = torch.einsum("bhgql,bhld->bqhgd", weights.to(v.dtype), v)
    return result.flatten(2, 3).to(q.dtype)


def paged_attention(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    lengths: torch.Tensor,
    page_indices: torch.Tensor,
    pages_per_compute_block: int = 0,
    megacore_mode: str | None = None,
    attn_logits_soft_cap: float | None = None,
) -> torch.Tensor:
    """Attention of one query of each sequence: `q` (batch, heads, head size), already scaled. The
    rest as in `multi_queries_paged_attention`."""
    if megacore_mode not in ("kv_head", "batch", None):
        raise ValueError(f"megacore_mode is 'kv_head', 'batch' or None, got {megacore_mode!r}")
    one = torch.ones_like(lengths)
    result = multi_queries_paged_attention(
        q[:, None],
        k_pages,
        v_pages,
        lengths,
        page_indices,
        one,
        attn_logits_soft_cap=attn_logits_soft_cap,
    )
    return result[:, 0]


def ragged_paged_attention(
    q: torch.Tensor,
    kv_pages: torch.Tensor,
    kv_lens: torch.Tensor,
    page_indices: torch.Tensor,
    cu_q_lens: torch.Tensor,
    num_seqs: torch.Tensor,
    sm_scale: float = 1.0,
    sliding_window: int | None = None,
    soft_cap: float | None = None,
    mask_value: float | None = None,
    k_scale: float | None = None,
    v_scale: float | None = None,
    use_kernel: bool = True,
    num_kv_pages_per_block: int | None = None,
    num_queries_per_block: int | None = None,
    vmem_limit_bytes: int | None = None,
) -> torch.Tensor:
    """Attention of the queries of many sequences, one after the other in `q` (tokens, heads, head
    size): those of sequence i are `cu_q_lens[i]` to `cu_q_lens[i + 1]`, the last ones of its
    `kv_lens[i]` positions. `kv_pages` (pages, page size, 2 * heads, head size) has keys and values
    in turn; `page_indices` (sequences, pages). Tokens behind the last sequence give zeros."""
    keys, values = kv_pages[:, :, 0::2], kv_pages[:, :, 1::2]
    k = _scaled(_of_pages(keys.permute(2, 0, 1, 3), page_indices), k_scale, q.dtype)
    v = _scaled(_of_pages(values.permute(2, 0, 1, 3), page_indices), v_scale, q.dtype)
    sequences, heads, length = k.shape[:3]
    token = torch.arange(q.size(0), device=q.device)
    starts, ends = cu_q_lens[:-1], cu_q_lens[1:]
    exists = torch.arange(sequences, device=q.device) < num_seqs.view(-1)[0]
    member = (token[:, None] >= starts) & (token[:, None] < ends) & exists  # tokens, sequences
    last = token[:, None] - ends + kv_lens  # the position of each token in each sequence
    position = torch.arange(length, device=q.device)
    allowed = member[:, :, None] & (position <= last[:, :, None])
    if sliding_window is not None:
        allowed = allowed & (position > last[:, :, None] - sliding_window)
    grouped = q.reshape(q.size(0), heads, -1, q.size(2))
    scores = torch.einsum("thgd,shld->thgsl", grouped, k) * sm_scale
    visible = allowed[:, None, None].flatten(-2)
    weights = _softmax(_capped(scores, soft_cap).flatten(-2), visible)
    flat = v.transpose(0, 1).flatten(1, 2)  # heads, sequences * positions, head size
    return torch.einsum("thgl,hld->thgd", weights.to(v.dtype), flat).flatten(1, 2).to(q.dtype)


def _scaled(pages: torch.Tensor, scale: float | None, dtype: torch.dtype) -> torch.Tensor:
    return pages.to(dtype) if scale is None else (pages.float() * scale).to(dtype)
