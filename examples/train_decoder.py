"""Train a two-layer decoder on the `xla` device: what `make demo` runs.

The data are sequences that count up, each with its own start and stride, so the loss falls within
a few dozen steps. The same program trains on any device: `python train_decoder.py --device cpu`.
"""

import argparse
import math
import sys
import time

import torch
import torch.nn.functional as F
from models import Decoder, DecoderConfig
from torch import Tensor


def counting_batch(batch: int, length: int, vocabulary: int) -> Tensor:
    start = torch.randint(vocabulary, (batch, 1))
    stride = torch.randint(1, 4, (batch, 1))
    return (start + stride * torch.arange(length + 1)) % vocabulary


def finish_step(device: torch.device) -> None:
    """Hand the recorded step to the device; a device that computes at once needs nothing."""
    if device.type == "xla":
        import torch_xla

        torch_xla.sync()


def train(device: torch.device, steps: int, batch: int, length: int, report_every: int) -> float:
    """Return the last loss."""
    torch.manual_seed(0)
    config = DecoderConfig()
    model = Decoder(config).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    tokens_per_report = batch * length * report_every
    loss_value = float("nan")
    started = time.perf_counter()
    for step in range(1, steps + 1):
        tokens = counting_batch(batch, length, config.vocabulary).to(device)
        optimizer.zero_grad()
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        finish_step(device)
        if step % report_every == 0:
            loss_value = loss.item()
            elapsed = time.perf_counter() - started
            print(
                f"step {step:3d}/{steps}  loss {loss_value:6.3f}  "
                f"{tokens_per_report / elapsed:8,.0f} tokens/s",
                flush=True,
            )
            started = time.perf_counter()
    return loss_value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="xla")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--report-every", type=int, default=4)
    options = parser.parse_args()
    if options.device.startswith("xla"):
        import torch_xla  # noqa: F401  (registers the device)
    device = torch.device(options.device)
    print(f"Training a 2-layer decoder on {device} with {options.batch}x{options.length} tokens")
    if device.type == "xla":
        print("The first steps run as they are recorded, while they are compiled.", flush=True)
    loss = train(device, options.steps, options.batch, options.length, options.report_every)
    if not loss < math.log(DecoderConfig().vocabulary):
        sys.exit(f"The loss is {loss}, no better than guessing")


if __name__ == "__main__":
    main()
