"""Seeds of the devices. Nothing here starts the client: the core remembers a seed until it does."""

import secrets

from torch_xla import _XLAC

ALL_DEVICES = -1


def seed_device(device: int, seed: int) -> None:
    _XLAC.seed(device, as_int64(seed))


def as_int64(seed: int) -> int:
    """PyTorch takes seeds from -2**63 to 2**64 - 1; the upper half wraps round."""
    seed = int(seed)
    if not -(2**63) <= seed < 2**64:
        raise RuntimeError(f"expected a seed from -2**63 to 2**64 - 1, got {seed}")
    return (seed + 2**63) % 2**64 - 2**63


def fresh_seed() -> int:
    return secrets.randbits(63)
