"""Training loops of other libraries, run where they are installed."""

import importlib.util
import json

import pytest
import torch
import torch.nn.functional as F
from torch import nn

needs_accelerate = pytest.mark.skipif(
    importlib.util.find_spec("accelerate") is None, reason="accelerate is not installed"
)
needs_transformers = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None
    or importlib.util.find_spec("accelerate") is None,
    reason="transformers and accelerate are not installed",
)
needs_lightning = pytest.mark.skipif(
    importlib.util.find_spec("lightning") is None, reason="lightning is not installed"
)

ACCELERATE_LOOP = """
import json, sys, torch
from accelerate import Accelerator
from accelerate.utils import gather_object, set_seed
folder, precision = sys.argv[1], sys.argv[2]
accelerator = Accelerator(mixed_precision=precision, gradient_accumulation_steps=2)
set_seed(3)
model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
inputs = torch.randn(40, 4)
data = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))
loader = torch.utils.data.DataLoader(data, batch_size=8)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
losses, synced = [], []
for epoch in range(6):
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = torch.nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            synced.append(accelerator.sync_gradients)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        losses.append(accelerator.gather(loss.detach().float()).mean().item())
accelerator.save_state(folder + "/state")
before = [p.detach().cpu().clone() for p in model.parameters()]
with torch.no_grad():
    for p in model.parameters():
        p.zero_()
accelerator.load_state(folder + "/state")
restored = all(torch.equal(a, p.detach().cpu()) for a, p in zip(before, model.parameters()))
accelerator.save_model(model, folder + "/model")
print(json.dumps(dict(
    device=str(accelerator.device), losses=losses, restored=restored, synced=synced[:5],
    kind=str(accelerator.distributed_type), prints=accelerator.is_local_main_process,
    objects=gather_object(["one", {"two": 2}]),
)))
"""


@pytest.fixture(autouse=True)
def not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PJRT_DEVICE", raising=False)


@needs_accelerate
@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_accelerate_training_loop(fresh_python, tmp_path, precision):
    program = f"import sys; sys.argv[1:] = [{str(tmp_path)!r}, {precision!r}]\n" + ACCELERATE_LOOP
    result = json.loads(fresh_python(program, PJRT_DEVICE="CPU").splitlines()[-1])
    plain = json.loads(fresh_python(program).splitlines()[-1])
    assert result["device"] == "xla:0" and plain["device"] == "cpu"
    assert "XLA" in result["kind"]
    assert result["restored"] and result["objects"] == plain["objects"]
    assert result["prints"], "accelerate shows messages and progress on the local main process"
    assert result["synced"] == plain["synced"] == [False, True, False, True, True]
    tolerance = 1e-3 if precision == "no" else 0.1
    assert result["losses"] == pytest.approx(plain["losses"], rel=tolerance, abs=tolerance)
    assert (tmp_path / "model" / "model.safetensors").is_file()


@needs_accelerate
def test_accelerate_trains_a_model_that_it_compiles(fresh_python):
    program = """
import torch
from accelerate import Accelerator
torch.manual_seed(0)
accelerator = Accelerator(dynamo_backend="eager")
model = torch.nn.Linear(3, 1)
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
for _ in range(3):
    loss = model(torch.ones(2, 3, device=accelerator.device)).square().mean()
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
print(accelerator.device, loss.item() < 0.2)
"""
    assert fresh_python(program, PJRT_DEVICE="CPU").splitlines()[-1] == "xla:0 True"


TRAINER = """
import json, sys, torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
folder, options = sys.argv[1], json.loads(sys.argv[2])
config = LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, vocab_size=64,
    num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True,
    max_position_embeddings=64)
torch.manual_seed(0)
model = LlamaForCausalLM(config)
rows = [{"input_ids": [(i * j) % 64 for j in range(1, 17)]} for i in range(32)]
data = [{**row, "labels": row["input_ids"]} for row in rows]
def trainer(**more):
    arguments = TrainingArguments(**{**dict(output_dir=folder, max_steps=8, logging_steps=1,
        report_to=[], per_device_train_batch_size=8, learning_rate=1e-2, save_steps=4,
        disable_tqdm=True), **options, **more})
    return Trainer(model=model, args=arguments, train_dataset=data, eval_dataset=data[:8])
run = trainer()
run.train()
losses = [entry["loss"] for entry in run.state.log_history if "loss" in entry]
evaluation = run.evaluate()["eval_loss"]
tied = run.model.lm_head.weight is run.model.model.embed_tokens.weight
run.save_model(folder + "/final")
again = LlamaForCausalLM.from_pretrained(folder + "/final")
same = torch.equal(again.model.norm.weight, run.model.model.norm.weight.detach().cpu().float())
resumed = trainer(max_steps=10).train(resume_from_checkpoint=folder + "/checkpoint-4")
print(json.dumps(dict(device=str(run.args.device), losses=losses, evaluation=float(evaluation),
    tied=tied, same=same, resumed=resumed.global_step)))
"""


@needs_transformers
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bf16": True},
        {"gradient_checkpointing": True},
        {"optim": "adamw_torch", "gradient_accumulation_steps": 2},
    ],
    ids=lambda options: "-".join(options) or "default",
)
def test_transformers_trainer(fresh_python, tmp_path, options):
    def run(name, extra, **environment):
        arguments = [str(tmp_path / name), json.dumps({**options, **extra})]
        program = f"import sys; sys.argv[1:] = {arguments!r}\n" + TRAINER
        return json.loads(fresh_python(program, **environment).splitlines()[-1])

    # As users run it, who wait for no compiler; as programs once.
    tiers = "off" if "bf16" in options else "counted"
    result = run("xla", {}, PJRT_DEVICE="CPU", TORCH_XLA_TIERS=tiers)
    # Nobody asked for the device; bfloat16 on the CPU has to be asked for.
    plain = run("cpu", {"use_cpu": True} if "bf16" in options else {})
    assert result["device"] == "xla:0" and plain["device"] == "cpu"
    assert result["tied"] and result["same"] and result["resumed"] == 10
    tolerance = 0.05 if "bf16" in options else 5e-3
    assert result["losses"] == pytest.approx(plain["losses"], rel=tolerance)
    assert result["evaluation"] == pytest.approx(plain["evaluation"], rel=tolerance)


@needs_transformers
def test_pretrained_models_save_from_the_device(tmp_path):
    import torch_xla  # noqa: F401
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=32))
    expected = {key: value.clone() for key, value in model.state_dict().items()}
    model.to("xla").save_pretrained(tmp_path)
    loaded = GPT2LMHeadModel.from_pretrained(tmp_path)
    torch.testing.assert_close(dict(loaded.state_dict()), expected)
    assert loaded.lm_head.weight is loaded.transformer.wte.weight


@pytest.mark.skipif(
    importlib.util.find_spec("safetensors") is None, reason="safetensors is not installed"
)
def test_safetensors(tmp_path):
    import torch_xla  # noqa: F401
    from safetensors.torch import load_file, load_model, save_file, save_model

    tensor = torch.arange(6.0, device="xla").view(2, 3)
    save_file({"t": tensor}, tmp_path / "t.safetensors")
    assert load_file(tmp_path / "t.safetensors")["t"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert load_file(tmp_path / "t.safetensors", device="xla")["t"].device.type == "xla"
    model = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(3, 3)})
    model["b"].weight = model["a"].weight
    model.to("xla")
    save_model(model, str(tmp_path / "m.safetensors"))
    weight = model["a"].weight.tolist()
    with torch.no_grad():
        model["a"].weight.zero_()
    load_model(model, str(tmp_path / "m.safetensors"))
    assert model["b"].weight.tolist() == weight


LIGHTNING = """
import sys, torch, lightning
class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        (x,) = batch
        loss = torch.nn.functional.mse_loss(self.layer(x), x.sum(1, keepdim=True))
        self.log("loss", loss)
        return loss
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.05)
torch.manual_seed(0)
data = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(torch.randn(32, 4)), batch_size=8)
trainer = lightning.Trainer(accelerator="auto", devices=1, max_epochs=15,
    default_root_dir=sys.argv[1], enable_progress_bar=False, logger=False,
    enable_model_summary=False)
module = Module()
trainer.fit(module, data)
print(trainer.strategy.root_device, float(trainer.callback_metrics["loss"]))
trainer.save_checkpoint(sys.argv[1] + "/model.ckpt")
state = torch.load(sys.argv[1] + "/model.ckpt", weights_only=False)["state_dict"]
print(torch.equal(state["layer.weight"].cpu(), module.layer.weight.detach().cpu()))
"""


@needs_lightning
def test_lightning_fit(fresh_python, tmp_path):
    program = f"import sys; sys.argv[1:] = [{str(tmp_path)!r}]\n" + LIGHTNING
    first, saved = fresh_python(program, PJRT_DEVICE="CPU").splitlines()[-2:]
    device, loss = first.split()
    assert device == "xla:0" and float(loss) < 0.5 and saved == "True"
    assert fresh_python(program).splitlines()[-2].startswith("cpu ")


@needs_lightning
def test_lightning_asks_for_the_speed_of_a_device_that_is_no_tpu() -> None:
    from lightning.fabric.utilities.throughput import get_available_flops

    with pytest.warns(match="FLOPs not found"):
        assert get_available_flops(torch.device("xla"), torch.float32) is None


def test_automatic_choice_of_cpu_needs_a_request(fresh_python, monkeypatch):
    monkeypatch.delenv("PJRT_DEVICE", raising=False)
    program = """
import torch, importlib
print(importlib.import_module("torch_xla._internal.tpu").num_available_devices())
"""
    assert fresh_python(program) == "0"
    assert fresh_python(program, PJRT_DEVICE="CPU") == "1"


@needs_accelerate
def test_lora_saves_from_the_device(tmp_path):
    peft = pytest.importorskip("peft")
    import torch_xla  # noqa: F401

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            return F.relu(self.layer(x))

    model = peft.get_peft_model(Model(), peft.LoraConfig(target_modules=["layer"], r=2)).to("xla")
    model(torch.ones(1, 4, device="xla")).sum().backward()
    model.save_pretrained(tmp_path)
    assert (tmp_path / "adapter_model.safetensors").is_file()
