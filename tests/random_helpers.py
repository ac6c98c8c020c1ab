"""What lines of random programs call as `H`: contexts, transforms and threads as expressions."""

import copy
import io
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

Made = Callable[[], Any]


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return gradient * x * 3


class Shifted(torch.autograd.Function):
    """Changes its argument in place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x.add_(1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return gradient.neg()


class SumsByPart(TorchDispatchMode):
    """Adds complex numbers part by part. PyTorch's kernels multiply by alpha, which is one, before:
    where one part is infinite or nan, the other one becomes nan."""

    ADD = (torch.ops.aten.add.Tensor, torch.ops.aten.add_.Tensor)
    SUBTRACT = (torch.ops.aten.sub.Tensor, torch.ops.aten.sub_.Tensor)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        plain = func in self.ADD + self.SUBTRACT and not kwargs
        if not plain or not all(isinstance(x, Tensor) and x.is_complex() for x in args):
            return func(*args, **(kwargs or {}))
        one, other = args
        combine = torch.add if func in self.ADD else torch.sub
        result = torch.complex(combine(one.real, other.real), combine(one.imag, other.imag))
        return one.copy_(result) if func._schema.is_mutable else result


def inference(make: Made) -> Any:
    """A tensor that may take part in autograd later, made from one that may not."""
    with torch.inference_mode():
        made = make()
    return made.clone()


def quiet(make: Made) -> Any:
    with torch.no_grad():
        return make()


def autocasted(make: Made, device: str) -> Any:
    with torch.autocast(device, torch.bfloat16):
        return make()


def drawn(make: Made) -> list[Any]:
    """What is the same for all generators: the same seed draws the same numbers again."""
    torch.manual_seed(7)
    first, second = make(), make()
    torch.manual_seed(7)
    again = make()
    assert second.shape == first.shape
    return [bool(torch.equal(first.detach(), again.detach())), first.dtype, first.shape]


def saved(tensor: Tensor) -> Tensor:
    file = io.BytesIO()
    torch.save({"x": tensor.detach(), "rows": [tensor.detach()]}, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    loaded["rows"][0].fill_(1)  # shares its memory with the other one
    return loaded["x"]


def copied(tensor: Tensor) -> Tensor:
    first, second = copy.deepcopy([tensor, tensor.detach()])
    elements = second.untyped_storage().nbytes() // second.element_size()
    second.as_strided([elements], [1], 0).mul_(2)  # each once: windows may overlap
    return first.detach()


def first(result: Tensor, leaf: Tensor, create_graph: bool = False) -> Tensor:
    loss = (result * result * result).sum().abs()
    return torch.autograd.grad(
        loss, leaf, retain_graph=True, create_graph=create_graph, materialize_grads=True
    )[0]


def second(result: Tensor, leaf: Tensor) -> Tensor:
    gradient = first(result, leaf, create_graph=True)
    if not gradient.requires_grad:
        return gradient
    return torch.autograd.grad(gradient.sum(), leaf, retain_graph=True, materialize_grads=True)[0]


def as_bytes(tensor: Tensor) -> Tensor:
    """Bools hold 0 and 1: what is made of other bytes by those who write them differs."""
    return (tensor.clone() if tensor.dtype == torch.bool else tensor).view(torch.uint8)


def strides(tensor: Tensor) -> list[int]:
    """Those that count: operators choose the others freely."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return [stride for size, stride in pairs if size > 1 and tensor.numel()]


def through_numpy(tensor: Tensor) -> Tensor:
    array = tensor.detach().cpu().resolve_conj().resolve_neg().numpy().copy()
    return torch.from_numpy(array).to(tensor.device)


def hooked(tensor: Tensor) -> Tensor:
    result = tensor * 2
    result.register_hook(lambda gradient: gradient * 3)
    return result


def scale_grad(leaf: Tensor) -> None:
    assert leaf.grad is not None
    leaf.grad.mul_(2)


def checkpointed(function: Callable[[Tensor], Tensor], x: Tensor) -> Any:
    return checkpoint(function, x, use_reentrant=False)


def dual(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    with forward_ad.dual_level():
        result = function(forward_ad.make_dual(x.detach(), torch.ones_like(x)))
        return forward_ad.unpack_dual(result).tangent


def tried(make: Made) -> Any:
    """A mistake that the program survives."""
    try:
        return make()
    except (RuntimeError, IndexError) as error:
        return type(error).__name__


def elsewhere(make: Made) -> Any:
    found: dict[str, Any] = {}

    def run() -> None:
        try:
            found["value"] = make()
        except Exception as error:  # noqa: BLE001  (raised again where it is waited for)
            found["error"] = error

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if "error" in found:
        raise found["error"]
    return found["value"]
