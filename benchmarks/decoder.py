"""(b) A compiled training step of the 2-layer decoder, against CPU eager."""

import argparse

import torch
import torch.nn.functional as F
from timing import compare, write_json
from torch import Tensor, nn
from training import training_cases

from models import Decoder, DecoderConfig  # isort: skip  (training extends the path)


def next_token_loss(model: nn.Module, tokens: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=3, help="training steps a round")
    parser.add_argument("--inductor", action="store_true", help="time torch.compile as well")
    parser.add_argument("--json", help="write the ratios to this file")
    options = parser.parse_args()

    torch.manual_seed(0)
    config = DecoderConfig()
    tokens = torch.randint(config.vocabulary, (8, 129))
    reference, candidates = training_cases(
        Decoder(config),
        next_token_loss,
        lambda model: torch.optim.Adam(model.parameters(), lr=1e-3),
        (tokens[:, :-1], tokens[:, 1:]),
        options.steps,
        options.inductor,
    )
    title = f"{options.steps} training steps of the 2-layer decoder, 8x128 tokens, Adam"
    write_json(options.json, {"decoder": compare(title, reference, candidates, options.rounds)})


if __name__ == "__main__":
    main()
