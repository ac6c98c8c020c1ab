"""Copies, pickles and files keep what tensors share, as those of CPU tensors do.

PyTorch takes tensors of this device for tensors without storages and copies each on its own.
"""

import collections
import copy
import copyreg
import functools
from collections.abc import Callable
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
import torch.multiprocessing.reductions
from torch import Tensor, UntypedStorage
from torch._subclasses import FakeTensor

from torch_xla import _XLAC
from torch_xla._internal.devices import device_index, type_name

# Between PyTorch's own packages (10 to 26) and those of users.
_SERIALIZATION_PRIORITY = 30


def install() -> None:
    _extend(Tensor, "__deepcopy__", _deepcopy_tensor, _is_copied_here)
    _extend(Tensor, "_reduce_ex_internal", _reduce_tensor, _has_own_storage)
    _extend(Tensor, "_reduce_ex_internal", _reduce_wrapper, _is_wrapper)
    for method in (resize_, clone, byteswap, is_shared, share_memory_, _write_file, _set_from_file):
        _extend(UntypedStorage, method.__name__, method, lambda s: s.device.type == type_name)
    UntypedStorage.__new__ = _new_storage  # type: ignore[assignment]
    for name in ("__dlpack__", "__dlpack_device__"):
        _extend(Tensor, name, _refuse_dlpack, lambda tensor: tensor.device.type == type_name)
    _share_through_dlpack()
    _extend(Tensor, "new", _new_sparse, lambda tensor: tensor.is_sparse and tensor.is_xla)
    for kind in (Tensor, torch.nn.Parameter):
        ForkingPickler.register(kind, _reduce_for_process)
    torch.serialization.register_package(_SERIALIZATION_PRIORITY, _tag_storage, _restore_storage)


def _extend(
    kind: type, name: str, ours: Callable[..., Any], applies: Callable[[Any], bool]
) -> None:
    original = getattr(kind, name)

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return (ours if applies(self) else original)(self, *args, **kwargs)

    setattr(kind, name, method)


def _has_own_storage(tensor: Tensor) -> bool:
    return (
        tensor.device.type == type_name
        and tensor.layout is torch.strided
        and type(tensor).__torch_dispatch__ is Tensor.__torch_dispatch__
    )


def _is_wrapper(tensor: Tensor) -> bool:
    """Of other tensors, which are its attributes."""
    return (
        tensor.device.type == type_name
        and type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__
        and not isinstance(tensor, FakeTensor)
        and tensor.data_ptr() == 0
    )


def _is_copied_here(tensor: Tensor) -> bool:
    """Subclasses are once their `__torch_function__` was asked, if they make their own type."""
    return (
        tensor.is_leaf
        and _has_own_storage(tensor)
        and not torch.overrides.has_torch_function_unary(tensor)  # type: ignore[no-untyped-call]
        and (type(tensor) is Tensor or type(tensor.new_empty([])) is type(tensor))
    )


def _deepcopy_tensor(self: Tensor, memo: dict[int, Any]) -> Tensor:
    if id(self) in memo:
        copied: Tensor = memo[id(self)]
        return copied
    with torch.no_grad():
        storage = copy.deepcopy(self.untyped_storage(), memo)
        copied = _placed(self.new_empty([]), storage, self)
        copied = copied.conj_physical() if self.is_conj() else copied
        copied = copied.neg() if self.is_neg() else copied
    copied.requires_grad_(self.requires_grad)
    if self.grad is not None:
        copied.grad = copy.deepcopy(self.grad, memo)
    for slot in copyreg._slotnames(type(self)):  # type: ignore[attr-defined]
        if hasattr(self, slot):
            setattr(copied, slot, copy.deepcopy(getattr(self, slot), memo))
    copied.__dict__ = copy.deepcopy(self.__dict__, memo)
    memo[id(self)] = copied
    return copied


def _placed(tensor: Tensor, storage: UntypedStorage, like: Tensor) -> Tensor:
    return tensor.set_(storage, like.storage_offset(), like.size(), like.stride())  # type: ignore[call-overload]


def _reduce_tensor(self: Tensor, proto: int) -> tuple[Any, ...]:
    torch.utils.hooks.warn_if_has_hooks(self)
    place = (self.storage_offset(), tuple(self.size()), self.stride())
    rest: tuple[Any, ...] = (self.requires_grad, collections.OrderedDict())
    metadata = torch._utils.get_tensor_metadata(self)  # type: ignore[no-untyped-call]
    metadata_argument = (metadata,) if metadata else ()
    if self.dtype in torch.storage._new_dtypes():
        arguments = (self.untyped_storage(), *place, *rest, self.dtype, *metadata_argument)
        return torch._utils._rebuild_tensor_v3, arguments
    return torch._utils._rebuild_tensor_v2, (
        self._typed_storage(),  # type: ignore[no-untyped-call]
        *place,
        *rest,
        *metadata_argument,
    )


def _reduce_wrapper(self: Tensor, proto: int) -> tuple[Any, ...]:
    torch.utils.hooks.warn_if_has_hooks(self)
    return torch._utils._rebuild_wrapper_subclass, (
        type(self),
        self.dtype,
        tuple(self.size()),
        self.stride(),
        self.storage_offset(),
        self.layout,
        self.device,
        self.requires_grad,
    )


def _new_storage(kind: type, *arguments: Any, **options: Any) -> UntypedStorage:
    """DataLoader's workers collate into such storages."""
    device = options.get("device")
    of_ours = device is not None and torch.device(device).type == type_name
    made: UntypedStorage = torch._C.StorageBase.__new__(
        kind, *arguments, **({} if of_ours else options)
    )
    return _bytes_of(made).to(device).untyped_storage() if of_ours else made


def resize_(self: UntypedStorage, size: int) -> UntypedStorage:
    _XLAC.resize_storage(_bytes_of(self), size)
    return self


def clone(self: UntypedStorage) -> UntypedStorage:
    copied = torch.empty(self.nbytes(), dtype=torch.uint8, device=self.device)
    return copied.untyped_storage().copy_(self)


def byteswap(self: UntypedStorage, dtype: torch.dtype) -> None:
    contents = self.cpu()  # type: ignore[no-untyped-call]
    contents.byteswap(dtype)
    self.copy_(contents)


def is_shared(self: UntypedStorage) -> bool:
    return False


def share_memory_(self: UntypedStorage) -> UntypedStorage:
    """PyTorch's does nothing on any accelerator, since CUDA's processes see the same memory."""
    raise NotImplementedError(
        "processes cannot share the memory of an xla tensor, each gets a copy of what it is sent: "
        "share tensor.cpu(), and copy from it and to it"
    )


def _write_file(self: UntypedStorage, *args: Any) -> None:
    self.cpu()._write_file(*args)  # type: ignore[no-untyped-call]


def _set_from_file(self: UntypedStorage, *args: Any) -> UntypedStorage:
    self.copy_(UntypedStorage(self.nbytes())._set_from_file(*args))  # type: ignore[no-untyped-call]
    return self


def _bytes_of(storage: UntypedStorage) -> Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)  # type: ignore[call-overload,no-any-return]


def _tag_storage(storage: Any) -> str | None:
    return str(storage.device) if storage.device.type == type_name else None


def _restore_storage(storage: Any, location: str) -> Any:
    if location.partition(":")[0] != type_name:
        return None
    target = torch.device(type_name, device_index(location))
    untyped = getattr(storage, "_untyped_storage", storage)
    restored = _bytes_of(untyped).to(target).untyped_storage()
    if untyped is storage:
        return restored
    typed: Any = torch.storage.TypedStorage
    return typed(wrap_storage=restored, dtype=storage.dtype, _internal=True)


def _new_sparse(self: Tensor, *arguments: Any) -> Tensor:
    """`grad.new(indices, values, size)` of torch.optim: PyTorch's own knows no such device."""
    options: dict[str, Any] = {"dtype": self.dtype, "device": self.device}
    return torch.sparse_coo_tensor(*(arguments or ((0,),)), **options, check_invariants=False)


def _refuse_dlpack(self: Tensor, **options: Any) -> Any:
    raise BufferError(
        "the memory of an xla tensor may move and cannot be lent through DLPack: export "
        "tensor.cpu(), or the copy that torch_xla.utils.dlpack.to_dlpack(tensor) makes"
    )


def _share_through_dlpack() -> None:
    """What `torch.from_dlpack` makes of a tensor of this device shares its storage."""
    original = torch.utils.dlpack.from_dlpack

    @functools.wraps(original)
    def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
        if not isinstance(ext_tensor, Tensor) or ext_tensor.device.type != type_name:
            return original(ext_tensor, device=device, copy=copy)
        if ext_tensor.requires_grad:
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
        return ext_tensor.detach().to(device or ext_tensor.device, copy=bool(copy))

    torch.from_dlpack = torch.utils.dlpack.from_dlpack = from_dlpack  # type: ignore[attr-defined]


def _reduce_for_process(tensor: Tensor) -> tuple[Any, ...]:
    """Queues and pipes carry a copy in the host's shared memory; the receiver moves it."""
    if tensor.device.type != type_name:
        reduced: tuple[Any, ...] = torch.multiprocessing.reductions.reduce_tensor(tensor)  # type: ignore[no-untyped-call]
        return reduced
    contents = tensor.detach().cpu()
    starting: Any = get_spawning_popen()
    if starting is not None:  # it passes on the memory's file descriptor once all is pickled
        vars(starting).setdefault("_contents_of_tensors", []).append(contents)
    return _receive, (type(tensor), contents, str(tensor.device), tensor.requires_grad)


def _receive(kind: type, contents: Tensor, device: str, requires_grad: bool) -> Tensor:
    moved = contents.to(device)
    if issubclass(kind, torch.nn.Parameter):
        return torch.nn.Parameter(moved, requires_grad)
    return moved.requires_grad_(requires_grad)
