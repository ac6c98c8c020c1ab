"""The version of the package and of its distribution (pyproject.toml reads it here)."""

__version__ = "2.13.0"

# The PyTorch release whose C++ interface the extension is built against.
TORCH_VERSION = "2.13.0"
