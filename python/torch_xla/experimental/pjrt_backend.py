"""What programs import for `init_method="pjrt://"`, which torch_xla registers by itself."""

from torch_xla.distributed import xla_backend

__all__ = ["xla_backend"]
