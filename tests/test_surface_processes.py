"""Several processes of one program: collectives, torch.distributed, DDP, FSDP, ZeRO."""

import copy
import functools
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import surface_processes_cases as cases
import torch
import torch_xla
import torch_xla.core.functions as xf
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp
from process import output_of
from torch_xla.distributed.data_parallel import Context, DataParallel, ThreadResult

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def findable(monkeypatch):
    paths = [str(HERE), str(HERE.parent / "examples"), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))


# Starting processes takes longer than what they do here.
@pytest.mark.parametrize(
    "names",
    [
        ["collectives", "meetings", "gradients", "sync_batch_norm"],
        ["training", "zero_redundancy", "lost_peer"],
        ["torch_distributed"],
        ["ddp", "compiled_ddp"],
        ["compiled_step", "eagerly"],
    ],
    ids="+".join,
)
def test_two_processes(names):
    xmp.spawn(cases.several, (names,), nprocs=2)


@pytest.mark.parametrize(("count", "tiers"), [(2, "off"), (4, "counted")])
def test_data_parallel_training_is_training_with_all_the_data(count, tiers):
    xmp.spawn(cases.decoder, (tiers,), nprocs=count)


def test_sharded_parameters(tmp_path):
    xmp.spawn(cases.sharded, (str(tmp_path),), nprocs=2)


def test_a_process_for_each_device_of_the_cpu(tmp_path, monkeypatch):
    monkeypatch.setenv("CPU_NUM_DEVICES", "2")
    torch_xla.launch(cases.devices, (str(tmp_path),))
    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert found == {"0": "2 1 [1.0, 1.0]", "1": "2 1 [1.0, 1.0]"}


def test_a_checkpoint_before_one_of_them_ends(tmp_path):
    xmp.spawn(cases.told_to_end, (str(tmp_path),), nprocs=2)


@pytest.mark.parametrize(("count", "case"), [(2, "collectives"), (4, "functional")])
def test_processes_of_torchrun(count, case):
    program = f"import torch_xla, surface_processes_cases as c; torch_xla.launch(c.{case})"
    script = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={count}"]
    script += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "--no-python"]
    done = subprocess.run(
        [*script, sys.executable, "-c", program], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


def test_a_killed_peer_makes_ddp_raise():
    program = "import surface_processes_cases; surface_processes_cases.ddp_until_it_fails()"
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free.getsockname()[1])}
    peers = []
    for rank in ("0", "1"):
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
        peers.append(
            subprocess.Popen(
                [sys.executable, "-c", program],
                env={**os.environ, **address, **place, "TORCH_XLA_COLLECTIVE_TIMEOUT": "60"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    assert [peer.stdout.readline() for peer in peers] == ["trained\n"] * 2
    peers[1].kill()  # as kill -9
    peers[1].wait()
    output, _ = peers[0].communicate("go on\n", timeout=120)
    assert peers[0].returncode == 0 and output.startswith("raised"), output
    assert "another process ended" in output


def test_what_a_process_raises_is_raised_here():
    with pytest.raises(Exception, match="groups hold ordinals below 2"):
        xmp.spawn(_wrong_groups, nprocs=2)


def _wrong_groups(ordinal: int) -> None:
    xm.all_reduce(xm.REDUCE_SUM, torch.ones(2, device="xla"), groups=[[0, 5], [1]])


def test_a_process_alone():
    seen = []
    assert xmp.spawn(seen.append) is None and seen == [0]
    x = torch.arange(3.0, device="xla", requires_grad=True)
    y = xf.all_reduce(xm.REDUCE_SUM, xf.all_gather(x), scale=2.0)
    y.sum().backward()
    assert x.grad.tolist() == [2.0] * 3
    assert xf.AllReduceSumLayer.apply(x).tolist() == [0, 1, 2]
    with pytest.raises(RuntimeError, match="alone"):
        xm.send(x, 0)
    with pytest.raises(RuntimeError, match="alone"):
        xm.recv(x.detach(), 0)
    assert xmp.create_optimized_replica_groups() is None


def test_launch_says_where_to_meet_and_groups_wait_for_nobody_until_they_exchange():
    program = """
        import datetime, pytest, torch, torch_xla, torch.distributed as dist
        from torch_xla.distributed.xla_backend import ProcessGroupXla

        def train(index):
            dist.init_process_group("xla", rank=0, world_size=1)  # "env://"
            assert dist.get_backend() == "xla"

        torch_xla.launch(train)
        group = ProcessGroupXla(dist.HashStore(), 1, 3, datetime.timedelta(seconds=1))
        with pytest.raises(RuntimeError, match="all_reduce of process 0 of 1 failed.*timeout"):
            value = torch.ones(2, device="xla")
            group.allreduce([value])
            value.cpu()
    """
    output_of(program)


def test_ddp_of_a_process_alone_is_one_compiled_step():
    program = """
        import torch, torch_xla, torch.distributed as dist, surface_processes_cases as cases
        dist.init_process_group("xla", init_method="xla://")  # as in 2.9, without another import
        model = torch.nn.parallel.DistributedDataParallel(
            cases.model().to("xla"), broadcast_buffers=False, gradient_as_bucket_view=True
        )
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step(batch):
            optimizer.zero_grad()
            loss = (model(batch) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        step = torch_xla.compile(step, full_graph=True)
        losses = [step(cases.data().to("xla")).item() for _ in range(3)]
        assert losses[2] < losses[0], losses
    """
    output_of(program)


def test_coalescing_buckets():
    calls = []

    def function(inputs, outputs):
        calls.append(1 if isinstance(inputs, torch.Tensor) else len(inputs))
        return inputs

    tensors = [torch.zeros(1024 * 64, device="xla") for _ in range(6)]  # a quarter of a MB each
    results = xm.CoalescingBuckets(function, tensors, bucket_cap_mb=1)()
    assert calls == [4, 2] and all(a is b for a, b in zip(results, tensors, strict=True))
    with pytest.raises(TypeError, match="input_list"):
        xm.CoalescingBuckets(function, tensors[0])


def test_data_parallel():
    model = torch.nn.Linear(2, 1)
    parallel = DataParallel(model)
    assert parallel.devices == [str(device) for device in torch_xla.devices()]
    batches = [torch.full((3, 2), float(i)) for i in range(4)]

    def loop(network, loader, device, context):
        assert isinstance(context, Context) and context.getattr_or("passes", list) is not None
        return [network(batch).sum().item() for batch in loader]

    results = parallel(loop, batches, 0)  # and the dimension of the batch, as in 2.9
    expected = [model(batch).sum().item() for batch in batches]
    assert sum(results, []) == pytest.approx(expected)
    assert DataParallel(model, [])(loop, batches, batchdim=0) == [pytest.approx(expected)]
    assert ThreadResult().result is None

    def fail(*_):
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        parallel(fail, batches)


def test_dummies_for_measurements():
    from torch_xla.distributed.fsdp import utils

    x = torch.arange(4.0, device="xla")
    assert utils.dummy_all_gather(x).tolist() == x.tolist()
    assert utils.dummy_all_reduce(xm.REDUCE_SUM, x, 0.5).tolist() == [0, 0.5, 1, 1.5]
    got = []
    utils.DummyReduceScatter(1)(x, got.append)
    bucket = utils.BucketizedReduceScatter(1, 1, None)
    bucket(x, got.append)
    assert len(got) == 1  # it waits for more
    bucket.flush()
    assert [part.tolist() for part in got] == [x.tolist()] * 2


@pytest.mark.parametrize("how", ["checkpoint", "linear"])
def test_modules_changed_in_place(how):
    from torch_xla.distributed.fsdp import utils

    torch.manual_seed(0)
    plain = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh())
    x = torch.ones(2, 3, device="xla", requires_grad=True)
    module = copy.deepcopy(plain).to("xla")
    if how == "checkpoint":
        assert utils.checkpoint_module(module) is module
    else:
        assert utils.apply_xla_patch_to_nn_linear(module) is module
        assert module[0].forward.__func__ is not torch.nn.Linear.forward
    module(x).sum().backward()
    leaf = torch.ones(2, 3, requires_grad=True)
    plain(leaf).sum().backward()
    torch.testing.assert_close(x.grad.cpu(), leaf.grad)
    torch.testing.assert_close(module[0].weight.grad.cpu(), plain[0].weight.grad)
    with torch.no_grad():
        torch.testing.assert_close(module(x).cpu(), plain(leaf))


def test_flat_parameters():
    from torch_xla.distributed.fsdp import xla_flatten_params_wrapper as flat

    torch.manual_seed(0)
    plain = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    wrapper = flat.XlaFlattenParamsWrapper(copy.deepcopy(plain).to("xla"))
    assert isinstance(wrapper.flat_param, flat.FlatParameter) and wrapper.flat_param.dim() == 1
    x = torch.ones(2, 3)
    torch.testing.assert_close(wrapper(x.to("xla")).detach().cpu(), plain(x).detach())
    state = {name: value.clone() for name, value in wrapper.state_dict().items()}
    assert list(state) == list(plain.state_dict())
    assert list(wrapper.flat_state_dict()) == ["flat_param_0"]
    zeros = {name: torch.zeros_like(value) for name, value in state.items()}
    wrapper.load_state_dict(zeros)
    assert wrapper.flat_param.abs().sum().item() == 0
    wrapper.load_state_dict(state)
    views = list(wrapper.get_param_views())
    torch.testing.assert_close(views[0].detach().cpu(), plain[0].weight.detach())
    assert wrapper.metadata(0)[0] == ["0.weight", "0.bias", "1.weight", "1.bias"]
    renamed = {"layer.a": 1, "other": 2}
    flat.replace_by_prefix_(renamed, "layer.", "module.layer.")
    assert renamed == {"other": 2, "module.layer.a": 1}
    with pytest.raises(ValueError, match="must be distinct"):
        flat.replace_by_prefix_(renamed, "a", "a")


def test_wrapping_by_policy():
    from torch_xla.distributed.fsdp import wrap

    class Wrapper(torch.nn.Module):
        def __init__(self, module, mark=None):
            super().__init__()
            self.module, self.mark = module, mark

    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    large = functools.partial(wrap.size_based_auto_wrap_policy, min_num_params=12)
    assert large(module=model, recurse=True, unwrapped_params=26)
    wrapped, count = wrap.recursive_wrap(model, large, Wrapper, only_wrap_children=True, mark=7)
    assert isinstance(wrapped[0], Wrapper) and wrapped[0].mark == 7 and count == 16
    assert not isinstance(wrapped[1], Wrapper) and not isinstance(wrapped[2], Wrapper)
    layers = functools.partial(
        wrap.transformer_auto_wrap_policy, transformer_layer_cls={torch.nn.ReLU}
    )
    assert layers(model[1], False, 0)
    chosen = functools.partial(wrap.lambda_auto_wrap_policy, lambda_fn=lambda m: m is model)
    assert chosen(model, False, 0) and wrap.always_wrap_policy(model, False, 0)


def test_containers_of_tensors():
    from torch_xla.distributed.fsdp import xla_fully_sharded_data_parallel as fsdp

    x = torch.ones(2)
    data = {"a": [x, 3], "b": (x,)}
    assert fsdp.collect_tensors(data)[0] is x and len(fsdp.collect_tensors(data)) == 1
    doubled = fsdp.apply_to_tensors(lambda t: t * 2, data)
    assert doubled["a"][0].tolist() == [2, 2] and doubled["a"][1] == 3
    assert fsdp.TrainingState.IDLE.name == "IDLE" and torch.float32 in fsdp.FLOAT_DTYPES


def test_state_dicts_consolidated_by_the_command_line(tmp_path, monkeypatch):
    from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel, consolidate_sharded_ckpts
    from torch_xla.distributed.fsdp.state_dict_utils import consolidate_sharded_state_dicts

    model = torch.nn.Linear(3, 2)
    expected = {name: value.clone() for name, value in model.state_dict().items()}
    sharded = XlaFullyShardedDataParallel(model)
    state = xm._maybe_convert_to_cpu(sharded.state_dict())
    metadata = sharded.get_shard_metadata()
    full = consolidate_sharded_state_dicts([state], metadata)
    assert all(torch.equal(full[name], value) for name, value in expected.items())
    names = [name for name, _ in sharded.get_original_names_and_sharded_parameters()]
    assert names == ["weight", "bias"]
    torch.save({"model": state, "shard_metadata": metadata}, tmp_path / "rank0.pth")
    monkeypatch.setattr(sys, "argv", ["consolidate", "--ckpt_prefix", f"{tmp_path}/rank"])
    assert consolidate_sharded_ckpts.main() == 0
    saved = torch.load(tmp_path / "rank_consolidated.pth")
    assert torch.equal(saved["model"]["weight"], expected["weight"])
    with pytest.raises(ValueError, match="sharded over 1 processes"):
        consolidate_sharded_state_dicts([state, state], metadata)
    with pytest.raises(FileNotFoundError, match="there are no files"):
        from torch_xla.distributed.fsdp import consolidate_sharded_model_checkpoints

        consolidate_sharded_model_checkpoints(f"{tmp_path}/nothing")


def test_the_threads_of_an_exchange_end_before_the_interpreter():
    """They let go of tensors late: of one that Python knows they could not after its end."""
    program = """
import atexit
from pathlib import Path

def names():
    return [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]

atexit.register(lambda: print([name for name in names() if "gloo" in name]))  # runs last
import torch.distributed as dist, torch_xla
dist.init_process_group("xla", store=dist.HashStore(), rank=0, world_size=1)
dist.barrier()
print(any("gloo" in name for name in names()))
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == ("True\n[]\n", 0), done.stderr
