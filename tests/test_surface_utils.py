"""The small names of 2.9: helpers, hints for the compiler, plugins."""

import os
import random
import socket
import threading
import time
from types import ModuleType

import pytest
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
from torch import nn
from torch_xla import backends
from torch_xla.amp import syncfree
from torch_xla.amp.syncfree import _functional as syncfree_functional
from torch_xla.core import xla_env_vars
from torch_xla.distributed.parallel_loader import PerDeviceQueue
from torch_xla.experimental import callback, deprecation, plugins
from torch_xla.experimental.pytreeify import pytreeify
from torch_xla.utils import buffer_donor_context, checkpoint, closures, utils
from torch_xla.utils.checkpoint_tagger import CheckpointTagger

# utils


def test_helpers_of_nested_data():
    assert utils.shape([[1, 2, 3], [4, 5, 6]]) == [2, 3]
    with pytest.raises(ValueError, match="differ"):
        utils.shape([[1], [2, 3]])
    assert utils.flatten_nested_tuple((1, [2, (3,)])) == (1, 2, 3)
    items = [1]
    assert utils.list_copy_append(items, 2) == [1, 2] and items == [1]
    assert utils.as_list(3) == [3]


class Wrapped(utils.DataWrapper):
    def __init__(self, tensor):
        self.tensor = tensor

    def get_tensors(self):
        return [self.tensor]

    def from_tensors(self, tensors):
        return Wrapped(tensors[0])


def test_data_that_says_what_is_moved():
    moved = xm.send_cpu_data_to_device({"data": Wrapped(torch.ones(2))}, "xla")
    assert moved["data"].tensor.device.type == "xla"
    with pytest.raises(NotImplementedError, match="DataWrapper must define get_tensors"):
        utils.DataWrapper().get_tensors()
    with pytest.raises(NotImplementedError, match="must define from_tensors"):
        utils.DataWrapper().from_tensors([])


def test_generators_of_data():
    generator = utils.FnDataGenerator(lambda x: x * 2, 3, torch.ones, dims=[4], count=2)
    batches = list(generator)
    assert len(generator) == len(batches) == 2 and len(list(generator)) == 2
    data, target = batches[0]
    assert data.shape == (3, 4) and torch.equal(target, data * 2)


def test_objects_with_an_end(capsys):
    called = []
    cleaner = utils.Cleaner(lambda: called.append(1))
    del cleaner
    assert called == [1]
    folder = utils.TmpFolder()
    name = folder.name
    assert os.path.isdir(name)
    del folder
    assert not os.path.exists(name)
    lazy = utils.LazyProperty(lambda: called.append(2) or 5)
    assert (lazy.value, lazy.value, called) == (5, 5, [1, 2])


def test_printing(capsys, monkeypatch):
    utils.eprint("error")
    assert capsys.readouterr().err == "error\n"
    utils.null_print("nothing")
    assert capsys.readouterr() == ("", "")
    assert utils.get_print_fn(0) is utils.null_print and utils.get_print_fn(1) is utils.eprint
    monkeypatch.setenv("DEBUG", "1")
    assert utils.get_print_fn() is utils.eprint
    lines = []
    assert utils.timed(lambda: 3, "took ", lines.append) == 3
    assert lines[0].startswith("took ") and lines[0].endswith("ms")
    with utils.TimedScope("", lines.append) as scope:
        scope.set_error(ValueError())
    assert len(lines) == 1


def test_ports_threads_and_flags(monkeypatch):
    ports = utils.get_free_tcp_ports(3)
    assert len(set(ports)) == 3
    with socket.socket() as free:
        free.bind(("", ports[0]))
    assert utils.parallel_work(2, lambda x, y: x + y, [1, 2], [3, 4]) == [4, 6]
    for text, expected in (("1", True), ("true", True), ("0", False), ("no", False)):
        monkeypatch.setenv("SURFACE_FLAG", text)
        assert utils.check_env_flag("SURFACE_FLAG") is expected


def test_closures_in_another_thread():
    handler = closures.AsyncClosureHandler(max_queue_size=2)
    seen = []
    done = threading.Event()
    handler.run_all([lambda: seen.append(1), lambda: seen.append(2), done.set])
    assert done.wait(10) and seen == [1, 2]

    def fail():
        raise ValueError("on purpose")

    handler.run(fail)
    for _ in range(1000):
        time.sleep(0.01)
        try:
            handler.run(lambda: None)
        except RuntimeError as error:
            assert isinstance(error.__cause__, ValueError)
            return
    raise AssertionError("the error of a closure was lost")


def test_names_of_checkpoints():
    removed = []
    tagger = CheckpointTagger(removed.append)
    tagger.tag("latest", "a")
    tagger.tag("best", "a")
    tagger.tag("latest", "b")
    assert removed == []
    tagger.tag("best", "b")
    assert removed == ["a"] and tagger.tags == {"latest": "b", "best": "b"}
    again = CheckpointTagger.load_from_json(tagger.save_to_json(), removed.append)
    again.tag("best", "c")
    assert removed == ["a"]
    again.tag("latest", "c")
    assert removed == ["a", "b"]


def test_donors():
    assert not buffer_donor_context.is_enabled()
    with buffer_donor_context.alias_with_buffer_donor_config() as before:
        assert before is False and buffer_donor_context.is_enabled()
    assert not buffer_donor_context.is_enabled()


# Barriers and checkpoints


def test_barrier_in_place():
    x = torch.arange(3.0, device="xla", requires_grad=True)
    y = x * 2
    z = torch.sin(y)
    xm.optimization_barrier_([y, z])
    assert "stablehlo.optimization_barrier" in xm.get_stablehlo([y])
    z.sum().backward()
    torch.testing.assert_close(x.grad.cpu(), 2 * torch.cos(2 * torch.arange(3.0)))
    assert y.tolist() == [0, 2, 4]
    with pytest.raises(ValueError, match="takes xla tensors"):
        xm.optimization_barrier_([torch.ones(1)])


def loss_of(model, x, reentrant):
    if reentrant is None:
        return model(x).square().sum()
    return checkpoint.checkpoint(model, x, use_reentrant=reentrant).square().sum()


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_gradients(reentrant):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Tanh()).to("xla")
    gradients = []
    for kind in (None, reentrant):
        torch_xla.manual_seed(5)
        model.zero_grad()
        x = torch.ones(2, 3, device="xla", requires_grad=True)
        loss_of(model, x, kind).backward()
        gradients.append([x.grad.cpu(), *(p.grad.cpu() for p in model.parameters())])
    for plain, checkpointed in zip(*gradients, strict=True):
        torch.testing.assert_close(checkpointed, plain)


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_is_computed_twice(reentrant):
    """XLA would merge the second computation with the first one."""
    x = torch.ones(64, 64, device="xla", requires_grad=True)
    function = lambda v: torch.tanh(v @ v)  # noqa: E731
    checkpoint.checkpoint(function, x, use_reentrant=reentrant).sum().backward()
    optimized = torch_xla._XLAC.tensors_optimized_hlo_text([x.grad])
    text = xm.get_stablehlo([x.grad])
    assert "stablehlo.optimization_barrier" in text and optimized
    assert not checkpoint.chkpt_status.in_chkpt_bwd


def test_names_of_checkpointing():
    x = torch.ones(2, device="xla", requires_grad=True)
    seen = []

    def function(v):
        seen.append(checkpoint.chkpt_status.in_chkpt_bwd)
        return v * 3

    checkpoint.CheckpointFunction.apply(function, True, x).sum().backward()
    assert seen == [False, True] and x.grad.tolist() == [3, 3]
    assert not checkpoint.CheckpointStatus().in_chkpt_bwd
    devices, states = checkpoint.get_device_states(x)
    torch.rand(2, device="xla")
    checkpoint.set_device_states(devices, states, device_type="xla")
    with pytest.raises(ValueError, match="unexpected keyword arguments"):
        checkpoint.checkpoint(function, x, other=1)


def test_barrier_of_a_backward_pass():
    from torch_xla.distributed.spmd import apply_backward_optimization_barrier

    model = nn.Linear(3, 2).to("xla")
    apply_backward_optimization_barrier(model)
    x = torch.ones(4, 3, device="xla", requires_grad=True)
    model(x).sum().backward()
    assert "stablehlo.optimization_barrier" in xm.get_stablehlo([x.grad])
    torch.testing.assert_close(x.grad.cpu(), model.weight.detach().cpu().sum(0).expand(4, 3))


# Optimizers


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW"])
def test_steps_that_may_be_skipped(kind):
    options = {"lr": 0.1, **({"momentum": 0.9} if kind == "SGD" else {})}
    start = torch.arange(1.0, 4.0)
    plain = nn.Parameter(start.clone())
    ours = nn.Parameter(start.to("xla"))
    reference = getattr(torch.optim, kind)([plain], **options)
    optimizer = getattr(syncfree, kind)([ours], **options)
    for skip in (0.0, 1.0, 0.0):
        plain.grad, ours.grad = plain.detach() * 2, ours.detach() * 2
        if not skip:
            reference.step()
        optimizer.step(found_inf=torch.tensor(skip, device="xla"))
        torch.testing.assert_close(ours.detach().cpu(), plain.detach())
    with pytest.raises(ValueError, match="must be a number"):
        optimizer.step(found_inf=torch.zeros(2, device="xla"))


def lists(*tensors):
    return [[t.to("xla")] for t in tensors]


@pytest.mark.parametrize("adamw", [False, True])
def test_functional_adam(adamw):
    start, gradient = torch.arange(1.0, 4.0), torch.tensor([0.5, -1.0, 2.0])
    plain = nn.Parameter(start.clone())
    kind = torch.optim.AdamW if adamw else torch.optim.Adam
    reference = kind([plain], lr=0.1, weight_decay=0.01)
    zeros = torch.zeros(3)
    steps, params, grads, averages, squares, largest = lists(
        torch.zeros(()), start, gradient, zeros, zeros, torch.zeros(0)
    )
    options = {"amsgrad": False, "beta1": 0.9, "beta2": 0.999, "lr": 0.1, "eps": 1e-8}
    options |= {"weight_decay": 0.01, "maximize": False, "use_adamw": adamw}
    for skip in (0.0, 1.0, 0.0):
        if not skip:
            plain.grad = gradient.clone()
            reference.step()
        found = torch.tensor(skip, device="xla")
        args = (steps, params, grads, averages, squares, largest)
        syncfree_functional.adam_step(found, *args, **options)
        torch.testing.assert_close(params[0].cpu(), plain.detach())
    assert steps[0].item() == 2


def test_functional_sgd():
    start, gradient = torch.arange(1.0, 4.0), torch.tensor([0.5, -1.0, 2.0])
    plain = nn.Parameter(start.clone())
    options = {"weight_decay": 0.01, "momentum": 0.9, "lr": 0.1, "nesterov": False}
    reference = torch.optim.SGD([plain], dampening=0.5, **options)
    steps, params, grads = lists(torch.zeros(()), start, gradient)
    momenta = [None]
    for skip in (0.0, 1.0, 0.0):
        if not skip:
            plain.grad = gradient.clone()
            reference.step()
        found = torch.tensor(skip, device="xla")
        syncfree_functional.sgd_step(
            found, steps, params, grads, momenta, dampening=0.5, maximize=False, **options
        )
        torch.testing.assert_close(params[0].cpu(), plain.detach())


# Devices and settings


def test_precision_of_products():
    assert backends.get_mat_mul_precision() == "default"
    x = torch.ones(4, 4, device="xla")
    try:
        backends.set_mat_mul_precision("highest")
        assert backends.get_mat_mul_precision() == "highest"
        assert "precision = [HIGHEST, HIGHEST]" in xm.get_stablehlo([x @ x])
        assert (x @ x)[0, 0].item() == 4
    finally:
        backends.set_mat_mul_precision("default")
    assert "precision = [HIGHEST, HIGHEST]" not in xm.get_stablehlo([x @ x])
    with pytest.raises(ValueError, match="one of default, high, highest"):
        backends.set_mat_mul_precision("exact")


@pytest.mark.lazy_only
def test_options_for_all_programs(counters):
    x = torch.ones(4, device="xla")
    (x * 3).sum().item()
    before = counters("UncachedCompile")
    torch_xla.set_custom_compile_options({"xla_cpu_enable_fast_math": True})
    try:
        assert (torch.ones(4, device="xla") * 3).sum().item() == 12
        assert counters("UncachedCompile") > before
        torch_xla.set_custom_compile_options({"no_such_option": 1})
        with pytest.raises(RuntimeError, match="no_such_option"):
            (torch.ones(4, device="xla") * 5).sum().item()
    finally:
        torch_xla.set_custom_compile_options({})


def test_what_runs_where():
    attributes = xr.runtime_device_attributes("xla:0")
    assert attributes["name"] == "CPU:0" and attributes == xr.global_runtime_device_attributes()[0]
    assert xr.is_bf16_supported()
    (torch.ones(3, device="xla") * random.random()).sum().item()
    assert xr.get_num_cached_compilation_graph() > 0
    assert xr.get_master_ip() == socket.gethostbyname("localhost")
    assert xm.xla_replication_devices() == ["CPU:0"]
    with pytest.raises(RuntimeError, match="over all devices"):
        xm.xla_replication_devices(["xla:0", "xla:0"])
    assert xm.DeviceContext("xla:0").device == "xla:0"
    assert set(xm.MemoryInfo.__annotations__) == set(xm.get_memory_info())
    assert PerDeviceQueue("xla:0", 1, 1).device == torch.device("xla:0")


def test_forked_random_state():
    torch_xla.manual_seed(3)
    state = xm.get_rng_state()
    with xm.fork_rng():
        torch.rand(3, device="xla").sum().item()
        assert xm.get_rng_state() != state
    assert xm.get_rng_state() == state
    with xm.fork_rng(enabled=False):
        torch.rand(3, device="xla").sum().item()
    assert xm.get_rng_state() != state


def test_arena_and_views():
    converted = []

    def convert(tensors):
        converted.append(len(tensors))
        return [t + 1 for t in tensors]

    arena = xm.ToXlaTensorArena(convert, lambda v: isinstance(v, torch.Tensor))
    data = {"a": torch.zeros(1), "b": [torch.ones(1), 3]}
    result = arena.transform(data)
    assert converted == [2] and result["a"].item() == 1 and result["b"][0].item() == 2
    base = torch.zeros(4, device="xla")
    xm.check_view_sharing([base, torch.zeros(4, device="xla")])
    with pytest.raises(RuntimeError, match="shares its storage"):
        xm.check_view_sharing([base, base[1:]])


def test_environment_variables():
    names = [name for name in vars(xla_env_vars) if name.isupper()]
    assert len(names) == 30
    assert xla_env_vars.PJRT_DEVICE == "PJRT_DEVICE"
    assert xla_env_vars.TPU_MESH_CTLER_PORT == "TPU_MESH_CONTROLLER_PORT"


class Plugin(plugins.DevicePlugin):
    def library_path(self) -> str:
        return "/somewhere/libsurface.so"


def test_plugins_told_by_code(monkeypatch):
    from torch_xla._internal import plugins as known

    monkeypatch.setattr(known, "registered", {})
    plugin = Plugin()
    plugins.register_plugin("surface", plugin)
    assert known.find("SURFACE") == "/somewhere/libsurface.so"
    with pytest.raises(KeyError, match="no plugin is registered for CPU"):
        plugins.default()
    monkeypatch.setenv("PJRT_DEVICE", "SURFACE")
    monkeypatch.delenv("PJRT_DYNAMIC_PLUGINS", raising=False)
    assert plugins.default() is plugin and not plugins.using_dynamic_plugins()
    plugins.register_installed_plugins()
    assert plugin.physical_chip_count() == 1 and plugin.host_index() == 0
    assert plugin.client_create_options() == {} and not plugin.requires_xla_coordinator()
    assert plugin.configure_multiprocess(0, 1) is None
    for call in (plugins.DevicePlugin().library_path, plugin.configure_single_process):
        with pytest.raises(NotImplementedError, match="must define"):
            call()


def test_dynamic_plugins_before_the_first_use(fresh_python):
    program = (
        "import torch, torch_xla\n"
        "from torch_xla.experimental import plugins\n"
        "plugins.use_dynamic_plugins(); print(plugins.using_dynamic_plugins())\n"
        "import os; del os.environ['PJRT_DYNAMIC_PLUGINS']\n"
        "torch.ones(1, device='xla').sum().item()\n"
        "try: plugins.use_dynamic_plugins()\n"
        "except RuntimeError as error: print(error)\n"
    )
    lines = fresh_python(program).splitlines()
    assert lines[0] == "False" and "before the first use of a device" in lines[1]


def test_callbacks_when_values_are_there():
    x = torch.ones(8, device="xla") * 2
    seen = threading.Event()
    values = []
    callback.on_ready_callback(x, lambda t: (values.append(t.sum().item()), seen.set()))
    assert seen.wait(30) and values == [16.0]
    assert callback.on_ready_event(x + 1).wait(30)
    with pytest.raises(ValueError, match="expected an xla tensor"):
        callback.on_ready_event(torch.ones(1))


def test_deprecated_names(caplog):
    module = ModuleType("old_module")

    def new(x):
        return x + 1

    deprecation.register_deprecated(module, new)
    assert module.new(1) == module.new(1) == 2
    assert deprecation.deprecated(module, new, "old", "Gone soon.")(1) == 2

    @deprecation.mark_deprecated(new)
    def former(x):
        raise AssertionError("the new function is called")

    assert former(2) == 3
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert [level for level, _ in said] == ["WARNING"] * 3
    assert said[0][1].startswith("old_module.new is deprecated. Use ")
    assert said[1][1].startswith("old_module.old is") and said[1][1].endswith("Gone soon.")
    assert "former" in said[2][1]


def test_autograd_functions_of_nested_data():
    @pytreeify
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, tensors, factor):
            ctx.factor = factor
            return {name: value * factor for name, value in tensors.items()}

        @staticmethod
        def backward(ctx, gradients):
            return {name: g * ctx.factor for name, g in gradients.items()}, None

    x = {name: torch.ones(2, device="xla", requires_grad=True) for name in "ab"}
    result = Scale.apply(x, 3.0)
    (result["a"].sum() + 2 * result["b"].sum()).backward()
    assert x["a"].grad.tolist() == [3, 3] and x["b"].grad.tolist() == [6, 6]
    with pytest.raises(TypeError, match="decorates"):
        pytreeify(int)


def test_what_devices_do_and_are():
    x = torch.ones(2, device="xla") * 2
    assert xm.is_xla_tensor(x) and not xm.is_xla_tensor(torch.ones(1))
    xm.unlazy([x])
    xm.wait_device_ops()
    xm.wait_device_ops(["xla:0"])
    xm.set_replication("xla:0", ["xla:0"])
    assert isinstance(xm.xla_device_kind(), str)
    assert xr.addressable_device_count() == xr.local_device_count() == 1
    tracker = xm.RateTracker(smooth_factor=1.0)
    tracker.add(10)
    assert tracker.rate() > 0 and tracker.global_rate() > 0


def test_walks_through_data(monkeypatch):
    seen = []
    utils.for_each_instance({"a": [1, "x"], "b": 2}, lambda v: isinstance(v, int), seen.append)
    assert seen == [1, 2]
    monkeypatch.setenv("SURFACE_NUMBER", "3")
    assert utils.getenv_as("SURFACE_NUMBER", int) == 3
    assert utils.getenv_as("SURFACE_NOTHING", int, 4) == 4
    assert list(utils.SampleGenerator(5, 2)) == [5, 5]


class Immediately(closures.ClosureHandler):
    def run(self, closure):
        closure()


def test_closures_at_once():
    seen = []
    Immediately().run_all([lambda: seen.append(1)])
    assert seen == [1]


def test_flat_state_dicts():
    from torch.distributed.checkpoint.planner import SavePlan
    from torch_xla.experimental.distributed_checkpoint import _helpers

    x = torch.arange(6.0).reshape(2, 3)
    flat, paths = _helpers.flatten_state_dict({"a": {"b": x}, "c": [x, 1]})
    assert flat["a.b"] is x and paths["a.b"] == ("a", "b") and flat["c.0"] is x
    root = {}
    _helpers.set_element(root, ("a", 0, "b"), 5)
    assert root == {"a": [{"b": 5}]}
    assert _helpers.narrow_tensor_by_index(x, (0, 1), (2, 2)).tolist() == [[1, 2], [4, 5]]
    assert len(_helpers.dedup_tensors([SavePlan([]), SavePlan([])])) == 2


def test_hints_as_operators():
    x = torch.ones(3, device="xla")
    assert torch.ops.xla.dynamo_set_buffer_donor_(x, True).tolist() == [1, 1, 1]
    plain = torch.ones(2)
    marked = torch.ops.xla.dynamo_mark_sharding(plain, [0], [1], "('x',)", "(None,)")
    assert marked.tolist() == [1, 1]

    @torch.compile(backend="openxla")
    def doubled(x):
        torch.ops.xla.dynamo_set_buffer_donor_(x, True)
        return x * 2

    assert doubled(x).tolist() == [2, 2, 2]
