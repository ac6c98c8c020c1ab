"""A GPT: learnt positions, dropout, and one weight for both the embedding and the head."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class GPTConfig:
    vocabulary: int = 1000
    context: int = 128
    size: int = 128
    layers: int = 4
    heads: int = 4
    dropout: float = 0.1


class Block(nn.Module):
    def __init__(self, config: GPTConfig):
        super().__init__()
        size = config.size
        self.heads, self.dropout_rate = config.heads, config.dropout
        self.attention_norm = nn.LayerNorm(size)
        self.query_key_value = nn.Linear(size, 3 * size)
        self.output = nn.Linear(size, size)
        self.mlp_norm = nn.LayerNorm(size)
        self.mlp = nn.Sequential(
            nn.Linear(size, 4 * size), nn.GELU(approximate="tanh"), nn.Linear(4 * size, size)
        )
        self.dropout = nn.Dropout(config.dropout)

    def attention(self, x: Tensor) -> Tensor:
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.query_key_value(x).chunk(3, dim=-1)
        )
        rate = self.dropout_rate if self.training else 0.0
        attended = F.scaled_dot_product_attention(query, key, value, dropout_p=rate, is_causal=True)
        return self.output(attended.transpose(1, 2).flatten(2))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        return x + self.dropout(self.mlp(self.mlp_norm(x)))


class GPT(nn.Module):
    def __init__(self, config: GPTConfig):
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.size)
        self.positions = nn.Embedding(config.context, config.size)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.Sequential(*(Block(config) for _ in range(config.layers)))
        self.norm = nn.LayerNorm(config.size)
        self.head = nn.Linear(config.size, config.vocabulary, bias=False)
        nn.init.normal_(self.tokens.weight, std=0.02)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the next token for tokens of shape (batch, length)."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self.tokens(tokens) + self.positions(positions))
        return self.head(self.norm(self.blocks(x)))
