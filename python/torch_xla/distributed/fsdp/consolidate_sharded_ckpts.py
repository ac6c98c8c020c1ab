"""`python -m torch_xla.distributed.fsdp.consolidate_sharded_ckpts --ckpt_prefix PREFIX ...`"""

import argparse
import sys

from torch_xla.distributed.fsdp.state_dict_utils import consolidate_sharded_model_checkpoints


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ckpt_prefix", required=True, help="what the files' paths begin with")
    parser.add_argument("--ckpt_suffix", default="*.pth", help="what they end with, as a pattern")
    parser.add_argument("--save_path", default="", help="default: PREFIX_consolidated.pth")
    args = parser.parse_args()
    _, path = consolidate_sharded_model_checkpoints(
        args.ckpt_prefix, args.ckpt_suffix, args.save_path
    )
    print(f"saved {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
