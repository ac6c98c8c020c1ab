"""What each process does in tests/test_surface_processes.py: functions of its ordinal."""

import os
import signal
import sys
from pathlib import Path

import tiny
import torch
import torch.distributed as dist
import torch_xla
import torch_xla.core.functions as xf
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
import work
from torch_xla.experimental.assume_pure import assume_pure
from torch_xla.experimental.distributed_checkpoint import CheckpointManager


def ramp(ordinal: int) -> torch.Tensor:
    return (torch.arange(4.0) + ordinal).to("xla")


def values(tensor: torch.Tensor) -> list[float]:
    return tensor.detach().cpu().tolist()


def several(ordinal: int, names: list[str]) -> None:
    for name in names:
        globals()[name](ordinal)


def collectives(ordinal: int) -> None:
    assert (xr.world_size(), xr.global_ordinal(), xr.local_ordinal()) == (2, ordinal, ordinal)
    assert (xr.global_device_count(), xr.local_process_count(), xr.host_index()) == (2, 2, 0)
    assert xm.xla_replication_devices() == ["CPU:0", "CPU:1"]
    x = ramp(ordinal)
    assert values(xm.all_reduce(xm.REDUCE_SUM, x, scale=0.5)) == [0.5, 1.5, 2.5, 3.5]
    assert values(xm.all_reduce(xm.REDUCE_MAX, x)) == [1, 2, 3, 4]
    tensors = [x.clone(), x.bfloat16(), x > 1]
    assert xm.all_reduce(xm.REDUCE_MAX, tensors) is tensors
    assert values(tensors[1]) == [1, 2, 3, 4] and values(tensors[2]) == [False, True, True, True]
    assert values(xm.all_gather(x)) == [0, 1, 2, 3, 1, 2, 3, 4]
    alone = [[0], [1]]
    assert values(xm.all_reduce(xm.REDUCE_SUM, x, groups=alone)) == values(x)
    part = xm.reduce_scatter(xm.REDUCE_SUM, x, 1.0, 0, 2)
    assert values(part) == ([1, 3], [5, 7])[ordinal]
    assert values(xm.all_to_all(x, 0, 0, 2)) == ([0, 1, 1, 2], [2, 3, 3, 4])[ordinal]
    swapped = xm.collective_permute(x, [[0, 1], [1, 0]])
    assert values(swapped) == values(ramp(1 - ordinal))
    assert values(xm.collective_permute(x, [[0, 1]])) == ([0.0] * 4, values(ramp(0)))[ordinal]
    root = ramp(ordinal)
    xm.collective_broadcast([root], root_ordinal=1)
    assert values(root) == [1, 2, 3, 4]
    if ordinal == 0:
        xm.send(x, 7)
    else:
        assert values(xm.recv(torch.zeros(4, device="xla"), 7)) == [0, 1, 2, 3]
    gathered = xm.all_gather_bucketized([x, x[:2]], bucket_cap_mb=0)
    assert [tuple(t.shape) for t in gathered] == [(8,), (4,)]
    scattered = xm.reduce_scatter_bucketized(xm.REDUCE_SUM, [x, x[:2]], 1.0, 0, 2)
    assert [values(t) for t in scattered] == ([[1, 3], [1]], [[5, 7], [3]])[ordinal]
    gradients = [ramp(ordinal), ramp(ordinal)]
    xm.all_reduce_bucketized_gradients(gradients, 0.5, bucket_cap_mb=1)
    assert all(values(gradient) == [0.5, 1.5, 2.5, 3.5] for gradient in gradients)


def meetings(ordinal: int) -> None:
    assert xm.rendezvous("tag", bytes([ordinal] * (ordinal + 1))) == [b"\0", b"\1\1"]
    assert xm.xla_rendezvous() == [b"", b""]
    data = {"loss": torch.full((2,), float(ordinal), device="xla")}
    assert xm.mesh_reduce("loss", data, lambda all: sum(d["loss"][0].item() for d in all)) == 1.0
    ran = xm.do_on_ordinals(lambda t: t.sum().item(), (ramp(ordinal),), ordinals=(1,))
    assert ran == (None, 10.0)[ordinal]
    model = torch.nn.Linear(2, 2).to("xla")
    xm.broadcast_master_param(model)
    weights = xm.all_gather(model.weight.detach())
    assert torch.equal(weights[:2].cpu(), weights[2:].cpu())


def gradients(ordinal: int) -> None:
    x = ramp(ordinal).requires_grad_()
    (xf.all_reduce(xm.REDUCE_SUM, x) * 2).sum().backward()
    assert values(x.grad) == [2] * 4
    x.grad = None
    xf.all_reduce(xm.REDUCE_MAX, x).sum().backward()
    assert values(x.grad) == [ordinal] * 4
    x.grad = None
    weights = torch.arange(8.0, device="xla")
    (xf.all_gather(x) * weights).sum().backward()
    assert values(x.grad) == values(weights.view(2, 4)[ordinal])
    w = torch.full((3, 2), float(ordinal + 1), device="xla")
    everything = torch.arange(8.0).view(4, 2) + ordinal
    product = xf.distributed_mm(w, everything.to("xla"), split=2)
    whole = torch.tensor([[1.0, 1.0, 2.0, 2.0]] * 3)
    torch.testing.assert_close(product.cpu(), whole @ everything)


def sync_batch_norm(ordinal: int) -> None:
    torch.manual_seed(0)
    batches = torch.randn(6, 3, 2)
    plain = torch.nn.BatchNorm1d(3)
    expected = plain(batches).chunk(2)[ordinal]
    norm = xf.SyncBatchNorm(3).to("xla")
    torch.testing.assert_close(norm(batches.chunk(2)[ordinal].to("xla")).cpu(), expected)
    torch.testing.assert_close(norm.running_mean.cpu(), plain.running_mean)
    norm.eval()
    assert norm(batches.to("xla")).shape == batches.shape


def training(ordinal: int, steps: str = "xm") -> None:
    """Data-parallel training is training on all the data."""

    batch = data()
    reference = trained(model(), batch, lambda optimizer: optimizer.step())
    mine = batch.chunk(2)[ordinal].to("xla")
    if steps == "xm":
        own = trained(model().to("xla"), mine, xm.optimizer_step)
    else:
        dist.init_process_group("xla", init_method="xla://")
        wrapped = torch.nn.parallel.DistributedDataParallel(
            model().to("xla"), gradient_as_bucket_view=True
        )
        own = trained(wrapped, mine, lambda optimizer: optimizer.step())
    for parameter, expected in zip(own.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(parameter.cpu(), expected, atol=1e-5, rtol=1e-4)


def ddp(ordinal: int) -> None:
    training(ordinal, "ddp")


def compiled_ddp(ordinal: int) -> None:
    """DDP's step as one program, though its second one agrees on the sizes of its buckets."""
    reference = trained(model(), data(), lambda optimizer: optimizer.step())
    wrapped = torch.nn.parallel.DistributedDataParallel(model().to("xla"))
    optimizer = torch.optim.Adam(wrapped.parameters(), lr=0.1)
    mine = data().chunk(2)[ordinal].to("xla")

    @torch_xla.compile(full_graph=True)
    def step() -> None:
        optimizer.zero_grad()
        (wrapped(mine) ** 2).mean().backward()
        optimizer.step()

    for _ in range(3):
        step()
    assert wrapped._get_ddp_logging_data()["avg_backward_compute_time"] > 0
    for parameter, expected in zip(wrapped.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(parameter.cpu(), expected, atol=1e-5, rtol=1e-4)


def decoder(ordinal: int, tiers: str) -> None:
    """The losses of DDP are those of one process with all the data. A step is one run of a graph,
    which reduces all gradients in one exchange."""
    from torch_xla._internal import collective_ops

    os.environ["TORCH_XLA_TIERS"] = tiers
    dist.init_process_group("xla", init_method="xla://")
    case, count = tiny.MODELS["decoder"], xr.world_size()
    (tokens, targets), *_ = case.batches(1)
    batch = (tokens.repeat(count, 1), targets.roll(1, 1).repeat(count, 1))
    batch[0][-1] += 1  # no two members alike
    mine = tuple(part.chunk(count)[ordinal].to("xla") for part in batch)
    networks = (case.model(), case.model().to("xla"))
    wrapped = torch.nn.parallel.DistributedDataParallel(networks[1], gradient_as_bucket_view=True)
    losses: list[list[float]] = [[], []]
    for i, (network, data) in enumerate(((networks[0], batch), (wrapped, mine))):
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        for step in range(5):
            torch_xla.sync(wait=True)
            before = (collective_ops._made, work.samples("ExecuteTime"))
            optimizer.zero_grad()
            loss = tiny.loss_of(network, data)
            loss.backward()
            optimizer.step()
            torch_xla.sync(wait=True)
            after = (collective_ops._made, work.samples("ExecuteTime"))
            if i == 1 and step > 1:  # the first steps also set DDP up
                assert (after[0] - before[0], after[1] - before[1]) == (1, 1)
            mean = loss.detach().clone()
            if i == 1:
                dist.all_reduce(mean, op=dist.ReduceOp.AVG)
            losses[i].append(mean.item())
    assert losses[1][4] < losses[1][0]
    torch.testing.assert_close(losses[1], losses[0], atol=1e-5, rtol=0)


def compiled_step(ordinal: int) -> None:
    """xm.optimizer_step and collectives with gradients, within one program; the first of all in a
    trace."""
    pure = assume_pure(lambda x: xf.all_gather(x * 2) * torch.arange(8.0, device="xla"))
    for _ in range(2):
        x = ramp(ordinal).requires_grad_()
        result = pure(x)
        result.sum().backward()
        assert values(result) == [0, 2, 8, 18, 8, 20, 36, 56]
        assert values(x.grad) == ([0, 2, 4, 6], [8, 10, 12, 14])[ordinal]
    network = model().to("xla")
    reference = trained(model(), data(), lambda optimizer: optimizer.step())
    optimizer = torch.optim.Adam(network.parameters(), lr=0.1)
    mine = data().chunk(2)[ordinal].to("xla")

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (network(mine) ** 2).mean()
        loss.backward()
        xm.optimizer_step(optimizer)
        return xf.all_reduce(xm.REDUCE_SUM, loss, 0.5)

    compiled = torch_xla.compile(step, full_graph=True)
    for _ in range(3):
        compiled()
    for parameter, expected in zip(network.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(parameter.cpu(), expected, atol=1e-5, rtol=1e-4)


def functional(ordinal: int) -> None:
    """PyTorch's differentiable collectives give what gloo gives for CPU tensors, on any number of
    processes; in a group of gloo's, too, as on a machine without the backend."""
    import torch.distributed.nn.functional as fn

    dist.init_process_group("xla", init_method="xla://")
    count = dist.get_world_size()
    gloo = dist.new_group(backend="gloo")
    groups = {("xla", "xla"): dist.group.WORLD, ("xla", "gloo"): gloo, ("cpu", "gloo"): gloo}
    sent = torch.arange(2.0 * count) + 10 * ordinal
    weights = torch.arange(2.0 * count * count).view(count, -1) * (ordinal + 1)
    calls = {
        "all_reduce": lambda x, group: fn.all_reduce(x * 2, group=group),
        "all_gather": lambda x, group: torch.stack(fn.all_gather(x * 2, group=group)),
        "reduce_scatter": lambda x, group: fn.reduce_scatter(
            torch.empty(2, device=x.device), list((x * 2).chunk(count)), group=group
        ),
        "all_to_all": lambda x, group: torch.stack(
            fn.all_to_all(
                [torch.empty(2, device=x.device) for _ in range(count)],
                list((x * 2).chunk(count)),
                group=group,
            )
        ),
        "all_to_all_single": lambda x, group: fn.all_to_all_single(
            torch.empty_like(x), x * 2, group=group
        ),
        "broadcast": lambda x, group: fn.broadcast(x * 2, 1, group=group),
    }
    for name, call in calls.items():
        seen = {}
        for (device, backend), group in groups.items():
            x = sent.to(device, copy=True).requires_grad_()
            result = call(x, group)
            scale = weights.flatten()[: result.numel()].view(result.shape).to(device)
            (result * scale).sum().backward()
            seen[device, backend] = (values(result), values(x.grad))
        assert all(value == seen["cpu", "gloo"] for value in seen.values()), (name, seen)
    x, received = ramp(ordinal), torch.zeros(4, device="xla")
    sending = dist.isend(x, (ordinal + 1) % count, gloo)
    dist.irecv(received, (ordinal - 1) % count, gloo).wait()
    sending.wait()
    assert values(received) == values(ramp((ordinal - 1) % count))
    ddp = torch.nn.parallel.DistributedDataParallel(model().to("xla"), process_group=gloo)
    ddp(ramp(ordinal).repeat(2, 8)[:, : ddp.module[0].in_features]).sum().backward()
    (gradient,) = xm.all_gather(ddp.module[0].weight.grad[None]).diff(dim=0).abs().sum(0)[None]
    assert gradient.max().item() == 0
    xm.rendezvous("done")


def eagerly(ordinal: int) -> None:
    torch_xla.experimental.eager_mode(True)
    several(ordinal, ["collectives", "gradients", "training"])
    torch_xla.experimental.eager_mode(False)


def ddp_until_it_fails() -> None:
    """One step, and another when a line comes: by then the other process is gone."""

    dist.init_process_group("xla", init_method="env://")
    wrapped = torch.nn.parallel.DistributedDataParallel(
        model().to("xla"), gradient_as_bucket_view=True
    )
    trained(wrapped, data().to("xla"), lambda optimizer: optimizer.step())
    print("trained", flush=True)
    sys.stdin.readline()
    try:
        trained(wrapped, data().to("xla"), lambda optimizer: optimizer.step())
    except RuntimeError as error:
        print("raised", error, flush=True)
    os._exit(0)


def data() -> torch.Tensor:
    return torch.randn(4, 5, generator=torch.Generator().manual_seed(1))


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.ReLU(), torch.nn.Linear(7, 3))


def trained(network: torch.nn.Module, batch: torch.Tensor, step) -> torch.nn.Module:
    optimizer = torch.optim.Adam(network.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        (network(batch) ** 2).mean().backward()
        step(optimizer)
        torch_xla.sync()
    return network


def torch_distributed(ordinal: int) -> None:
    import torch_xla.distributed.xla_backend as backend

    dist.init_process_group("xla", init_method="xla://")
    group = dist.group.WORLD
    assert isinstance(group, backend.ProcessGroupXla) and dist.get_world_size() == 2
    x = ramp(ordinal)
    dist.all_reduce(x)
    assert values(x) == [1, 3, 5, 7]
    dist.all_reduce(x, op=dist.ReduceOp.AVG)
    assert values(x) == [1, 3, 5, 7]
    outputs = [torch.zeros(4, device="xla") for _ in range(2)]
    dist.all_gather(outputs, ramp(ordinal))
    assert [values(t) for t in outputs] == [[0, 1, 2, 3], [1, 2, 3, 4]]
    flat = torch.zeros(8, device="xla")
    dist.all_gather_into_tensor(flat, ramp(ordinal))
    assert values(flat) == [0, 1, 2, 3, 1, 2, 3, 4]
    part = torch.zeros(2, device="xla")
    dist.reduce_scatter_tensor(part, ramp(ordinal))
    assert values(part) == ([1, 3], [5, 7])[ordinal]
    dist.reduce_scatter(part, list(ramp(ordinal).chunk(2)))
    assert values(part) == ([1, 3], [5, 7])[ordinal]
    y = ramp(ordinal)
    dist.broadcast(y, 1)
    assert values(y) == [1, 2, 3, 4]
    dist.reduce(y, 0)
    assert values(y) == ([2, 4, 6, 8], [1, 2, 3, 4])[ordinal]
    out = torch.zeros(4, device="xla")
    dist.all_to_all_single(out, ramp(ordinal))
    assert values(out) == ([0, 1, 1, 2], [2, 3, 3, 4])[ordinal]
    received = [torch.zeros(2, device="xla") for _ in range(2)]
    dist.all_to_all(received, list(ramp(ordinal).chunk(2)))
    assert values(torch.cat(received)) == ([0, 1, 1, 2], [2, 3, 3, 4])[ordinal]
    gathered = [torch.zeros(4, device="xla") for _ in range(2)] if ordinal == 0 else None
    dist.gather(ramp(ordinal), gathered, dst=0)
    if gathered is not None:
        assert values(gathered[1]) == [1, 2, 3, 4]
    scattered = torch.zeros(4, device="xla")
    dist.scatter(scattered, [ramp(5), ramp(6)] if ordinal == 0 else None, src=0)
    assert values(scattered) == values(ramp(5 + ordinal))
    if ordinal == 0:
        dist.send(ramp(3), 1)
    else:
        dist.recv(scattered, 0)
        assert values(scattered) == values(ramp(3))
    objects = [None, None]
    dist.all_gather_object(objects, {"ordinal": ordinal})
    assert objects == [{"ordinal": 0}, {"ordinal": 1}]
    only_me = backend.new_xla_process_group([0])
    if ordinal == 0:
        dist.all_reduce(x, group=only_me)
        assert values(x) == [1, 3, 5, 7]
    dist.barrier()


def devices(ordinal: int, folder: str) -> None:
    """What a process knows of the others, and the sum of their ordinals."""
    total = xm.all_reduce(xm.REDUCE_SUM, torch.full((2,), float(ordinal), device="xla")).tolist()
    counts = f"{xr.world_size()} {xr.addressable_runtime_device_count()}"
    (Path(folder) / str(xr.global_ordinal())).write_text(f"{counts} {total}")


def sharded(ordinal: int, folder: str) -> None:
    """Sharded parameters train as plain ones do, and their checkpoints give the plain ones back."""
    from torch_xla.distributed import fsdp
    from torch_xla.distributed.fsdp.wrap import always_wrap_policy

    reference = trained(model(), data(), lambda optimizer: optimizer.step())
    mine = data().chunk(2)[ordinal].to("xla")
    for flat, policy, again in (
        (False, None, None),
        (True, always_wrap_policy, None),
        (True, always_wrap_policy, fsdp.checkpoint_module),
        (False, always_wrap_policy, _checkpointed_reentrantly),
    ):
        wrapped = fsdp.XlaFullyShardedDataParallel(
            model(),
            flatten_parameters=flat,
            auto_wrap_policy=policy,
            auto_wrapper_callable=again and _Computing(again),
        )
        assert sum(p.numel() for p in wrapped.parameters()) >= 66 // 2
        trained(wrapped, mine, lambda optimizer: optimizer.step())
        state = xm._maybe_convert_to_cpu(wrapped.state_dict())
        saved = {"model": state, "shard_metadata": wrapped.get_shard_metadata()}
        torch.save(saved, Path(folder) / f"rank{ordinal}.pth")
        xm.rendezvous("saved")
        full, path = fsdp.consolidate_sharded_model_checkpoints(f"{folder}/rank", save_model=False)
        assert path is None and list(full) == list(reference.state_dict())
        for name, expected in reference.state_dict().items():
            torch.testing.assert_close(full[name], expected, atol=1e-5, rtol=1e-4)
        xm.rendezvous("read")
        _clip_and_accumulate(wrapped, mine)


class _Computing:
    """What `auto_wrapper_callable` is given: the part is computed again in the backward pass."""

    def __init__(self, again) -> None:
        self.again = again

    def __call__(self, module, **options):
        from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel

        return XlaFullyShardedDataParallel(self.again(module), **options)


def _checkpointed_reentrantly(module: torch.nn.Module) -> torch.nn.Module:
    forward = module.forward

    def run(x: torch.Tensor) -> torch.Tensor:
        x = x if x.requires_grad else x.clone().requires_grad_()
        return torch.utils.checkpoint.checkpoint(forward, x, use_reentrant=True)

    module.forward = run
    return module


def _clip_and_accumulate(wrapped, batch: torch.Tensor) -> None:
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    optimizer.zero_grad()
    (wrapped(batch) ** 2).mean().backward()
    once = [p.grad.clone() for p in wrapped.parameters()]
    optimizer.zero_grad()
    with wrapped.no_sync():
        (wrapped(batch) ** 2).mean().backward()
    assert all(p.grad is None for p in wrapped.parameters())
    (wrapped(batch) ** 2).mean().backward()
    for gradient, parameter in zip(once, wrapped.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad.cpu(), 2 * gradient.cpu())
    norm = wrapped.clip_grad_norm_(1e-3)
    squares = sum((p.grad.float() ** 2).sum() for p in wrapped.parameters())
    total = xm.all_reduce(xm.REDUCE_SUM, squares).sqrt().item()
    assert norm.item() > 1e-3 and abs(total - 1e-3) < 1e-5


def zero_redundancy(ordinal: int) -> None:
    from torch_xla.distributed.zero_redundancy_optimizer import ZeroRedundancyOptimizer

    reference = trained(model(), data(), lambda optimizer: optimizer.step())
    mine = data().chunk(2)[ordinal].to("xla")
    for options in ({}, {"bucket_cap_mb_all_gather": 1, "bucket_cap_mb_reduce_scatter": 1}):
        network = model().to("xla")
        optimizer = ZeroRedundancyOptimizer(
            network.parameters(),
            torch.optim.Adam,
            lr=0.1,
            grad_clipping=False,
            save_master_weights=True,
            **options,
        )
        for step in range(3):
            optimizer.zero_grad()
            (network(mine) ** 2).mean().backward()
            optimizer.step()
            if step == 1:
                optimizer.load_state_dict(optimizer.state_dict())
        for parameter, expected in zip(network.parameters(), reference.parameters(), strict=True):
            torch.testing.assert_close(parameter.cpu(), expected, atol=1e-5, rtol=1e-4)


def lost_peer(ordinal: int) -> None:
    x = ramp(ordinal)
    values(xm.all_reduce(xm.REDUCE_SUM, x))
    if ordinal == 1:
        os._exit(0)
    try:
        values(xm.all_reduce(xm.REDUCE_SUM, x))
    except RuntimeError as error:
        assert "another process ended" in str(error), error
    else:
        raise AssertionError("a collective with a process that is gone succeeded")


def told_to_end(ordinal: int, folder: str) -> None:
    """One process of two is told to end: both save the same step."""
    dist.init_process_group("xla", init_method="xla://")
    manager = CheckpointManager(folder, 100)
    state = {"w": ramp(0)}
    saved = []
    for step in range(1, 5):
        if ordinal == 1 and step == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        if manager.save(step, state):
            saved.append(step)
    assert saved == [3] and manager.reached_preemption(3) and manager.all_steps() == [3]
    state["w"].zero_()
    manager.restore(3, state)
    assert values(state["w"]) == values(ramp(0))
    dist.destroy_process_group()
