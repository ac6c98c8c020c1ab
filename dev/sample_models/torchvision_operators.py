"""Importing torchvision, which timm and transformers do, asks for operators of its C++ library. A
wheel that was not built for this PyTorch has none; the models here need only their names."""

import contextlib

import torch

library = torch.library.Library("torchvision", "FRAGMENT")


def declare() -> None:
    with contextlib.suppress(ImportError):  # there is none at all
        try:
            import torchvision  # noqa: F401
        except RuntimeError:
            for name in ("nms", "qnms"):
                library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
