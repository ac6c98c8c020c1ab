"""(c) A compiled training step of ResNet-50, against CPU eager."""

import argparse

import torch
import torch.nn.functional as F
from timing import compare, write_json
from torch import Tensor, nn
from training import training_cases

from models import resnet50  # isort: skip  (training extends the path)


def class_loss(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(model(images), labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=2, help="training steps a round")
    parser.add_argument("--inductor", action="store_true", help="time torch.compile as well")
    parser.add_argument("--json", help="write the ratios to this file")
    options = parser.parse_args()

    torch.manual_seed(0)
    reference, candidates = training_cases(
        resnet50(),
        class_loss,
        lambda model: torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9),
        (torch.randn(8, 3, 64, 64), torch.randint(1000, (8,))),
        options.steps,
        options.inductor,
    )
    title = f"{options.steps} training steps of ResNet-50, 8 images of 64x64, SGD"
    write_json(options.json, {"resnet": compare(title, reference, candidates, options.rounds)})


if __name__ == "__main__":
    main()
