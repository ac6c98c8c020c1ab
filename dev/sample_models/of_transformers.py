"""Small random models of transformers with inputs, from shrunken configurations."""

import functools
import inspect
import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from .case import Case, Inputs, Scale

# Which head stands for an architecture: the first of these that it has.
HEADS = (
    "SEQ_TO_SEQ_CAUSAL_LM SPEECH_SEQ_2_SEQ IMAGE_TEXT_TO_TEXT CAUSAL_LM MASKED_LM CTC "
    "IMAGE_CLASSIFICATION OBJECT_DETECTION SEMANTIC_SEGMENTATION UNIVERSAL_SEGMENTATION "
    "DEPTH_ESTIMATION VIDEO_CLASSIFICATION AUDIO_CLASSIFICATION TIME_SERIES_PREDICTION "
    "MASK_GENERATION QUESTION_ANSWERING TEXT_TO_SPECTROGRAM PRETRAINING"
).split()


def transformers_names() -> list[str]:
    """Every architecture but the towers of those with several."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    parts = (
        "_text",
        "_vision",
        "_model",
        "_audio",
        "encoder",
        "decoder",
        "vqgan",
        "_vision_model",
        "_text_model",
    )
    return sorted(name for name in CONFIG_MAPPING_NAMES if not name.endswith(parts))


# What a setting becomes, by the end of its name: a number, or the scale's; the first that matches.
Rules = tuple[tuple[tuple[str, ...], int | str], ...]
COUNTS: Rules = (
    (("num_layers", "layers", "n_layer", "depth", "num_blocks"), 2),
    (("vocab_size", "num_embeddings"), "vocabulary"),
    (
        (
            "max_position_embeddings",
            "n_positions",
            "max_source_positions",
            "max_target_positions",
            "n_ctx",
        ),
        "positions",
    ),
    (("image_size", "img_size"), "image"),
    (("num_experts", "num_local_experts", "n_routed_experts"), 4),
    (("num_experts_per_tok",), 2),
    (("num_queries",), "queries"),
)
WIDTHS: Rules = (
    (("n_head_kv",), 2),
    (("heads", "n_head", "num_heads", "head_count"), "heads"),
    (("head_dim", "d_kv", "head_size", "key_length", "rotary_dim"), "head"),
    (("ffn_dim", "intermediate_size", "d_ff", "n_inner", "ffn_hidden_size", "mlp_dim"), "inner"),
    (
        (
            "hidden_size",
            "d_model",
            "n_embd",
            "hidden_dim",
            "embedding_size",
            "embed_dim",
            "projection_dim",
            "dim",
        ),
        "width",
    ),
)
# These follow from others, such as the number of layers.
DERIVED = frozenset(
    "id2label label2id layer_types mlp_layer_types block_types layers_block_type out_features "
    "out_indices stage_names"
    "per_layer_config mrope_section no_rope_layers mlp_only_layers feature_size".split()
)
SERIES = {"prediction_length": 4, "context_length": 12, "num_time_features": 2}


def overrides(name: str, scale: Scale) -> dict[str, Any]:
    """What does not follow from a setting's name."""
    if name in ("informer", "autoformer", "time_series_transformer"):
        return SERIES
    if name == "mamba2":
        heads, head = 2 * scale.width // scale.head, scale.head
        widths = {"hidden_size": scale.width, "state_size": 16}
        return {"num_heads": heads, "head_dim": head, "n_groups": 1, **widths}
    return {}


def shrink(
    settings: dict[str, Any], scale: Scale, tokens: Iterator[int], widths: bool
) -> dict[str, Any]:
    small: dict[str, Any] = {}
    if "rope_theta" in settings and widths:
        small["mrope_section"] = [
            scale.head // part for part in (4, 8, 8)
        ]  # of those that have one
    for name, value in settings.items():
        if name == "use_cache":
            small[name] = False
        elif isinstance(value, bool) or value is None or name == "num_feat_extract_layers":
            small[name] = value
        elif "drop" in name and isinstance(value, float):
            small[name] = 0.0
        elif name.endswith(("token_id", "token_index")) and isinstance(value, int):
            small[name] = value if value < 3 else next(tokens)
        elif name in DERIVED:
            continue
        elif isinstance(value, dict):
            small[name] = shrink(value, scale, tokens, widths)
        elif isinstance(value, list) and name in ("num_heads", "num_attention_heads"):
            small[name] = [min(v, 2) if isinstance(v, int) else v for v in value]
        elif isinstance(value, list) and name in ("depths", "num_blocks", "layer_depths"):
            small[name] = [min(v, 2) if isinstance(v, int) else v for v in value]
        elif name.endswith(("num_key_value_heads", "num_kv_heads")) and widths:
            small[name] = scale.heads if value == settings.get("num_attention_heads") else 2
        elif isinstance(value, int) and (size := size_of(name, scale, widths)) is not None:
            small[name] = min(value, size)
        else:
            small[name] = value
    return small


def size_of(name: str, scale: Scale, widths: bool) -> int | None:
    rules = COUNTS + WIDTHS if widths else COUNTS
    size = next((size for ends, size in rules if name.endswith(ends)), None)
    return getattr(scale, size) if isinstance(size, str) else size


def transformers_case(name: str, scale: Scale) -> Case:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    problems = []
    for widths in (True, False):
        try:
            config_class = CONFIG_MAPPING[name]
            tokens = itertools.count(scale.words)
            settings = shrink(config_class().to_dict(), scale, tokens, widths)
            config = config_class.from_dict(settings | overrides(name, scale))
            if (
                getattr(config, "is_encoder_decoder", False)
                and getattr(config, "decoder_start_token_id", None) is None
            ):
                config.decoder_start_token_id = config.pad_token_id = 0
            for model_class in classes_of(name):
                return transformers_model(model_class, config, scale)
        except Exception as problem:
            problems.append(f"{type(problem).__name__}: {problem}")
    raise ValueError(" / ".join(problems))


def classes_of(name: str) -> Iterator[type[nn.Module]]:
    import transformers
    from transformers.models.auto import modeling_auto

    for head in (*(f"MODEL_FOR_{head}" for head in HEADS), "MODEL"):
        found = getattr(modeling_auto, f"{head}_MAPPING_NAMES").get(name)
        if found:
            found = found if isinstance(found, str) else found[0]
            yield getattr(transformers, found)


def transformers_model(model_class: type[nn.Module], config: Any, scale: Scale) -> Case:
    with torch.device("meta"):
        size = sum(p.numel() for p in model_class(config).parameters())
    if size > scale.parameters:
        raise ValueError(f"{size / 1e6:.0f} million parameters")
    torch.manual_seed(0)
    model = model_class(config)
    problems = []
    for inputs in transformers_inputs(model, config, scale):
        try:
            with torch.no_grad():
                model(**inputs(torch.Generator().manual_seed(0)))
            return Case(model, inputs)
        except Exception as problem:
            problems.append(f"{type(problem).__name__}: {str(problem)[:120]}")
    raise ValueError(f"{model_class.__name__}: " + " / ".join(problems))


def vision_of(config: Any) -> Any:
    return (
        getattr(config, "vision_config", None) or getattr(config, "backbone_config", None) or config
    )


def image_of(config: Any) -> tuple[int, ...]:
    size = (
        getattr(config, "image_size", None) or getattr(vision_of(config), "image_size", None) or 64
    )
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return (
        getattr(vision_of(config), "num_channels", None) or getattr(config, "num_channels", 3),
        height,
        width,
    )


@functools.cache
def image_tokens(model: nn.Module, *shape: int) -> torch.Tensor:
    """As many as the model makes features of an image of this shape: they stand before the text."""
    with torch.no_grad():
        features = model.get_image_features(pixel_values=torch.zeros(shape))
    features = getattr(features, "pooler_output", features)
    features = features[0] if isinstance(features, list | tuple) else features
    count = features.shape[:-1].numel() // (shape[0] if features.dim() > 2 else 1)
    token = next(
        value
        for name in ("image_token_id", "image_token_index", "media_token_id")
        if (value := getattr(model.config, name, None)) is not None
    )
    return torch.full((shape[0], count), token)


def transformers_inputs(model: nn.Module, config: Any, scale: Scale) -> Iterator[Inputs]:
    accepts = inspect.signature(model.forward).parameters
    text = config.get_text_config()
    vocabulary = (
        getattr(text, "vocab_size", None) or getattr(config, "vocab_size", None) or scale.vocabulary
    )
    batch = scale.batch
    labelled = type(model).__name__.endswith(("LM", "ForConditionalGeneration", "ForCausalLM"))

    def ids(g: torch.Generator) -> torch.Tensor:
        return torch.randint(3, min(vocabulary, scale.words), (batch, scale.tokens), generator=g)

    def words(g: torch.Generator) -> dict[str, Any]:
        found = {"input_ids": ids(g)}
        if "labels" in accepts and labelled:
            found["labels"] = found["input_ids"]
        elif "decoder_input_ids" in accepts:
            found["decoder_input_ids"] = ids(g)
        return found

    def decoded(g: torch.Generator) -> dict[str, Any]:
        names = [
            n
            for n in ("decoder_input_ids", "labels")
            if n in accepts and (n != "labels" or labelled)
        ][-1:]
        return {name: ids(g) for name in names}

    def pixels(g: torch.Generator) -> dict[str, Any]:
        return {"pixel_values": torch.randn(batch, *image_of(config), generator=g)}

    def words_and_images(g: torch.Generator) -> dict[str, Any]:
        images = pixels(g)
        front = image_tokens(model, *images["pixel_values"].shape)
        both = torch.cat([front, ids(g)], 1)
        return images | {"input_ids": both} | ({"labels": both} if "labels" in accepts else {})

    def several_images(g: torch.Generator) -> dict[str, Any]:
        images = {"pixel_values": torch.randn(batch, 1, *image_of(config), generator=g)}
        front = image_tokens(model, *images["pixel_values"].shape)
        both = torch.cat([front, ids(g)], 1)
        return images | {"input_ids": both, "labels": both}

    def video(g: torch.Generator) -> dict[str, Any]:
        frames = getattr(config, "num_frames", 4)
        return {"pixel_values": torch.randn(batch, frames, *image_of(config), generator=g)}

    def patches(g: torch.Generator) -> dict[str, Any]:
        v = config.vision_config
        width = 3 * getattr(v, "temporal_patch_size", 1) * v.patch_size**2
        merge = getattr(v, "spatial_merge_size", 1)
        grid = torch.tensor([[1, 2 * merge, 2 * merge]] * batch)
        both = torch.cat([torch.full((batch, 4), config.image_token_id), ids(g)], 1)
        types = (
            {"mm_token_type_ids": (both == config.image_token_id).int()}
            if "mm_token_type_ids" in accepts
            else {}
        )
        pixels = torch.randn(batch * 4 * merge**2, width, generator=g)
        return {
            "pixel_values": pixels,
            "image_grid_thw": grid,
            "input_ids": both,
            "labels": both,
        } | types

    def wave(length: int) -> Inputs:
        return lambda g: (
            {"input_values": torch.randn(batch, *([1] * (length < 0)), abs(length), generator=g)}
            | decoded(g)
        )

    def features(*shape: int, name: str = "input_features") -> Inputs:
        return lambda g: {name: torch.randn(batch, *shape, generator=g)} | decoded(g)

    def series(g: torch.Generator) -> dict[str, Any]:
        past, future = config.context_length + max(config.lags_sequence), config.prediction_length
        known = config.num_time_features
        return {
            "past_values": torch.rand(batch, past, generator=g) + 1,
            "past_time_features": torch.rand(batch, past, known, generator=g),
            "past_observed_mask": torch.ones(batch, past),
            "future_values": torch.rand(batch, future, generator=g) + 1,
            "future_time_features": torch.rand(batch, future, known, generator=g),
        }

    mel = getattr(
        getattr(config, "audio_config", None) or getattr(config, "encoder_config", None) or config,
        "num_mel_bins",
        None,
    ) or getattr(config, "input_feat_per_channel", 80)
    if "image_grid_thw" in accepts:
        yield patches
    if "input_ids" in accepts and "pixel_values" in accepts:
        yield from (
            words_and_images,
            several_images,
            lambda g: words(g) | pixels(g),
            lambda g: words(g) | video(g),
        )
    if "pixel_values" in accepts:
        yield from (pixels, lambda g: pixels(g) | decoded(g), video)
    if "pixel_values_videos" in accepts and "input_ids" not in accepts:
        yield lambda g: {"pixel_values_videos": video(g)["pixel_values"]}
    if "input_features" in accepts:
        long = 2 * getattr(config, "max_source_positions", 32)
        yield from (
            features(mel, long),
            features(64, mel),
            features(scale.tokens, 2 * mel),
            features(128, mel),
        )
    if "input_values" in accepts:
        longest = getattr(config, "max_length", 64)
        yield from (
            wave(scale.samples),
            wave(-scale.samples),
            features(longest, mel, name="input_values"),
        )
    if "past_time_features" in accepts:
        yield series
    elif "past_values" in accepts:
        length, channels = (
            getattr(config, "context_length", 32),
            getattr(config, "num_input_channels", 1),
        )
        yield lambda g: {"past_values": torch.randn(batch, length, channels, generator=g)}
    if "input_ids" in accepts:
        yield words
        yield lambda g: {"input_ids": ids(g)}
        yield (
            lambda g: (
                words(g)
                | {"bbox": torch.tensor([1, 2, 3, 4]).expand(batch, scale.tokens, 4).contiguous()}
            )
        )
    if "states" in accepts:
        yield lambda g: {
            "states": torch.randn(batch, 4, config.state_dim, generator=g),
            "actions": torch.randn(batch, 4, config.act_dim, generator=g),
            "returns_to_go": torch.randn(batch, 4, 1, generator=g),
            "timesteps": torch.arange(4).expand(batch, 4).contiguous(),
            "attention_mask": torch.ones(batch, 4),
        }
