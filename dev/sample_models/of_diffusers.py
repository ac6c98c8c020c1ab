"""Tiny models of diffusers, and sampling loops of its schedulers."""

import inspect
from typing import Any

import torch
from torch import nn

from .case import TINY, Case, Inputs

BATCH = TINY.batch


def normal(**shapes: tuple[int, ...]) -> Inputs:
    return lambda g: {name: torch.randn(*shape, generator=g) for name, shape in shapes.items()}


def timed(inputs: Inputs) -> Inputs:
    return lambda g: inputs(g) | {"timestep": torch.randint(0, 1000, (BATCH,), generator=g)}


SMALL = {"block_out_channels": (16, 32), "layers_per_block": 1, "norm_num_groups": 8}
UNET = {
    "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
    "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
    "cross_attention_dim": 16,
    "attention_head_dim": 4,
    **SMALL,
}
TRANSFORMER = {"num_attention_heads": 2, "attention_head_dim": 16, "num_layers": 2}
IMAGES = normal(sample=(BATCH, 3, 32, 32))
LATENT = {"hidden_states": (BATCH, 4, 8, 8)}
TEXT = {"encoder_hidden_states": (BATCH, 7, 16)}


def flux(g: torch.Generator) -> dict[str, Any]:
    tensors = normal(
        hidden_states=(BATCH, 16, 4),
        encoder_hidden_states=(BATCH, 7, 16),
        pooled_projections=(BATCH, 16),
    )(g)
    return tensors | {
        "timestep": torch.rand(BATCH, generator=g),
        "img_ids": torch.rand(16, 3),
        "txt_ids": torch.zeros(7, 3),
    }


MODELS_OF_DIFFUSERS: dict[str, tuple[dict[str, Any], Inputs]] = {
    "UNet2DModel": (
        {
            "sample_size": 32,
            "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
            "attention_head_dim": 8,
            "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
            **SMALL,
        },
        timed(IMAGES),
    ),
    "UNet2DConditionModel": (UNET, timed(normal(sample=(BATCH, 4, 16, 16), **TEXT))),
    "UNet3DConditionModel": (
        UNET
        | {
            "down_block_types": ("CrossAttnDownBlock3D", "DownBlock3D"),
            "up_block_types": ("UpBlock3D", "CrossAttnUpBlock3D"),
        },
        timed(normal(sample=(BATCH, 4, 3, 16, 16), **TEXT)),
    ),
    "UNet1DModel": (
        {
            "block_out_channels": (32, 64, 128, 256),
            "sample_size": 16,
            "in_channels": 14,
            "out_channels": 14,
            "time_embedding_type": "positional",
            "norm_num_groups": 8,
            "use_timestep_embedding": True,
            "down_block_types": ("DownResnetBlock1D",) * 4,
            "up_block_types": ("UpResnetBlock1D",) * 3,
            "mid_block_type": "MidResTemporalBlock1D",
            "out_block_type": "OutConv1DBlock",
            "flip_sin_to_cos": False,
            "freq_shift": 1.0,
            "act_fn": "swish",
        },
        timed(normal(sample=(BATCH, 14, 16))),
    ),
    "ControlNetModel": (
        {k: v for k, v in UNET.items() if k != "up_block_types"}
        | {"conditioning_embedding_out_channels": (16, 32)},
        timed(normal(sample=(BATCH, 4, 16, 16), controlnet_cond=(BATCH, 3, 32, 32), **TEXT)),
    ),
    "AutoencoderKL": (
        {
            "down_block_types": ("DownEncoderBlock2D",) * 2,
            "up_block_types": ("UpDecoderBlock2D",) * 2,
            **SMALL,
        },
        IMAGES,
    ),
    "AutoencoderTiny": (
        {
            "encoder_block_out_channels": (16, 16),
            "decoder_block_out_channels": (16, 16),
            "num_encoder_blocks": (1, 2),
            "num_decoder_blocks": (2, 1),
        },
        IMAGES,
    ),
    "VQModel": (
        {
            "down_block_types": ("DownEncoderBlock2D",) * 2,
            "up_block_types": ("UpDecoderBlock2D",) * 2,
            **SMALL,
        },
        IMAGES,
    ),
    "AutoencoderKLWan": (
        {
            "base_dim": 4,
            "z_dim": 4,
            "dim_mult": [1, 1, 1, 1],
            "num_res_blocks": 1,
            "temperal_downsample": [False, True, True],
        },
        normal(sample=(1, 3, 5, 16, 16)),
    ),
    "DiTTransformer2DModel": (
        TRANSFORMER
        | {"sample_size": 8, "in_channels": 4, "num_embeds_ada_norm": 1000, "norm_num_groups": 4},
        lambda g: (
            timed(normal(**LATENT))(g)
            | {"class_labels": torch.randint(0, 1000, (BATCH,), generator=g)}
        ),
    ),
    "PixArtTransformer2DModel": (
        TRANSFORMER
        | {"sample_size": 8, "in_channels": 4, "cross_attention_dim": 32, "caption_channels": 16},
        lambda g: (
            timed(normal(**LATENT, **TEXT))(g)
            | {"added_cond_kwargs": {"resolution": None, "aspect_ratio": None}}
        ),
    ),
    "SD3Transformer2DModel": (
        TRANSFORMER
        | {
            "sample_size": 8,
            "in_channels": 4,
            "joint_attention_dim": 16,
            "caption_projection_dim": 32,
            "pooled_projection_dim": 16,
            "pos_embed_max_size": 16,
            "out_channels": 4,
        },
        timed(normal(**LATENT, **TEXT, pooled_projections=(BATCH, 16))),
    ),
    "FluxTransformer2DModel": (
        TRANSFORMER
        | {
            "patch_size": 1,
            "in_channels": 4,
            "num_single_layers": 2,
            "joint_attention_dim": 16,
            "pooled_projection_dim": 16,
            "axes_dims_rope": (4, 4, 8),
        },
        flux,
    ),
    "WanTransformer3DModel": (
        TRANSFORMER
        | {
            "in_channels": 4,
            "out_channels": 4,
            "text_dim": 16,
            "freq_dim": 32,
            "ffn_dim": 32,
            "cross_attn_norm": True,
            "qk_norm": "rms_norm_across_heads",
            "rope_max_seq_len": 32,
        },
        timed(normal(hidden_states=(BATCH, 4, 2, 8, 8), **TEXT)),
    ),
    "LTXVideoTransformer3DModel": (
        TRANSFORMER
        | {"in_channels": 4, "out_channels": 4, "cross_attention_dim": 32, "caption_channels": 16},
        lambda g: (
            timed(normal(hidden_states=(BATCH, 16, 4), **TEXT))(g)
            | {
                "encoder_attention_mask": torch.ones(BATCH, 7).bool(),
                "num_frames": 1,
                "height": 4,
                "width": 4,
            }
        ),
    ),
}
SCHEDULERS = (
    "DDIM DDPM PNDM LMSDiscrete EulerDiscrete EulerAncestralDiscrete HeunDiscrete "
    "DPMSolverMultistep DPMSolverSinglestep UniPCMultistep DEISMultistep KDPM2Discrete LCM TCD "
    "FlowMatchEulerDiscrete EDMEuler IPNDM SASolver"
).split()


class Denoiser(nn.Module):
    """A sampling loop around a small network: what a scheduler does between calls of a model."""

    def __init__(self, scheduler: str) -> None:
        super().__init__()
        self.scheduler, self.network = scheduler, nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, sample: torch.Tensor) -> torch.Tensor:
        import diffusers

        scheduler = getattr(diffusers, f"{self.scheduler}Scheduler")()
        scheduler.set_timesteps(5, device=sample.device)
        takes_generator = "generator" in inspect.signature(scheduler.step).parameters
        for step in scheduler.timesteps:
            scaled = (
                scheduler.scale_model_input(sample, step)
                if hasattr(scheduler, "scale_model_input")
                else sample
            )
            # Of the CPU, so that both devices draw the same noise.
            noise = {"generator": torch.Generator().manual_seed(0)} if takes_generator else {}
            sample = scheduler.step(self.network(scaled), step, sample, **noise).prev_sample
        return sample


def diffusers_case(name: str) -> Case:
    import diffusers

    torch.manual_seed(0)
    if name.endswith("Scheduler"):
        return Case(Denoiser(name.removesuffix("Scheduler")), normal(sample=(BATCH, 3, 8, 8)))
    settings, inputs = MODELS_OF_DIFFUSERS[name]
    return Case(getattr(diffusers, name)(**settings), inputs)
