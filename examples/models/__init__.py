"""Small models in plain PyTorch: the examples, the tests and the benchmarks all train these."""

from .decoder import Decoder, DecoderConfig
from .gpt import GPT, GPTConfig
from .lstm import LSTMLanguageModel
from .resnet import ResNet, resnet18, resnet50
from .vit import ViT

__all__ = [
    "GPT",
    "Decoder",
    "DecoderConfig",
    "GPTConfig",
    "LSTMLanguageModel",
    "ResNet",
    "ViT",
    "resnet18",
    "resnet50",
]
