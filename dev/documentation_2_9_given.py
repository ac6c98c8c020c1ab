"""What single blocks of 2.9's documentation take from their reader: code that runs before them, by
page and line, for dev/documentation_2_9."""

_ATTENTION = """
import torch_xla.experimental.custom_kernel
from torch_xla.experimental.custom_kernel import flash_attention
q = k = v = torch.randn(1, 2, 128, 8, device=device)
"""
_PAGED = """
query = torch.randn(2, 1, 4, 128, device=device)
key_cache = value_cache = torch.randn(2, 8, 16, 128, device=device)
context_lens = torch.tensor([5, 16], dtype=torch.int32, device=device)
block_tables = torch.arange(4, dtype=torch.int32, device=device).reshape(2, 2)
pages_per_compute_block = 1
"""
_MNIST = """
class MNISTNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(10, 10)
    def forward(self, x):
        return F.log_softmax(self.layer(x), dim=1)
MNIST = MNISTNet
lr = learning_rate = 0.1
momentum = 0.9
"""
_LOADER = """
class _Data(torch.utils.data.TensorDataset):
    def __init__(self):
        super().__init__(torch.randn(128, 10), torch.randint(10, (128,)))
train_dataset = _Data()
gpu_device = device  # the page's is what one comes from
"""
_TWO_INPUTS = """
class _Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
    def forward(self, x, y):
        return self.layer(x) + y
my_module = _Two().to(device)
x = y = torch.randn(8, 8, device=device)
"""
_DECODER = """
import functools
class decoder_only_model:
    class DecoderLayer(nn.Linear):
        pass
model = nn.Sequential(decoder_only_model.DecoderLayer(8, 8), nn.ReLU()).to(device)
"""
_QUANTIZED = """
class MyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 4)
def quantize(model):
    scale = model.linear.weight.abs().amax(1) / 127
    return (model.linear.weight / scale[:, None]).round().to(torch.int8), scale
def process_for_xla(weights):
    return weights
class self:
    linear = nn.Linear(8, 4)
from torch_xla.experimental.xla_quantized_matmul import XlaQuantizedLinear as _Linear
class XlaQuantizedLinear(_Linear):
    def load_quantized_weight(self, weights):
        super().load_quantized_weight(*weights)
"""
_MESH = """
xr.use_spmd()
input_mesh = xs.Mesh(np.arange(4), (4, 1, 1, 1), ('data', 'a', 'b', 'c'))
train_loader = [torch.randn(4, 3, 8, 8)]
"""
_DIGITS = """
import torchvision
class _Digits(torchvision.datasets.FakeData):  # where the page downloads them
    def __init__(self, root, train=True, download=False, transform=None):
        super().__init__(640, (1, 28, 28), transform=transform)
torchvision.datasets.MNIST = _Digits
"""
_PIPE = "pipe = model"
_ATTR = "attr = torch.ones(2, device=device)"

GIVEN: dict[str, dict[int, str]] = {
    "features/pallas.md": {69: _ATTENTION, 85: _PAGED},
    "features/scan.md": {56: "from typing import TypeVar; Carry = X = Y = TypeVar('T')"},
    "features/torch_distributed.md": {19: "from torch.distributed import ProcessGroup"},
    "learn/migration-to-xla-on-tpus.md": {
        75: "loss = loss_fn(model(data), target)",
        100: _LOADER,
        132: _MNIST,
        153: _DIGITS,
    },
    "learn/xla-quickstart.md": {24: _DIGITS},
    "learn/pytorch-on-xla-devices.md": {
        82: _MNIST + "train_loader = [(torch.randn(8, 10), torch.randint(10, (8,)))] * 2",
        118: _MNIST,
        313: "path = 'weights.pt'",
        328: "path = 'weights'",
        337: "path = 'weights'",
    },
    "learn/trace-vs-execution-time.md": {
        38: "a = b = torch.randn(8, 8, device=device)",
        121: "num_steps = 3",
        156: "run_model_step = lambda: a @ b",
    },
    "learn/xla-advanced.md": {
        71: "z = torch.zeros(2, device=device); tensors_on_device = [(z, z)] * 2"
    },
    "learn/xla-examples.md": {39: "class self: pass", 63: _ATTR, 155: _PIPE},
    "perf/ddp.md": {
        33: "import os; rank, world_size = 0, 1\n"
        "os.environ |= {'MASTER_ADDR': 'localhost', 'MASTER_PORT': '29511'}",
        52: "def demo_fn(rank): assert dist.get_world_size() == 1",
        63: "dist.destroy_process_group()",
    },
    "perf/fori_loop.md": {
        14: "cond_fn = lambda x: x[0] > 0; body_fn = lambda x: (x - 1,)\n"
        "init = (torch.tensor([3], device=device),)"
    },
    "perf/fsdp_collectives.md": {13: _TWO_INPUTS},
    "perf/fsdp_spmd.md": {16: "xr.use_spmd()" + _TWO_INPUTS, 45: _DECODER},
    "perf/quantized_ops.md": {98: _QUANTIZED},
    "perf/spmd_advanced.md": {
        15: _MESH,
        26: "train_loader = [{'x': torch.randn(4, 3, 8, 8), 'y': torch.randn(4, 8)}]",
        86: "world_size = xr.global_runtime_device_count()",
        101: "class self: num_devices = 4\noutput = torch.randn(8, 8, device=device)",
        117: "mesh = xs.Mesh(np.arange(4), (2, 2), ('x', 'y'))",
        160: "MyModule = lambda: nn.Sequential(nn.Linear(8, 8))",
    },
    "perf/spmd_distributed_checkpoint.md": {
        18: "import tempfile; CHECKPOINT_DIR = tempfile.mkdtemp(); optim = optimizer\n"
        "from torch_xla.distributed.spmd import XLAShardedTensor",
        80: "dataloader = [0, 1]",
    },
}
