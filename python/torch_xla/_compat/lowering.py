"""Pending graphs as modules for other tools, in the manner of 2.9."""

from collections.abc import Sequence

import torch

from torch_xla import _XLAC


class LoweringContext:
    """`build(tensors)` writes what these tensors wait for as one module. It is StableHLO, where 2.9
    gives HLO: `hlo()` is what `xla_builder.computation_from_module_proto` reads."""

    def __init__(self, name: str = "FooBar", device: str = "") -> None:
        self._name = name
        self._text: str | None = None
        self._parameters: list[torch.Tensor] = []

    def set_name_string(self, name: str) -> None:
        self._name = name

    def get_name_string(self) -> str:
        return self._name

    def build(self, tensors: Sequence[torch.Tensor]) -> None:
        whole = [tensor.clone(memory_format=torch.contiguous_format) for tensor in tensors]
        text, self._parameters, _ = _XLAC.export_graph(whole, [], "main")
        self._text = text.replace("module @main", f"module @{self._name}", 1)

    def hlo(self) -> str:
        return self.hlo_text()

    def hlo_text(self) -> str:
        if self._text is None:
            raise RuntimeError("LoweringContext: call build(tensors) first")
        return self._text

    def hlo_json(self) -> str:
        raise NotImplementedError(
            "LoweringContext writes StableHLO (hlo_text), of which there is no form in JSON"
        )

    def parameter_id_tensor_mapping(self) -> dict[int, torch.Tensor]:
        """What the module's parameters were, on the CPU."""
        self.hlo_text()
        return dict(enumerate(self._parameters))

    def device_parameter_id_tensor_mapping(self) -> dict[int, torch.Tensor]:
        """The same as tensors of the device."""
        parameters = self.parameter_id_tensor_mapping()
        return {number: tensor.to("xla") for number, tensor in parameters.items()}
