"""What an exported program consists of, and its folder.

functions/NAME.mlir, NAME.meta, and NAME.bytecode where a converter is installed;
               NAME.template where sizes are dynamic (stablehlo_sizes.py), which is what is run
data/NAME      each parameter and buffer, as .npy; or weights.safetensors with all of them
constants/N    what else the program reads
"""

import contextlib
import dataclasses
import enum
import importlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from torch_xla._internal import stablehlo_bytecode
from torch_xla._internal.stablehlo_dynamic import dynamic_text
from torch_xla._internal.stablehlo_sizes import DynamicSizes


class VariableType(enum.Enum):
    INPUT_ARG = "input_arg"
    PARAMETER = "parameter"
    CONSTANT = "constant"


@dataclass
class VariableSignature:
    """Shape and dtype of an input or output."""

    shape: list[int]
    dtype: str
    dynamic_dims: list[int] = dataclasses.field(default_factory=list)

    def check(self, tensor: torch.Tensor, name: str) -> None:
        """Raises if it is something else, but for sizes where some are dynamic."""
        given = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
        shape = list(tensor.shape) if self.dynamic_dims else self.shape
        if given != f"{self.dtype}{shape}":
            raise ValueError(
                f"{name} must be {self.dtype}{shape}, and is {given}: convert it, or export the "
                "program for what it is (torch.export.Dim for sizes that vary)"
            )


@dataclass
class InputLocation:
    """Where an input of the program comes from: an argument, a parameter, or a constant."""

    type_: VariableType
    position: int = -1
    name: str = ""

    @classmethod
    def parameter(cls, name: str) -> "InputLocation":
        return cls(VariableType.PARAMETER, name=name)

    @classmethod
    def input_arg(cls, position: int) -> "InputLocation":
        return cls(VariableType.INPUT_ARG, position=position)

    @classmethod
    def constant(cls, position: int) -> "InputLocation":
        return cls(VariableType.CONSTANT, position=position)


@dataclass
class StableHLOFunctionMeta:
    """How a function is called. Trees of arguments and results are those of torch.utils._pytree.
    After its results a function returns what becomes of the buffers that it changes. Where sizes
    are dynamic, signatures have those of the example."""

    name: str
    stablehlo_version: str
    input_signature: list[VariableSignature]
    output_signature: list[VariableSignature]
    input_locations: list[InputLocation]
    unused_inputs: list[tuple[InputLocation, VariableSignature]]
    input_pytree_spec: str | None = None
    output_pytree_spec: str | None = None
    changed_buffers: list[str] = dataclasses.field(default_factory=list)
    dynamic_sizes: DynamicSizes | None = None


@dataclass
class StableHLOFunc:
    """A function as text, and as portable bytecode where a converter is installed; with dynamic
    sizes as a template, too."""

    meta: StableHLOFunctionMeta
    bytecode: bytes | None
    text: str | None
    template: str | None = None

    def module_text(self) -> str:
        if self.text is None:
            if self.bytecode is not None:
                self.text = stablehlo_bytecode.to_text(self.bytecode)
            elif self.template is not None and self.meta.dynamic_sizes is not None:
                self.text = dynamic_text(self.template, [*self.meta.dynamic_sizes.ranges])
            else:
                raise ValueError(f"the function {self.meta.name} has neither text nor bytecode")
        return self.text

    def add_portable_forms(self, text: bool) -> None:
        """Bytecode, where there is a converter, and text, where it is wanted or all there is."""
        written = self.module_text()
        if stablehlo_bytecode.available():
            self.bytecode = stablehlo_bytecode.to_bytecode(written)
            self.text = written if text else None


@dataclass
class StableHLOModelBundle:
    """Functions and what they read beside their arguments. Values are arrays, or tensors where
    NumPy has no such dtype."""

    state_dict: dict[str, Any]
    additional_constants: list[Any]
    stablehlo_funcs: list[StableHLOFunc]


_WEIGHTS = "weights.safetensors"
_OF_OURS = {"changed_buffers", "dynamic_sizes", "template"}  # PyTorch/XLA does not know them


class StableHLOJSONSerializer(json.JSONEncoder):
    """Writes the classes of this module."""

    def default(self, o: Any) -> Any:
        if dataclasses.is_dataclass(o) and not isinstance(o, type):
            fields = dataclasses.asdict(o)
            return {k: v for k, v in fields.items() if v or k not in _OF_OURS}
        return o.value if isinstance(o, VariableType) else super().default(o)


def stablehlo_obj_hook(dct: dict[str, Any]) -> Any:
    """Reads them again: an `object_hook` for json.load."""
    kinds = (StableHLOFunctionMeta, StableHLOFunc, VariableSignature, InputLocation, DynamicSizes)
    for kind in kinds:
        names = {field.name for field in dataclasses.fields(kind)}
        if names - _OF_OURS <= dct.keys() <= names:
            if kind is InputLocation:
                dct = {**dct, "type_": VariableType(dct["type_"])}
            return kind(**dct)
    return dct


def as_array(tensor: torch.Tensor) -> Any:
    """An array, or the tensor itself on the CPU where NumPy has no such dtype."""
    host = tensor.detach().cpu().contiguous()
    try:
        return host.numpy()
    except TypeError:
        return host


def as_tensor(value: Any, dtype: str) -> torch.Tensor:
    """The value of an input whose dtype the signature names."""
    wanted: torch.dtype = getattr(torch, dtype)
    tensor = value if isinstance(value, torch.Tensor) else torch.from_numpy(np.asarray(value))
    # Dtypes that NumPy lacks were saved as their bytes.
    return tensor if tensor.dtype == wanted else tensor.view(wanted)


def _save_array(path: Path, value: Any) -> None:
    if isinstance(value, torch.Tensor):
        bits = {1: torch.uint8, 2: torch.int16}[value.element_size()]
        value = value.view(bits).numpy()
    with open(path, "wb") as file:
        np.save(file, value, allow_pickle=False)


def _load_array(path: Path) -> Any:
    with open(path, "rb") as file, _read(path):
        return np.lib.format.read_array(file, allow_pickle=False)


@contextlib.contextmanager
def _read(path: Path) -> Iterator[None]:
    """What fails inside is due to the file."""
    try:
        yield
    except Exception as error:
        raise ValueError(
            f"{path} is damaged: save the program anew ({type(error).__name__}: {error})"
        ) from error


def _safetensors() -> Any:
    try:
        return importlib.import_module("safetensors.torch")
    except ImportError:
        raise ImportError(
            "weights as safetensors need the package safetensors: pip install safetensors"
        ) from None


def _save_safetensors(path: Path, state_dict: dict[str, Any]) -> None:
    tensors = {name: torch.as_tensor(value).clone() for name, value in state_dict.items()}
    _safetensors().save_file(tensors, path)


def _new_folder(parent: Path, name: str) -> Path:
    folder = parent / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


WEIGHTS_FORMATS = ("npy", "safetensors")


def save(
    bundle: StableHLOModelBundle, directory: "str | os.PathLike[str]", weights: str | None
) -> None:
    """`weights`: the format of the weights; None: without them."""
    root = Path(directory)
    if weights == "safetensors":
        root.mkdir(parents=True, exist_ok=True)
        _save_safetensors(root / _WEIGHTS, bundle.state_dict)
    elif weights is not None:
        data = _new_folder(root, "data")
        for name, value in bundle.state_dict.items():
            _save_array(data / name, value)
    functions = _new_folder(root, "functions")
    for function in bundle.stablehlo_funcs:
        meta = json.dumps(function.meta, cls=StableHLOJSONSerializer)
        (functions / f"{function.meta.name}.meta").write_text(meta)
        if function.bytecode is not None:
            (functions / f"{function.meta.name}.bytecode").write_bytes(function.bytecode)
        if function.text is not None:
            (functions / f"{function.meta.name}.mlir").write_text(function.text)
        if function.template is not None:
            (functions / f"{function.meta.name}.template").write_text(function.template)
    constants = _new_folder(root, "constants")
    for number, value in enumerate(bundle.additional_constants):
        _save_array(constants / str(number), value)


def load(directory: "str | os.PathLike[str]") -> StableHLOModelBundle:
    root = Path(directory)
    metas = sorted((root / "functions").glob("*.meta"))
    if not metas:
        raise FileNotFoundError(
            f"{root} is not a folder that save_as_stablehlo wrote: it has no functions/*.meta"
        )
    functions = []
    for path in metas:
        with _read(path):
            meta = json.loads(path.read_text(), object_hook=stablehlo_obj_hook)
            if not isinstance(meta, StableHLOFunctionMeta):
                raise ValueError("it says nothing of a function")
        bytecode, text = path.with_suffix(".bytecode"), path.with_suffix(".mlir")
        template = path.with_suffix(".template")
        if not any(program.exists() for program in (bytecode, text, template)):
            raise FileNotFoundError(f"{root} has no program: there is neither {text} nor bytecode")
        functions.append(
            StableHLOFunc(
                meta,
                bytecode.read_bytes() if bytecode.exists() else None,
                text.read_text() if text.exists() else None,
                template.read_text() if template.exists() else None,
            )
        )
    data, constants = root / "data", root / "constants"
    if (root / _WEIGHTS).exists():
        safetensors = _safetensors()
        with _read(root / _WEIGHTS):
            weights = safetensors.load_file(root / _WEIGHTS)
    else:
        weights = {path.name: _load_array(path) for path in sorted(data.glob("*"))}
    numbers = sorted(int(path.name) for path in constants.glob("*"))
    values = [_load_array(constants / str(number)) for number in numbers]
    return StableHLOModelBundle(weights, values, functions)
