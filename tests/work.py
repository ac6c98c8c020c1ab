"""What the device was asked to do, read from the metrics: tests count work, not only values."""

from dataclasses import dataclass, fields

import torch_xla.debug.metrics as metrics


def samples(metric: str) -> int:
    data = metrics.metric_data(metric)
    return data[0] if data else 0


def counter(name: str) -> int:
    return metrics.counter_value(name) or 0


# Recorded as one operator because the CPU has one kernel for it: called from programs on purpose.
# And .item(), which device_to_host counts.
_NOT_FALLBACKS = (
    "aten::mkldnn_rnn_layer",
    "aten::mkldnn_rnn_layer_backward",
    "aten::_local_scalar_dense",
)


def fallbacks() -> int:
    """Calls of operators that were not lowered, over all of them."""
    return sum(
        counter(name)
        for name in metrics.counter_names()
        if name.startswith("aten::") and name not in _NOT_FALLBACKS
    )


@dataclass(frozen=True)
class Work:
    executions: int
    compilations: int
    fallbacks: int
    device_to_host: int

    @classmethod
    def so_far(cls) -> "Work":
        return cls(
            executions=samples("ExecuteTime"),
            compilations=counter("UncachedCompile"),
            fallbacks=fallbacks(),
            device_to_host=samples("TransferFromDeviceTime"),
        )

    def since(self, earlier: "Work") -> "Work":
        return Work(
            **{f.name: getattr(self, f.name) - getattr(earlier, f.name) for f in fields(self)}
        )
