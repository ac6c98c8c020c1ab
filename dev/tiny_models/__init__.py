"""The models that dev/models runs, by name: transformers/bert, timm/resnet18, diffusers/VQModel."""

from .case import Case, leaves, loss_of
from .of_diffusers import MODELS_OF_DIFFUSERS, SCHEDULERS, diffusers_case
from .of_timm import TIMM, timm_case
from .of_transformers import transformers_case, transformers_names

__all__ = ["Case", "case", "leaves", "loss_of", "names"]


def case(name: str) -> Case:
    library, _, model = name.partition("/")
    return {"transformers": transformers_case, "timm": timm_case, "diffusers": diffusers_case}[
        library
    ](model)


def names() -> list[str]:
    return [
        *(f"transformers/{name}" for name in transformers_names()),
        *(f"timm/{name}" for name in TIMM.split()),
        *(f"diffusers/{name}" for name in MODELS_OF_DIFFUSERS),
        *(f"diffusers/{name}Scheduler" for name in SCHEDULERS),
    ]
