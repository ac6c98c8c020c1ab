"""Models of `workloads.py` that the examples do not have."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Logits(nn.Module):
    """A model of transformers as a function of its tokens."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.model(input_ids=tokens).logits
        return logits


def bert() -> nn.Module:
    from transformers import BertConfig, BertForMaskedLM

    return Logits(BertForMaskedLM(BertConfig(vocab_size=8192, num_hidden_layers=4)))


class Block(nn.Module):
    def __init__(self, channels: int, out: int, time: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(8, channels), nn.GroupNorm(8, out)])
        self.first = nn.Conv2d(channels, out, 3, padding=1)
        self.time = nn.Linear(time, out)
        self.second = nn.Conv2d(out, out, 3, padding=1)
        self.skip = nn.Conv2d(channels, out, 1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.first(F.silu(self.norms[0](x))) + self.time(time)[:, :, None, None]
        return self.skip(x) + self.second(F.silu(self.norms[1](y)))


class PixelAttention(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(8, channels)
        self.attention = nn.MultiheadAttention(channels, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        pixels = self.norm(x).flatten(2).transpose(1, 2)
        mixed = self.attention(pixels, pixels, pixels, need_weights=False)[0]
        return x + mixed.transpose(1, 2).reshape(x.shape)


class UNet(nn.Module):
    """A diffusion model's: predicts the noise in images; the step is a fixed one."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        time = 4 * width
        self.embed = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time))
        self.into = nn.Conv2d(3, width, 3, padding=1)
        sizes = [width, 2 * width, 4 * width]
        self.down = nn.ModuleList(
            Block(a, b, time) for a, b in zip([width, *sizes], sizes, strict=False)
        )
        self.middle = PixelAttention(sizes[-1])
        self.up = nn.ModuleList(
            Block(2 * a, b, time) for a, b in zip(sizes[::-1], [*sizes[-2::-1], width], strict=True)
        )
        self.out = nn.Conv2d(width, 3, 3, padding=1)
        self.register_buffer("steps", torch.arange(width).float() / width)

    def forward(self, x: Tensor) -> Tensor:
        time = self.embed(torch.sin(self.steps).expand(x.shape[0], -1))
        x = self.into(x)
        kept = []
        for block in self.down:
            x = block(x, time)
            kept.append(x)
            x = F.avg_pool2d(x, 2)
        x = self.middle(x)
        for block in self.up:
            x = F.interpolate(x, scale_factor=2.0, mode="nearest")
            x = block(torch.cat([x, kept.pop()], 1), time)
        result: Tensor = self.out(x)
        return result


class Recommender(nn.Module):
    """Categories by tables, their products by pairs, and a small network over all."""

    def __init__(self, tables: int = 16, rows: int = 20_000, size: int = 16) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, size) for _ in range(tables))
        pairs = tables * (tables - 1) // 2
        self.register_buffer("pairs", torch.triu_indices(tables, tables, 1))
        self.top = nn.Sequential(
            nn.Linear(tables * size + pairs, 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU(),
            nn.Linear(64, 2),
        )  # fmt: skip

    def forward(self, categories: Tensor) -> Tensor:
        rows = torch.stack([table(categories[:, i]) for i, table in enumerate(self.tables)], 1)
        products = (rows @ rows.mT)[:, self.pairs[0], self.pairs[1]]
        scores: Tensor = self.top(torch.cat([rows.flatten(1), products], 1))
        return scores


class GraphNetwork(nn.Module):
    """Two rounds of messages along the edges, gathered at their ends, and averaged."""

    def __init__(self, nodes: int, edges: int, size: int, classes: int) -> None:
        super().__init__()
        self.register_buffer("edges", torch.randint(nodes, (2, edges)))
        ends = torch.bincount(self.edges[1], minlength=nodes).clamp(min=1)
        self.register_buffer("ends", ends[:, None].float())
        self.own = nn.ModuleList([nn.Linear(size, size), nn.Linear(size, classes)])
        self.sent = nn.ModuleList([nn.Linear(size, size), nn.Linear(size, classes)])

    def forward(self, x: Tensor) -> Tensor:
        for i, (own, sent) in enumerate(zip(self.own, self.sent, strict=True)):
            messages = torch.zeros_like(x).index_add(0, self.edges[1], x[self.edges[0]])
            x = own(x) + sent(messages / self.ends)
            x = x if i else F.relu(x)
        return x


class InvertedResidual(nn.Module):
    """Wide inside, by channels; a gate that sees the whole image weighs these."""

    def __init__(self, channels: int, out: int, kernel: int, stride: int, wider: int = 6):
        super().__init__()
        inside = channels * wider
        self.keeps = stride == 1 and channels == out
        self.widen = self._convolution(channels, inside, 1)
        self.filter = self._convolution(inside, inside, kernel, stride, inside)
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(inside, channels // 4, 1),
            nn.SiLU(),
            nn.Conv2d(channels // 4, inside, 1),
            nn.Sigmoid(),
        )
        self.narrow = nn.Sequential(nn.Conv2d(inside, out, 1, bias=False), nn.BatchNorm2d(out))

    @staticmethod
    def _convolution(channels: int, out: int, kernel: int, stride: int = 1, groups: int = 1):
        convolution = nn.Conv2d(
            channels, out, kernel, stride, kernel // 2, groups=groups, bias=False
        )
        return nn.Sequential(convolution, nn.BatchNorm2d(out), nn.SiLU())

    def forward(self, x: Tensor) -> Tensor:
        inside = self.filter(self.widen(x))
        out = self.narrow(inside * self.gate(inside))
        return x + out if self.keeps else out


class DenseLayer(nn.Module):
    """Its input, and a little more."""

    def __init__(self, channels: int, growth: int):
        super().__init__()
        self.grow = nn.Sequential(
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, 4 * growth, 1, bias=False),
            nn.BatchNorm2d(4 * growth),
            nn.ReLU(),
            nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.grow(x)], 1)


def dense(growth: int = 32) -> nn.Module:
    """Layers that see what all before them found: as much normalised as convolved."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for count in (6, 8):
        for _ in range(count):
            layers.append(DenseLayer(channels, growth))
            channels += growth
        layers += [nn.Conv2d(channels, channels // 2, 1, bias=False), nn.AvgPool2d(2)]
        channels //= 2
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


def mobile() -> nn.Module:
    """Convolutions by channels, as in networks for phones."""
    stages = [(16, 24, 3, 2), (24, 24, 3, 1), (24, 40, 5, 2), (40, 40, 5, 1), (40, 80, 3, 2),
              (80, 80, 3, 1), (80, 112, 5, 1), (112, 112, 5, 1), (112, 192, 5, 2)]  # fmt: skip
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1, bias=False),
        nn.BatchNorm2d(16),
        nn.SiLU(),
        *(InvertedResidual(*stage) for stage in stages),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(192, 1000),
    )


class Tagger(nn.Module):
    """A label for each word, from both sides of it."""

    def __init__(self, vocabulary: int = 4000, size: int = 128, labels: int = 32):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, size)
        self.gru = nn.GRU(size, size, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * size, labels)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.gru(self.embedding(words))[0])
