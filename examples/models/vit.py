"""A vision transformer: patches, a class token, pre-norm encoder blocks."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    def __init__(self, size: int, heads: int):
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(size)
        self.query_key_value = nn.Linear(size, 3 * size)
        self.output = nn.Linear(size, size)
        self.mlp_norm = nn.LayerNorm(size)
        self.mlp = nn.Sequential(nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size))

    def attention(self, x: Tensor) -> Tensor:
        heads = self.query_key_value(x).unflatten(-1, (3, self.heads, -1))
        query, key, value = heads.permute(2, 0, 3, 1, 4).unbind()
        attended = F.scaled_dot_product_attention(query, key, value)
        return self.output(attended.transpose(1, 2).flatten(2))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class ViT(nn.Module):
    def __init__(
        self,
        image: int = 64,
        patch: int = 8,
        size: int = 192,
        layers: int = 6,
        heads: int = 3,
        classes: int = 1000,
    ):
        super().__init__()
        self.patches = nn.Conv2d(3, size, patch, stride=patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, size))
        self.positions = nn.Parameter(torch.randn(1, (image // patch) ** 2 + 1, size) * 0.02)
        self.blocks = nn.Sequential(*(Block(size, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(size)
        self.head = nn.Linear(size, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Class logits for images of shape (batch, 3, image, image)."""
        patches = self.patches(images).flatten(2).transpose(1, 2)
        class_token = self.class_token.expand(patches.shape[0], -1, -1)
        x = torch.cat((class_token, patches), dim=1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])
