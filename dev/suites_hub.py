"""A stand-in for the Hugging Face hub: tiny random models under the names that a suite asks for.

dev/suites_hub.py CACHE FOLDER    makes in CACHE, laid out as HF_HOME is, what the files in FOLDER
name as "owner/name": models with tokenizers, pipelines, datasets. What is there is left as it is.

The architecture is the one in the name ("tiny-random-OPTForCausalLM"), or a name's part says it
(ARCHITECTURES). What has none, or cannot be made, is not on this hub.
"""

import functools
import inspect
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "USE_TORCH_XLA": "0"}

import tokenizers
import torch
import transformers
from suites_datasets import REVISION, attempt, text, write_datasets
from tokenizers import models, pre_tokenizers, trainers

NAME = re.compile(r"""["']([\w.-]+/[\w.-]+)["']""")
# Adapters and models in other formats are no plain models.
OTHER_KINDS = re.compile("lora|gptq|awq|onnx|openvino|extended|revision|4bit|gguf", re.IGNORECASE)

# Parts of names that say the architecture, for names that do not.
ARCHITECTURES = {
    "opt": "OPTForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "neo": "GPTNeoForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "gemma": "GemmaForCausalLM",
    "bloom": "BloomForCausalLM",
    "bloomz": "BloomForCausalLM",
    "t5": "T5ForConditionalGeneration",
    "clip": "CLIPModel",
    "bert": "BertForMaskedLM",
    "distilbert": "DistilBertForMaskedLM",
    "roberta": "RobertaForMaskedLM",
    "albert": "AlbertForMaskedLM",
    "mobilevit": "MobileViTModel",
    "resnet": "ResNetForImageClassification",
}

# Sizes under every name that a configuration may have for them.
WIDTH, INNER, LAYERS, HEADS = 32, 64, 2, 4
SIZES: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "d_model", "word_embed_proj_dim", "dim"), WIDTH),
    **dict.fromkeys(("embedding_size", "projection_dim", "n_embd", "pooler_hidden_size"), WIDTH),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "hidden_dim"), INNER),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "intermediate_size_mlp"), INNER),
    **dict.fromkeys(("moe_intermediate_size", "moe_shared_expert_intermediate_size"), INNER),
    **dict.fromkeys(("num_hidden_layers", "num_layers", "n_layers", "n_layer"), LAYERS),
    **dict.fromkeys(("encoder_layers", "decoder_layers", "num_decoder_layers"), LAYERS),
    **dict.fromkeys(("num_attention_heads", "num_heads", "n_heads", "n_head"), HEADS),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), HEADS),
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_experts_per_tok"), 2),
    **dict.fromkeys(("head_dim", "d_kv", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"), 8),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "mamba_head_dim", "ssm_state_size"), 8),
    **dict.fromkeys(("n_group", "topk_group", "n_groups", "first_k_dense_replace"), 1),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx"), 512),
    **{"rotary_dim": 4, "state_size": 4, "time_step_rank": 4, "mamba_num_heads": 8},
    **{"image_size": 30, "patch_size": 2, "attention_types": [[["global", "local"], 1]]},
    **{"hidden_sizes": [8, 16], "depths": [1, 1], "chunk_size": 16},
    "layers_block_type": ["mamba", "attention", "moe"],
}

# Families of models and the chat templates that a suite may have for them.
CHATS = {
    **{"Qwen2": "qwen2_5", "Qwen3": "qwen3", "Llama": "llama3", "GptOss": "gptoss"},
    **{"Gemma": "gemma", "Deepseek": "deepseekv3", "Glm4Moe": "glm4moe", "Cohere": "cohere"},
    **{"Lfm2": "lfm2", "Phi3": "phi3", "NemotronH": "nemotron_3_nano"},
}
CHAT = """{% for message in messages %}<|im_start|>{{ message['role'] }}
{{ message['content'] }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
SPECIAL = """<|endoftext|> <|im_start|> <|im_end|> <s> </s> <unk> <pad> <|begin_of_text|> <|eot_id|>
<|start_header_id|> <|end_header_id|> <start_of_turn> <end_of_turn> <think> </think> <|start|>
<|end|> <|message|> <|channel|> <|return|> <|user|> <|assistant|> <|system|>""".split()


def trained(model: Any, trainer: Any, split: Any) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = split
    tokenizer.train_from_iterator(text(), trainer)
    return tokenizer


@functools.cache
def tokenizer(kind: str) -> Any:
    """Of under 1,000 tokens, as tests make models for that many."""
    letters = pre_tokenizers.ByteLevel.alphabet()
    if kind == "T5":
        found = trained(
            models.Unigram(),
            trainers.UnigramTrainer(
                vocab_size=500, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>"
            ),
            pre_tokenizers.Metaspace(),
        )
        scores = [(token, -float(place)) for token, place in found.get_vocab().items()]
        return transformers.T5Tokenizer(vocab=sorted(scores, key=lambda score: -score[1]))
    if kind == "CLIP":
        vocabulary = {letter: place for place, letter in enumerate(sorted(letters))}
        for token in [f"{letter}</w>" for letter in sorted(letters)]:
            vocabulary[token] = len(vocabulary)
        for token in ("<|startoftext|>", "<|endoftext|>"):
            vocabulary[token] = len(vocabulary)
        return transformers.CLIPTokenizer(vocab=vocabulary, merges=[], model_max_length=77)
    if kind == "Bert":
        found = trained(
            models.WordPiece(unk_token="[UNK]"),
            trainers.WordPieceTrainer(
                vocab_size=900, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
            ),
            pre_tokenizers.BertPreTokenizer(),
        )
        return transformers.BertTokenizer(vocab=found.get_vocab(), model_max_length=128)
    found = trained(
        models.BPE(),
        trainers.BpeTrainer(vocab_size=700, special_tokens=SPECIAL, initial_alphabet=letters),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
    )
    found.decoder = tokenizers.decoders.ByteLevel()
    ends = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "unk_token": "<unk>"}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=found, model_max_length=4096, chat_template=CHAT, **ends
    )


@functools.cache
def architectures() -> dict[str, str]:
    names = [name for name in dir(transformers) if re.search("For[A-Z]|Model$", name)]
    return {name.lower(): name for name in names} | ARCHITECTURES


def architecture(name: str) -> str | None:
    """The class of transformers that a name says."""
    parts = [part.lower() for part in re.split("[-/.]", name)]
    said = [architectures()[part] for part in parts if part in architectures()]
    return max(said, key=len, default=None)  # a class says more than a part


def small(configuration: Any, **sizes: Any) -> Any:
    """A configuration with the sizes that its class knows."""
    known = [*vars(configuration()), *configuration.attribute_map]
    sizes = {**SIZES, **sizes}
    chosen = {key: value for key, value in sizes.items() if key in known}
    for part, of in configuration.sub_configs.items():
        if inspect.isclass(of) and part in known:
            chosen[part] = small(of, **sizes).to_dict()
    return configuration(**chosen)


def write_model(name: str, place: Path, templates: dict[str, str]) -> None:
    torch.manual_seed(0)
    if name.startswith(("sentence-transformers", "cross-encoder", "sparse-encoder")):
        return write_encoder(name, place)
    if "stable-diffusion" in name or "sd-pipe" in name:
        return write_pipeline(place)
    of = getattr(transformers, architecture(name) or name)
    configuration = of.config_class
    encoder = re.match("Bert|Roberta|Deberta|DistilBert|Albert", of.__name__)
    kind = next((kind for kind in ("T5", "CLIP") if kind in of.__name__), "Bert" if encoder else "")
    writer = tokenizer(kind)
    if not kind:
        family = next((family for family in CHATS if family in of.__name__), "")
        writer.chat_template = templates.get(CHATS.get(family, ""), CHAT)
    writer.save_pretrained(place)
    if kind != "CLIP" and "vision_config" in configuration.sub_configs:
        return  # models that see need processors, and the tokenizer is what some tests ask for
    ends = {f"{end}_token_id": getattr(writer, f"{end}_token_id") for end in ("bos", "eos", "pad")}
    chosen = small(configuration, vocab_size=len(writer), **ends)
    if not kind and of.__name__.endswith("ForSequenceClassification"):
        chosen.num_labels = 1  # a reward
    if chosen.is_encoder_decoder:
        chosen.decoder_start_token_id = writer.pad_token_id
    of(chosen).save_pretrained(place)


def write_encoder(name: str, place: Path) -> None:
    """As the library writes what it makes of a plain model."""
    import sentence_transformers

    words = tokenizer("Bert")
    configuration = small(
        transformers.BertConfig, vocab_size=len(words), hidden_size=128, pad_token_id=0
    )
    transformers.BertForMaskedLM(configuration).save_pretrained(place)
    words.save_pretrained(place)
    kind, options = "SentenceTransformer", dict[str, int]()
    if name.startswith("cross"):
        kind, options = "CrossEncoder", {"num_labels": 1}
    elif name.startswith("sparse"):
        kind = "SparseEncoder"
    made = getattr(sentence_transformers, kind)(str(place), device="cpu", **options)
    made.save_pretrained(str(place))


def write_pipeline(place: Path) -> None:
    import diffusers

    words = tokenizer("CLIP")
    blocks = {"block_out_channels": (32, 64), "norm_num_groups": 8}
    text_configuration = small(transformers.CLIPTextConfig, vocab_size=len(words))
    diffusers.StableDiffusionPipeline(
        unet=diffusers.UNet2DConditionModel(
            sample_size=32,
            layers_per_block=1,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
            cross_attention_dim=WIDTH,
            attention_head_dim=8,
            **blocks,
        ),
        scheduler=diffusers.DDIMScheduler(clip_sample=False, set_alpha_to_one=False),
        vae=diffusers.AutoencoderKL(
            down_block_types=["DownEncoderBlock2D"] * 2,
            up_block_types=["UpDecoderBlock2D"] * 2,
            latent_channels=4,
            **blocks,
        ),
        text_encoder=transformers.CLIPTextModel(text_configuration),
        tokenizer=words,
        safety_checker=None,
        feature_extractor=None,
    ).save_pretrained(place)


def names_in(folder: Path) -> Iterator[str]:
    found = {
        name for file in folder.rglob("*.py") for name in NAME.findall(file.read_text("utf-8"))
    }
    for name in sorted(found):
        encoder = name.startswith(("sentence-transformers", "cross-encoder", "sparse-encoder"))
        pipeline = "tiny" in name and ("stable-diffusion" in name or "sd-pipe" in name)
        if not OTHER_KINDS.search(name) and (encoder or pipeline or architecture(name)):
            yield name


def main() -> None:
    cache, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    transformers.logging.set_verbosity_error()
    templates = {file.stem: file.read_text() for file in folder.rglob("chat_templates/*.jinja")}
    for name in names_in(folder):
        place = cache / "hub" / f"models--{name.replace('/', '--')}"
        snapshot, reference = place / "snapshots" / REVISION, place / "refs" / "main"
        if reference.exists():
            continue
        snapshot.mkdir(parents=True, exist_ok=True)
        if attempt(name, functools.partial(write_model, name, snapshot, templates)):
            reference.parent.mkdir(exist_ok=True)
            reference.write_text(REVISION)
    write_datasets(cache, folder)


if __name__ == "__main__":
    main()
