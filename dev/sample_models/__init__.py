"""Models of other libraries by name, with inputs: transformers/bert, timm/resnet18,
diffusers/VQModel. What shows that they work and how fast they are builds them here."""

from . import torchvision_operators
from .case import TINY, USUAL, Case, Scale, leaves, loss_of
from .of_diffusers import MODELS_OF_DIFFUSERS, SCHEDULERS, diffusers_case
from .of_timm import TIMM, timm_case
from .of_transformers import transformers_case, transformers_names

__all__ = ["SCALES", "TINY", "USUAL", "Case", "Scale", "case", "leaves", "loss_of", "names"]

torchvision_operators.declare()
SCALES = {"tiny": TINY, "usual": USUAL}


def case(name: str, scale: Scale = TINY) -> Case:
    library, _, model = name.partition("/")
    if library == "diffusers":
        if scale is not TINY:
            raise ValueError("models of diffusers are tiny only")
        return diffusers_case(model)
    return {"transformers": transformers_case, "timm": timm_case}[library](model, scale)


def names(scale: Scale = TINY) -> list[str]:
    """Of the models there are in this scale."""
    found = [f"transformers/{name}" for name in transformers_names()]
    found += [f"timm/{name}" for name in TIMM.split()]
    if scale is TINY:
        found += [f"diffusers/{name}" for name in MODELS_OF_DIFFUSERS]
        found += [f"diffusers/{name}Scheduler" for name in SCHEDULERS]
    return found
