"""Libraries' training loops under `torch_xla.experimental.pure_training` have the same losses."""

import json

import pytest
import torch
import torch.nn.functional as F
from process import output_of
from torch import Tensor, nn
from torch_xla.experimental.assume_pure import assume_pure
from torch_xla.experimental.pure_training import trace_training


def losses_of(loop: str, *, traces: int, tolerance: float = 1e-5) -> None:
    """Runs `loop`, which sets `losses` and uses `pure`, both ways."""
    found = []
    for pure in (False, True):
        program = f"import json\npure = {pure}\n{loop}\nimport torch_xla.debug.metrics as met\n" + (
            "print(json.dumps([losses, met.counter_value('PureTrace') or 0]))"
        )
        found.append(json.loads(output_of(program).splitlines()[-1]))
    plain, traced = found
    assert len(plain[0]) >= 8
    assert plain[0][-1] < plain[0][0]
    assert traced[0] == pytest.approx(plain[0], rel=tolerance)
    assert (plain[1], traced[1]) == (0, traces)


TRAINER = """
import tempfile, torch, torch_xla
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
from torch_xla.experimental.pure_training import transformers_callback
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2,
    vocab_size=64, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64))
rows = [{"input_ids": [(i * j) % 64 for j in range(1, 17)],
         "attention_mask": [1] * (10 + i % 7) + [0] * (6 - i % 7)} for i in range(64)]
data = [{**row, "labels": row["input_ids"]} for row in rows]
options = TrainingArguments(output_dir=tempfile.mkdtemp(), max_steps=10, logging_steps=1,
    report_to=[], per_device_train_batch_size=8, learning_rate=1e-2, save_steps=5,
    disable_tqdm=True, eval_strategy="steps", eval_steps=4, OPTIONS)
trainer = Trainer(model=model, args=options, train_dataset=data, eval_dataset=data[:8],
    callbacks=[transformers_callback()] if pure else [])
trainer.train()
losses = [float(entry["loss"]) for entry in trainer.state.log_history if "loss" in entry]
"""


def test_transformers_trainer() -> None:
    """With padding, which the model would look at, evaluation, checkpoints and a schedule."""
    pytest.importorskip("transformers")
    options = "bf16=True, gradient_accumulation_steps=2"
    losses_of(TRAINER.replace("OPTIONS", options), traces=2, tolerance=1e-3)


LIGHTNING = """
import lightning, tempfile, torch, torch_xla
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch_xla.experimental.pure_training import lightning_callback

class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Linear(6, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU())
        self.heads = torch.nn.ModuleList([torch.nn.Linear(32, 4)])
        self.seen = []

    def training_step(self, batch, index):
        loss = F.cross_entropy(self.heads[0](self.body(batch[0])), batch[1])
        self.log("loss", loss)
        self.seen.append(loss.detach())
        return loss

    def validation_step(self, batch, index):
        self.log("validation", F.cross_entropy(self.heads[0](self.body(batch[0])), batch[1]))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.02)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)]

lightning.seed_everything(0, verbose=False)
data = TensorDataset(torch.randn(64, 6), torch.arange(64) % 4)
model = Classifier()
trainer = lightning.Trainer(accelerator="tpu", devices=1, max_epochs=4, logger=False,
    gradient_clip_val=1.0, enable_progress_bar=False, enable_model_summary=False,
    default_root_dir=tempfile.mkdtemp(), callbacks=[lightning_callback()] if pure else [])
trainer.fit(model, DataLoader(data, 16), DataLoader(data, 32))
losses = [loss.item() for loss in model.seen]
"""


def test_lightning() -> None:
    pytest.importorskip("lightning")
    losses_of(LIGHTNING, traces=3)


def test_accelerate_and_what_is_undone() -> None:
    accelerate = pytest.importorskip("accelerate")
    results: list[list[float]] = []
    for pure in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 32), nn.Dropout(0.1), nn.ReLU(), nn.Linear(32, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        accelerator = accelerate.Accelerator()
        model, optimizer = accelerator.prepare(model, optimizer)
        undo = trace_training(model, optimizer) if pure else None
        x: Tensor = torch.randn(16, 6, generator=torch.Generator().manual_seed(1)).to("xla")
        y = torch.arange(16, device="xla") % 4
        results.append([])
        for _ in range(8):
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(x), y)
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            results[-1].append(loss.item())
        if undo is not None:
            assert model.forward.__wrapped__ is not None
            undo()
            assert "forward" not in vars(model) or not hasattr(model.forward, "__wrapped__")
    assert results[1] == pytest.approx(results[0], rel=1e-5)


def test_what_is_no_optimizer_is_named() -> None:
    with pytest.raises(TypeError, match="trace_training needs optimizers, received list"):
        trace_training(nn.Linear(2, 2), [])


def test_an_encoder_with_padding_reads_nothing() -> None:
    """PyTorch's asks whether the mask is one of lengths, before it asks for the device."""
    torch.manual_seed(0)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2)
    encoder.eval()
    x = torch.randn(2, 7, 16)
    padding = torch.arange(7)[None] >= torch.tensor([[7], [4]])
    with torch.no_grad():
        expected = encoder(x, src_key_padding_mask=padding)
        encoder.to("xla")
        pure = assume_pure(lambda x, padding: encoder(x, src_key_padding_mask=padding))
        actual = pure(x.to("xla"), padding.to("xla")).cpu()
    torch.testing.assert_close(actual[~padding], expected[~padding], rtol=1e-4, atol=1e-5)
