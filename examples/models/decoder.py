"""A decoder-only language model: RMSNorm, rotary positions, grouped-query attention, SwiGLU."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class DecoderConfig:
    vocabulary: int = 3200
    hidden: int = 256
    intermediate: int = 1024
    layers: int = 2
    heads: int = 8
    kv_heads: int = 4
    rotary_base: float = 10000.0

    @property
    def head_size(self) -> int:
        return self.hidden // self.heads

    @classmethod
    def deep(cls) -> "DecoderConfig":
        """100 narrow layers: recording them costs far more than computing them."""
        return cls(vocabulary=256, hidden=128, intermediate=1024, layers=100)


class RMSNorm(nn.Module):
    def __init__(self, size: int, epsilon: float = 1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        mean_square = x.pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(mean_square + self.epsilon))


def rotary_angles(
    config: DecoderConfig, length: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every position's rotation, each of shape (length, head_size)."""
    exponent = torch.arange(0, config.head_size, 2, device=device) / config.head_size
    frequency = config.rotary_base**-exponent
    angle = torch.outer(torch.arange(length, device=device), frequency)
    angle = torch.cat((angle, angle), dim=-1)
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Attention(nn.Module):
    def __init__(self, config: DecoderConfig):
        super().__init__()
        self.heads, self.kv_heads = config.heads, config.kv_heads
        self.head_size = config.head_size
        kv_size = config.kv_heads * config.head_size
        self.query = nn.Linear(config.hidden, config.hidden, bias=False)
        self.key = nn.Linear(config.hidden, kv_size, bias=False)
        self.value = nn.Linear(config.hidden, kv_size, bias=False)
        self.output = nn.Linear(config.hidden, config.hidden, bias=False)

    def split_heads(self, x: Tensor, heads: int) -> Tensor:
        return x.view(*x.shape[:2], heads, self.head_size).transpose(1, 2)

    def share(self, x: Tensor) -> Tensor:
        """Repeat each key or value head for the query heads of its group."""
        batch, kv_heads, length, size = x.shape
        group = self.heads // kv_heads
        shared = x[:, :, None].expand(batch, kv_heads, group, length, size)
        return shared.reshape(batch, self.heads, length, size)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        query = rotate(self.split_heads(self.query(x), self.heads), cos, sin)
        key = rotate(self.split_heads(self.key(x), self.kv_heads), cos, sin)
        value = self.split_heads(self.value(x), self.kv_heads)
        attended = F.scaled_dot_product_attention(
            query, self.share(key), self.share(value), is_causal=True
        )
        return self.output(attended.transpose(1, 2).reshape(x.shape))


class SwiGLU(nn.Module):
    def __init__(self, config: DecoderConfig):
        super().__init__()
        self.gate = nn.Linear(config.hidden, config.intermediate, bias=False)
        self.up = nn.Linear(config.hidden, config.intermediate, bias=False)
        self.down = nn.Linear(config.intermediate, config.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class DecoderLayer(nn.Module):
    def __init__(self, config: DecoderConfig):
        super().__init__()
        self.attention_norm = RMSNorm(config.hidden)
        self.attention = Attention(config)
        self.mlp_norm = RMSNorm(config.hidden)
        self.mlp = SwiGLU(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.mlp(self.mlp_norm(x))


class Decoder(nn.Module):
    def __init__(self, config: DecoderConfig):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.hidden)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.hidden)
        self.head = nn.Linear(config.hidden, config.vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the next token for tokens of shape (batch, length)."""
        cos, sin = rotary_angles(self.config, tokens.shape[1], tokens.device)
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x))
