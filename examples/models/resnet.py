"""Residual networks for images, with basic blocks (ResNet-18) or bottlenecks (ResNet-50)."""

from collections.abc import Sequence

from torch import Tensor, nn


def conv_norm(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(outputs),
    )


def shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    if inputs == outputs and stride == 1:
        return nn.Identity()
    return conv_norm(inputs, outputs, 1, stride)


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int):
        super().__init__()
        self.residual = nn.Sequential(
            conv_norm(inputs, width, 3, stride),
            nn.ReLU(inplace=True),
            conv_norm(width, width, 3),
        )
        self.shortcut = shortcut(inputs, width, stride)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.residual(x) + self.shortcut(x))


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int):
        super().__init__()
        outputs = width * self.expansion
        self.residual = nn.Sequential(
            conv_norm(inputs, width, 1),
            nn.ReLU(inplace=True),
            conv_norm(width, width, 3, stride),
            nn.ReLU(inplace=True),
            conv_norm(width, outputs, 1),
        )
        self.shortcut = shortcut(inputs, outputs, stride)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.residual(x) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: Sequence[int],
        classes: int = 1000,
        width: int = 64,
    ):
        super().__init__()
        self.stem = nn.Sequential(
            conv_norm(3, width, 7, stride=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        blocks: list[nn.Module] = []
        inputs = width
        for stage, depth in enumerate(depths):
            stage_width = width << stage
            for index in range(depth):
                stride = 2 if stage > 0 and index == 0 else 1
                blocks.append(block(inputs, stage_width, stride))
                inputs = stage_width * block.expansion
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(inputs, classes)
        self.initialise()

    def initialise(self) -> None:
        """Every residual starts at zero, so that the network starts shallow and trains calmly."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, BasicBlock | Bottleneck):
                nn.init.zeros_(module.residual[-1][1].weight)

    def forward(self, images: Tensor) -> Tensor:
        """Class logits for images of shape (batch, 3, height, width)."""
        return self.head(self.pool(self.blocks(self.stem(images))).flatten(1))


def resnet18(classes: int = 1000, width: int = 64) -> ResNet:
    return ResNet(BasicBlock, (2, 2, 2, 2), classes, width)


def resnet50(classes: int = 1000, width: int = 64) -> ResNet:
    return ResNet(Bottleneck, (3, 4, 6, 3), classes, width)
