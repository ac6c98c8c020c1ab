"""Many parameters as one flat one: fewer and larger exchanges."""

from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn

from torch_xla.distributed.fsdp._lent import lend, put, take

_MODULE = "_fpw_module."


class State(NamedTuple):
    """What a FlatParameter is made of."""

    param_numels: list[int]
    param_shapes: list[torch.Size]
    param_infos: list[tuple[str, nn.Module, str]]
    shared_param_infos: list[tuple[str, str, nn.Module, str, nn.Module, str]]


class FlatParameter(nn.Parameter):
    """The numbers of several parameters, one after the other."""

    _param_numels: list[int]
    _param_shapes: list[torch.Size]
    _param_infos: list[tuple[str, nn.Module, str]]

    def __new__(cls, params: Sequence[torch.Tensor], requires_grad: bool = True) -> "FlatParameter":
        if not isinstance(params, (list, tuple)) or not params:
            raise ValueError("FlatParameter takes a list of at least one parameter")
        flat = torch.cat([p.detach().reshape(-1) for p in params])
        self: FlatParameter = super().__new__(cls, flat, requires_grad=requires_grad)
        self._param_numels = [p.numel() for p in params]
        self._param_shapes = [p.size() for p in params]
        self._param_infos = []
        return self

    def get_param_views(self, external_data: torch.Tensor | None = None) -> Iterator[torch.Tensor]:
        """The parameters as views of this one, or of other data of its size."""
        return views_of(self if external_data is None else external_data, self.metadata())

    def metadata(self) -> tuple[list[str], list[torch.Size], list[int]]:
        """Names, shapes and sizes of the parameters."""
        names = [".".join(filter(None, (m, n))) for m, _, n in self._param_infos]
        return names, self._param_shapes, self._param_numels


FlatTypes = FlatParameter | torch.Tensor
ParamGroups = list[list[nn.Parameter]] | list[nn.Parameter] | None


def views_of(flat: torch.Tensor, metadata: Any) -> Iterator[torch.Tensor]:
    """The parts of a flat tensor in their shapes."""
    _, shapes, numels = metadata
    if flat.numel() != sum(numels):
        raise ValueError(f"flat data of {sum(numels)} numbers was expected, got {flat.numel()}")
    return (part.view(shape) for part, shape in zip(torch.split(flat, numels), shapes, strict=True))


class XlaFlattenParamsWrapper(nn.Module):
    """`module` with its parameters in `flat_param_0`, ..., one for each group of `param_list` (one
    of all by default). They are views again while `forward` runs, and in `state_dict`."""

    def __init__(
        self,
        module: nn.Module,
        param_list: ParamGroups = None,
        flat_param_names: list[str] | None = None,
        auto_unflatten_state_dict: bool = True,
    ) -> None:
        super().__init__()
        self._fpw_module = module
        groups = _groups(list(module.parameters()) if param_list is None else param_list)
        names = flat_param_names or [str(i) for i in range(len(groups))]
        if len(names) != len(groups) or len(set(names)) != len(names):
            raise ValueError(f"flat_param_names must hold {len(groups)} different names: {names}")
        self.flat_param_names = [f"flat_param_{name}" for name in names]
        self._metadata: list[Any] = []
        self._places: list[list[tuple[nn.Module, str, int]]] = []
        for name, group in zip(self.flat_param_names, groups, strict=True):
            self._flatten(name, group)
        self._unflatten_state = auto_unflatten_state_dict

    def _flatten(self, name: str, group: Sequence[nn.Parameter]) -> None:
        index = {id(parameter): i for i, parameter in enumerate(group)}
        places: list[tuple[nn.Module, str, int]] = []
        infos: dict[int, tuple[str, nn.Module, str]] = {}
        for module_name, module in self._fpw_module.named_modules():
            for own_name, parameter in list(module._parameters.items()):
                if parameter is not None and id(parameter) in index:
                    number = index[id(parameter)]
                    infos.setdefault(number, (module_name, module, own_name))
                    places.append((module, own_name, number))
        if len(infos) != len(group):
            raise ValueError("param_list holds parameters that are not the module's")
        flat = FlatParameter(group, group[0].requires_grad)
        flat._param_infos = [infos[i] for i in range(len(group))]
        for module, own_name, number in places:
            del module._parameters[own_name]
            lend(module, own_name, partial(self._view, name, len(self._places), number))
        self._places.append(places)
        self._metadata.append(flat.metadata())
        self.register_parameter(name, flat)

    @property
    def module(self) -> nn.Module:
        return self._fpw_module

    @property
    def flat_params(self) -> list[FlatTypes]:
        return [getattr(self, name) for name in self.flat_param_names]

    @property
    def flat_param(self) -> FlatTypes:
        if len(self.flat_params) != 1:
            raise ValueError(f"there are {len(self.flat_params)} flat parameters: use flat_params")
        return self.flat_params[0]

    def metadata(self, flat_param_idx: int) -> Any:
        """Names, shapes and sizes of what is in a flat parameter."""
        return self._metadata[flat_param_idx]

    def get_param_views(
        self, external_data_list: Sequence[torch.Tensor | None] | None = None
    ) -> Iterator[torch.Tensor]:
        """All parameters as views of the flat ones, or of other data."""
        given = external_data_list or [None] * len(self.flat_params)
        for flat, data, metadata in zip(self.flat_params, given, self._metadata, strict=True):
            yield from views_of(flat if data is None else data, metadata)

    def _view(self, flat_name: str, group: int, number: int) -> torch.Tensor:
        return list(views_of(getattr(self, flat_name), self._metadata[group]))[number]

    @contextmanager
    def unflatten_params(self) -> Iterator[None]:
        """The parameters are attributes of their modules inside."""
        placed = []
        for flat, metadata, places in zip(
            self.flat_params, self._metadata, self._places, strict=True
        ):
            views = list(views_of(flat, metadata))
            for module, name, number in places:
                put(module, name, views[number])
                placed.append((module, name))
        try:
            yield
        finally:
            for module, name in placed:
                take(module, name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with self.unflatten_params():
            return self._fpw_module(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Attributes it lacks are those of the module."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("_fpw_module"), name)

    def __getitem__(self, key: int) -> Any:
        return self._fpw_module.__getitem__(key)  # type: ignore[operator]

    def flat_state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The state with the flat parameters."""
        state: dict[str, Any] = super().state_dict(*args, **kwargs)
        replace_by_prefix_(state, kwargs.get("prefix", "") + _MODULE, kwargs.get("prefix", ""))
        return state

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The state of the module."""
        state = self.flat_state_dict(*args, **kwargs)
        prefix = kwargs.get("prefix", "")
        for name, metadata in zip(self.flat_param_names, self._metadata, strict=True):
            flat = state.get(prefix + name)
            if self._unflatten_state and flat is not None and flat.numel() == sum(metadata[2]):
                del state[prefix + name]
                for own, view in zip(metadata[0], views_of(flat, metadata), strict=True):
                    state[prefix + own] = view
        return state

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        for name, metadata in zip(self.flat_param_names, self._metadata, strict=True):
            keys = [prefix + own for own in metadata[0]]
            if keys[0] in state_dict:
                parts = [state_dict.pop(key).reshape(-1) for key in keys]
                state_dict[prefix + name] = torch.cat(parts)
        own_keys = {prefix + name for name in self.flat_param_names}
        for key in [k for k in state_dict if k.startswith(prefix) and k not in own_keys]:
            if not key.startswith(prefix + _MODULE):
                state_dict[prefix + _MODULE + key[len(prefix) :]] = state_dict.pop(key)
        super()._load_from_state_dict(state_dict, prefix, *args)


def _groups(param_list: Any) -> list[list[nn.Parameter]]:
    given = [param_list] if param_list and isinstance(param_list[0], nn.Parameter) else param_list
    groups = [list({id(p): p for p in group}.values()) for group in given if group]
    if len({id(p) for group in groups for p in group}) != sum(map(len, groups)):
        raise ValueError("a parameter cannot be in two groups of param_list")
    return groups


def replace_by_prefix_(
    state_dict: MutableMapping[str, Any], old_prefix: str, new_prefix: str
) -> None:
    """Gives the keys that begin with `old_prefix` the other prefix, in place."""
    if old_prefix == new_prefix:
        raise ValueError("old_prefix and new_prefix must be distinct")
    for key in [key for key in state_dict if key.startswith(old_prefix)]:
        state_dict[new_prefix + key[len(old_prefix) :]] = state_dict.pop(key)
