"""(a) Recording the 100-layer decoder's forward, against computing it eagerly on the CPU.

Only the Python forward on `xla` tensors is timed. Its results are dropped before the sync that
follows outside the timer, so nothing is compiled or run.
"""

import argparse
import copy
import sys
from pathlib import Path

import torch
import torch_xla
from timing import Case, compare, write_json

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from models import Decoder, DecoderConfig  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", help="write the ratios to this file")
    options = parser.parse_args()

    torch.manual_seed(0)
    config = DecoderConfig.deep()
    model = Decoder(config)
    tokens = torch.randint(config.vocabulary, (2, 8))
    lazy_model, lazy_tokens = copy.deepcopy(model).to("xla"), tokens.to("xla")
    torch_xla.sync()

    results = {}
    for grad in (False, True):

        def forward(module: torch.nn.Module, batch: torch.Tensor, grad: bool = grad) -> object:
            with torch.set_grad_enabled(grad):
                return module(batch)

        mode = "with grad" if grad else "no_grad"
        results[mode] = compare(
            f"forward of the 100-layer decoder, {mode}",
            Case("cpu eager", lambda: forward(model, tokens)),
            [Case("xla recording", lambda: forward(lazy_model, lazy_tokens), torch_xla.sync)],
            options.rounds,
        )
    write_json(options.json, results)


if __name__ == "__main__":
    main()
