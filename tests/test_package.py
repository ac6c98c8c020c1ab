"""Importing the package: what it costs, what it tells PyTorch, what it refuses."""

import importlib.metadata
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch_xla
from process import output_of
from torch import nn
from torch_xla._internal import plugins


def test_import_is_cheap_and_starts_nothing(fresh_python):
    program = """
import sys, torch
before = set(sys.modules)
import torch_xla
new = {name.partition(".")[0] for name in set(sys.modules) - before}
from torch_xla import _XLAC
torch.manual_seed(3)
torch_xla.device()
print(_XLAC.client_started(), *sorted(new - set(sys.stdlib_module_names)))
"""
    started, *imported = fresh_python(program, TORCH_DEVICE_BACKEND_AUTOLOAD="0").split()
    assert started == "False"
    assert imported == ["torch", "torch_xla"], "an import of ours brings another package"
    assert "torch._dynamo" not in fresh_python("import sys, torch_xla; print(*sys.modules)").split()


def test_operations_do_not_load_the_compiler():
    """PyTorch's meta kernels would, for a second; once it is loaded they do as they would."""
    output = output_of(
        """
        import sys
        from torch import nn

        x = torch.arange(1.0, 5.0).to("xla")
        y = nn.functional.gelu(x.add(1).mul(2).sin().relu() + x.clamp_max(2)) / x.log2().cosh()
        torch.where(y.fmax(x) > 1, y, x.float_power(2).hypot(x)).xlogy(x).tolist()
        print("torch._dynamo" in sys.modules)

        import torch._dynamo

        def f(x):
            return torch._refs.sub(x, 1) + torch._refs.mul(x, 2)

        compiled = torch.compile(f, backend="eager")
        for _ in range(2):
            print(compiled(torch.ones(2)).tolist(), compiled(x).tolist())
        """
    )
    first, *others = output.splitlines()
    assert first == "False"
    assert others == ["[2.0, 2.0] [2.0, 5.0, 8.0, 11.0]"] * 2


def test_optimizers_do_not_load_the_compiler():
    """PyTorch's import it for a call that ends a graph, for more than a second."""
    output = output_of(
        """
        import sys

        def train(name, device):
            torch.manual_seed(0)
            model = torch.nn.Linear(4, 1).to(device)
            optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.01)
            rows = torch.randn(8, 4).to(device)

            def closure():
                optimizer.zero_grad()
                loss = model(rows).square().mean()
                loss.backward()
                return loss

            for _ in range(2):
                optimizer.step(closure)
                optimizer.load_state_dict(optimizer.state_dict())
            assert torch.is_grad_enabled()
            return model.weight.detach().cpu()

        for name in ("SGD", "AdamW", "Adagrad", "LBFGS"):
            torch.testing.assert_close(train(name, "xla"), train(name, "cpu"), msg=name)
        weight = torch.ones(3, device="xla", requires_grad=True)
        stepped = weight.clone()
        stepped.grad = torch.ones_like(stepped) * weight
        optimizer = torch.optim.SGD([torch.zeros(3, device="xla")], lr=1.0, differentiable=True)
        optimizer.param_groups[0]["params"] = [stepped]
        optimizer.step()
        print(torch.autograd.grad(stepped.sum(), weight)[0].tolist())

        def fails():
            raise ValueError("the user's")

        try:
            torch.optim.SGD([weight], lr=1.0).step(fails)
        except ValueError as error:
            print(error, torch.is_grad_enabled(), "torch._dynamo" in sys.modules)

        import torch._dynamo

        optimizer = torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=1.0)
        parameter = optimizer.param_groups[0]["params"][0]
        parameter.grad = torch.ones(2)
        torch.compile(optimizer.step, backend="eager")()
        print(parameter.tolist())
        optimizers = sys.modules["torch.optim.optimizer"]
        known = optimizers._use_grad_for_differentiable(lambda: None).__code__
        print(torch.optim.SGD.step.__wrapped__.__code__ is known)
        """
    )
    assert output.splitlines() == [
        "[0.0, 0.0, 0.0]",
        "the user's True False",
        "[0.0, 0.0]",
        "True",
    ]


def test_operations_do_not_load_a_library_for_symbols():
    """PyTorch's meta kernels in Python do, for more than half a second."""
    output = output_of(
        """
        import sys
        import torch.nn.functional as F

        CALLS = {
            "std": lambda x: x.std(),
            "var": lambda x: x.var(1),
            "max": lambda x: x.max(),
            "median": lambda x: x.median(),
            "flip": lambda x: x.flip(0),
            "clamp": lambda x: x.clamp(0, 1),
            "norm": lambda x: x.norm(),
            "normalize": F.normalize,
            "cumprod": lambda x: x.cumprod(1),
            "index": lambda x: x[torch.tensor([0, 2]).to("xla")],
            "nan_to_num": torch.nan_to_num,
            "kl_div": lambda x: F.kl_div(x.log_softmax(1), x.softmax(1).detach()),
            "prelu": lambda x: F.prelu(x, torch.ones(1, device="xla")),
            "average": lambda x: F.adaptive_avg_pool2d(x[None, None], 1),
            "transposed": lambda x: F.conv_transpose2d(x[None, None], x[None, None, :3, :3]),
            "classes": lambda x: F.cross_entropy(x[None, :2], torch.ones(1, 8).long().to("xla")),
            "fold": lambda x: F.unfold(x[None, None], 2),
            "reflected": lambda x: F.pad(x[None], (1, 1), mode="reflect"),
            "sampled": lambda x: F.grid_sample(x[None, None], x[None, :, None, :2]),
            "normal": lambda x: torch.normal(x.detach(), x.detach().abs()),
            "choice": lambda x: torch.distributions.Categorical(logits=x).sample(),
            "permutation": lambda x: x[torch.randperm(6, device="xla")],
            "inverse": lambda x: torch.linalg.inv(x[:, :6] + 9 * torch.eye(6, device="xla")),
            "bags": lambda x: F.embedding_bag(torch.ones(2, 3).long().to("xla"), x),
            "fourier": lambda x: torch.fft.rfft(x).abs(),
            "range": lambda x: x[0] * torch.arange(0, 16, 2, device="xla"),
            "positions": lambda x: x[torch.arange(6, device="xla")],
            "fractions": lambda x: x * torch.arange(0.0, 4.0, 0.5, device="xla"),
            "spaced": lambda x: x * torch.linspace(0, 1, 8, device="xla"),
            "window": lambda x: x * torch.hann_window(8, device="xla"),
            "triangle": lambda x: x[torch.tril_indices(4, 4, device="xla").unbind()],
            "relu6": F.relu6,
            "hardswish": F.hardswish,
            "pinverse": lambda x: torch.linalg.pinv(x.detach()),
            "waves": lambda x: torch.stft(x.flatten(), 8, return_complex=True).abs(),
            "none": lambda x: F.prelu(x[:0], torch.ones(1, device="xla")),
            "of 16 bits": lambda x: F.unfold(x[None, None].bfloat16(), 2),
            "normalised": lambda x: F.batch_norm(
                x[None].bfloat16(), None, None, *torch.ones(2, 6, device="xla"), training=True
            ),
            "of many": lambda x: F.prelu(x.repeat(200, 300), torch.ones(1, device="xla")),
        }
        for name, call in CALLS.items():
            result = call(torch.randn(6, 8).to("xla").requires_grad_())
            if result.requires_grad:
                result.square().sum().backward()
            torch_xla.sync()
            assert "sympy" not in sys.modules, name
        print(len(CALLS))
        """
    )
    assert output == "39\n"


def test_version_is_that_of_the_distribution():
    assert importlib.metadata.version("torch-pjrt") == torch_xla.__version__
    assert torch_xla.__version__.split(".")[:2] == torch.__version__.split(".")[:2]


def test_libraries_find_a_distribution_named_torch_xla():
    assert importlib.metadata.version("torch_xla") == torch_xla.__version__


def test_package_is_typed():
    assert (Path(torch_xla.__file__).parent / "py.typed").is_file()


def test_submodules_need_no_second_import(fresh_python):
    program = """
import torch_xla
print(torch_xla.runtime.device_type(), torch_xla.experimental.__name__, torch_xla.amp.GradScaler)
"""
    assert fresh_python(program, PJRT_DEVICE="CPU").startswith("CPU torch_xla.experimental")


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="nonsense"):
        _ = torch_xla.nonsense


def test_another_pytorch_is_named_in_the_error(tmp_path):
    error = _import_error(tmp_path, "import torch; torch.__version__ = '2.9.0'")
    assert "built for PyTorch 2.13.0, and PyTorch 2.9.0 is installed" in error


def test_missing_extension_is_explained(tmp_path):
    assert "the extension module is missing" in _import_error(tmp_path, "import torch")


def _import_error(folder: Path, setup: str) -> str:
    """What importing the package without its extension says, in a process that did `setup`."""
    package = folder / "torch_xla"
    package.mkdir()
    for source in Path(torch_xla.__file__).parent.iterdir():
        if not source.name.startswith("_XLAC"):
            (package / source.name).symlink_to(source)
    # An editable installation is found by a finder of its own, before sys.path.
    program = f"""
import sys
sys.meta_path[:] = [f for f in sys.meta_path if "editable" not in type(f).__module__]
sys.path.insert(0, {str(folder)!r})
{setup}
import torch_xla
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode != 0
    return done.stderr


@pytest.mark.parametrize("name", ["XLA_USE_BF16", "XLA_DOWNCAST_BF16"])
def test_dropped_variables_warn(fresh_python, name):
    program = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import torch_xla
print([str(w.message) for w in caught])
"""
    assert f"{name} is set but has no effect" in fresh_python(program, **{name: "1"})
    assert name not in fresh_python(program, **{name: "0"})


def test_embedded_plugin_is_found_by_its_file():
    assert Path(plugins.find("CPU")).name == "libpjrt_cpu.so"


def test_missing_plugin_says_what_to_install():
    with pytest.raises(RuntimeError, match="registered for: NEURON"):
        plugins.find("neuron")


def test_plugin_of_an_entry_point_comes_first(tmp_path, monkeypatch):
    (tmp_path / "my_plugin.py").write_text(
        "class Plugin:\n    def library_path(self):\n        return '/here/my_cpu.so'\n"
    )
    _write_entry_point(tmp_path, "torch_xla.plugins", "cpu = my_plugin:Plugin")
    monkeypatch.syspath_prepend(tmp_path)
    assert plugins.find("CPU") == "/here/my_cpu.so"


def test_plugin_made_for_jax_is_found_without_importing_it(tmp_path, monkeypatch):
    package = tmp_path / "jax_plugins" / "xla_cuda99"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "xla_cuda_plugin.so").write_text("library")
    (package / "_versions.so").write_text("a helper that is larger than the library")
    monkeypatch.syspath_prepend(tmp_path)
    assert plugins.find("GPU") == str(package / "xla_cuda_plugin.so")


def _write_entry_point(folder: Path, group: str, line: str) -> None:
    info = folder / "my_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{line}\n")


def test_core_warnings_point_at_the_users_line():
    from torch_xla._internal import integration

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        integration._warn("something")
    assert caught[0].filename == __file__


def test_cpu_modules_convert_as_before():
    """The swap of parameters that the device needs leaves CPU programs as they were."""
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    model.tied = model[0].weight
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    weight = model[0].weight
    model.double()
    assert model[0].weight is weight is model.tied and weight.dtype == torch.float64
    model[0](torch.ones(2, 4, dtype=torch.float64)).sum().backward()
    before = weight.detach().clone()
    optimizer.step()
    assert not torch.equal(before, weight)
    model.load_state_dict({key: value.float() for key, value in model.state_dict().items()})
    assert weight is model[0].weight and weight.dtype == torch.float64


def test_the_environment_is_checked_at_import(fresh_python: Callable[..., str]) -> None:
    program = (
        "import warnings\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    import torch_xla\n"
        "print([str(w.message) for w in caught if 'environment variable' in str(w.message)])"
    )
    assert fresh_python(program) == "[]"
    printed = fresh_python(program, TORCH_XLA_EXPLIAN="1", CPU_NUM_DEVICES="100000")
    assert (
        "CPU_NUM_DEVICES has the value '100000': it must be a whole number from 1 to 128" in printed
    )
    assert "TORCH_XLA_EXPLIAN is not one of torch_xla" in printed
    assert "did you mean TORCH_XLA_EXPLAIN?" in printed


def test_xla_flags_that_the_plugin_does_not_know_are_left_out(
    fresh_python: Callable[..., str], tmp_path: Path
) -> None:
    """The plugin would end the process."""
    program = (
        "import warnings\n"
        "import torch, torch_xla\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    print(torch.ones(2, device='xla').sum().item())\n"
        "print([str(w.message) for w in caught])"
    )
    flags = "--xla_tpu_enable_flash --xla_cpu_enable_fast_math=false --xla_nonsense=1"
    value, warned = fresh_python(program, XLA_FLAGS=flags).splitlines()
    assert value == "2.0"
    assert "does not know --xla_tpu_enable_flash --xla_nonsense=1, which is left out" in warned
    file = tmp_path / "flags"
    file.write_text(flags)
    value, warned = fresh_python(program, XLA_FLAGS=str(file)).splitlines()
    assert value == "2.0"
    assert "does not know --xla_tpu_enable_flash --xla_nonsense=1, which is left out" in warned
    value, warned = fresh_python(program, XLA_FLAGS="xla_nonsense").splitlines()
    assert value == "2.0"
    assert "XLA_FLAGS has the value 'xla_nonsense', which is left out" in warned


def test_what_the_plugin_is_told_stays_with_it(fresh_python: Callable[..., str]) -> None:
    """Our flags of the compiler's are nobody else's, and a user's own are kept."""
    program = (
        "import os, subprocess, sys\n"
        "import torch, torch_xla\n"
        "torch.ones(2, device='xla').sum().item()\n"
        "child = 'import os; print(os.environ.get(\"XLA_FLAGS\"))'\n"
        "print(os.environ.get('XLA_FLAGS'))\n"
        "subprocess.run([sys.executable, '-c', child], check=True)"
    )
    assert fresh_python(program).splitlines() == ["None", "None"]
    flag = "--xla_cpu_enable_fast_math=false"
    assert fresh_python(program, XLA_FLAGS=flag).splitlines() == [flag, flag]
    own = "--xla_backend_extra_options=xla_cpu_disable_new_fusion_emitters"
    assert fresh_python(program, XLA_FLAGS=own).splitlines() == [own, own]
