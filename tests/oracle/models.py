"""A training step of many model families, at tiny sizes and with random weights: programs not written for the purpose.

`FAMILIES[name](layers)` makes a module of that many layers, where the family stacks equal ones, and the keyword
arguments of one call (positional ones are under ""). The module returns a tuple whose first member is a loss; dropout
is on, as in training, for every run starts from the same seed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

Made = tuple[nn.Module, dict[str, Any]]
FAMILIES: dict[str, Callable[..., Made]] = {}  # name -> (layers: int = 2) -> Made
MORE: dict[str, Callable[..., Made]] = {}  # the same, of families that docs/parity.md does not have

BATCH, LENGTH, WORDS = 2, 8, 61
SMALL: dict[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "use_cache": False,
}


class Step(nn.Module):
    """A model of transformers that returns its loss and its other tensors as a tuple."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **inputs: Any) -> tuple[torch.Tensor, ...]:
        found = self.model(**inputs)
        tensors = [value for value in found.to_tuple() if isinstance(value, torch.Tensor)]
        return (tensors[0], *tensors[1:]) if tensors[0].numel() == 1 else (tensors[0].square().mean(), *tensors)


class Loss(nn.Module):
    """A module of torch.nn, and the mean square of what it returns."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: Any) -> tuple[torch.Tensor, ...]:
        found = self.inner(*args)
        first = found[0] if isinstance(found, tuple) else found
        return first.square().mean(), first


def tokens(seed: int = 0, length: int = LENGTH) -> torch.Tensor:
    return torch.randint(3, WORDS, (BATCH, length), generator=torch.Generator().manual_seed(seed))


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def causal() -> dict[str, Any]:
    ids = tokens()
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}


def classified() -> dict[str, Any]:
    ids = tokens()
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": torch.tensor([0, 1])}


def translated() -> dict[str, Any]:
    return {"input_ids": tokens(), "attention_mask": torch.ones_like(tokens()), "labels": tokens(1)}


def pictures(size: int = 16, labels: bool = True) -> dict[str, Any]:
    made = {"pixel_values": noise(BATCH, 3, size, size)}
    return {**made, "labels": torch.tensor([0, 1])} if labels else made


DEPTHS = {"num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers"}


def deep(config: dict[str, Any], layers: int) -> dict[str, Any]:
    """`config` with so many layers, by whatever name it has for them."""
    return {key: layers if key in DEPTHS else value for key, value in config.items()}


def family(
    name: str, config: str, model: str, inputs: Callable[[], dict[str, Any]], base: Any = SMALL, **changes: Any
) -> None:
    def make(layers: int = 2) -> Made:
        import transformers  # seconds, which only those pay who make a model of it

        torch.manual_seed(0)
        made = getattr(transformers, config)(**deep({**base, **changes}, layers))
        made._attn_implementation = changes.get("attn_implementation", "eager")
        return Step(getattr(transformers, model)(made).train()), inputs()

    FAMILIES[name] = make


def another(name: str, *args: Any, **changes: Any) -> None:
    """A family for `MORE`."""
    family(name, *args, **changes)
    MORE[name] = FAMILIES.pop(name)


def plain(make: Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]) -> None:
    def made(layers: int = 2) -> Made:
        torch.manual_seed(0)
        module, args = make()
        return Loss(module.train()), {"": args}

    FAMILIES[make.__name__] = made


# --- transformers ---------------------------------------------------------------------------------------------------

GPT = {"vocab_size": WORDS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "bos_token_id": 1}
GPT |= {"eos_token_id": 2, "use_cache": False}
PICTURE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
PICTURE |= {"image_size": 16, "patch_size": 8}
GROUPED = {"num_key_value_heads": 2, "head_dim": 8}

family("gpt2", "GPT2Config", "GPT2LMHeadModel", causal, GPT)
family("gptj", "GPTJConfig", "GPTJForCausalLM", causal, GPT, rotary_dim=4)
family(
    "gpt_neo",
    "GPTNeoConfig",
    "GPTNeoForCausalLM",
    causal,
    num_layers=2,
    num_heads=4,
    attention_types=[[["global", "local"], 1]],
)
family("gpt_neox", "GPTNeoXConfig", "GPTNeoXForCausalLM", causal)
family("bert", "BertConfig", "BertForSequenceClassification", classified)
family("roberta", "RobertaConfig", "RobertaForSequenceClassification", classified)
family(
    "distilbert",
    "DistilBertConfig",
    "DistilBertForSequenceClassification",
    classified,
    dim=32,
    n_layers=2,
    n_heads=4,
    hidden_dim=40,
)
family("albert", "AlbertConfig", "AlbertForSequenceClassification", classified, embedding_size=16)
family("electra", "ElectraConfig", "ElectraForSequenceClassification", classified, embedding_size=16)
family(
    "deberta",
    "DebertaV2Config",
    "DebertaV2ForSequenceClassification",
    classified,
    relative_attention=True,
    pos_att_type=["p2c", "c2p"],
)
family("longformer", "LongformerConfig", "LongformerForSequenceClassification", classified, attention_window=4)
family(
    "t5",
    "T5Config",
    "T5ForConditionalGeneration",
    translated,
    d_model=32,
    d_kv=8,
    d_ff=40,
    num_layers=2,
    num_heads=4,
    decoder_start_token_id=0,
)
UNLIMITED = {k: v for k, v in SMALL.items() if k != "max_position_embeddings"}
UNSTACKED = {k: v for k, v in SMALL.items() if k != "num_hidden_layers"}
SEQ = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
}
SEQ |= {"encoder_ffn_dim": 40, "decoder_ffn_dim": 40, "decoder_start_token_id": 2, "forced_eos_token_id": None}
family("xlnet", "XLNetConfig", "XLNetForSequenceClassification", classified, UNLIMITED, d_inner=40, d_head=8)
family(
    "funnel",
    "FunnelConfig",
    "FunnelForSequenceClassification",
    classified,
    UNSTACKED,
    d_model=32,
    n_head=4,
    d_head=8,
    d_inner=40,
    block_sizes=[1, 1],
)
family("bart", "BartConfig", "BartForConditionalGeneration", translated, **SEQ)
family("pegasus", "PegasusConfig", "PegasusForConditionalGeneration", translated, **SEQ)
family("opt", "OPTConfig", "OPTForCausalLM", causal, ffn_dim=40, word_embed_proj_dim=32)
family("bloom", "BloomConfig", "BloomForCausalLM", causal, n_layer=2, n_head=4)
family("falcon", "FalconConfig", "FalconForCausalLM", causal)
family("llama", "LlamaConfig", "LlamaForCausalLM", causal, **GROUPED)
family("mistral", "MistralConfig", "MistralForCausalLM", causal, **GROUPED, sliding_window=4)
family("mixtral", "MixtralConfig", "MixtralForCausalLM", causal, **GROUPED, num_local_experts=2, num_experts_per_tok=1)
family("qwen2", "Qwen2Config", "Qwen2ForCausalLM", causal, **GROUPED)
family("gemma", "GemmaConfig", "GemmaForCausalLM", causal, **GROUPED)
family("phi", "PhiConfig", "PhiForCausalLM", causal)
family("stablelm", "StableLmConfig", "StableLmForCausalLM", causal, num_key_value_heads=4)
family("olmo", "OlmoConfig", "OlmoForCausalLM", causal)
family("mamba", "MambaConfig", "MambaForCausalLM", causal, state_size=4, expand=2, conv_kernel=2, time_step_rank=2)
WINDOWS = {"image_size": 16, "patch_size": 2, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "window_size": 2}
family("swin", "SwinConfig", "SwinForImageClassification", pictures, WINDOWS)
family("vit", "ViTConfig", "ViTForImageClassification", pictures, PICTURE)
family("deit", "DeiTConfig", "DeiTForImageClassification", pictures, PICTURE)
family("beit", "BeitConfig", "BeitForImageClassification", pictures, PICTURE)
family(
    "convnext",
    "ConvNextConfig",
    "ConvNextForImageClassification",
    pictures,
    {},
    hidden_sizes=[8, 16],
    depths=[1, 1],
    num_stages=2,
    image_size=16,
)
family(
    "resnet",
    "ResNetConfig",
    "ResNetForImageClassification",
    lambda: pictures(32),
    {},
    hidden_sizes=[8, 16],
    depths=[1, 1],
    embedding_size=8,
    layer_type="basic",
)
family(
    "mobilenet",
    "MobileNetV2Config",
    "MobileNetV2ForImageClassification",
    lambda: pictures(32),
    {},
    depth_multiplier=0.25,
)
family(
    "segformer",
    "SegformerConfig",
    "SegformerForImageClassification",
    lambda: pictures(32),
    {},
    hidden_sizes=[8, 16, 16, 16],
    depths=[1, 1, 1, 1],
    num_attention_heads=[1, 2, 2, 2],
)


def clip(layers: int = 2) -> Made:
    import transformers

    torch.manual_seed(0)
    text = {k: v for k, v in SMALL.items() if k != "use_cache"}
    config = transformers.CLIPConfig(
        text_config=deep(text, layers), vision_config=deep(PICTURE, layers), projection_dim=16
    )
    inputs = {"input_ids": tokens(), "return_loss": True, **pictures(labels=False)}
    return Step(transformers.CLIPModel(config).train()), inputs


def whisper(layers: int = 2) -> Made:
    import transformers

    torch.manual_seed(0)
    config = transformers.WhisperConfig(
        **deep({**SMALL, **SEQ}, layers), num_mel_bins=8, max_source_positions=8, max_target_positions=32
    )
    config.apply_spec_augment = False
    model = transformers.WhisperForConditionalGeneration(config).train()
    return Step(model), {"input_features": noise(BATCH, 8, 16), "labels": tokens()}


def wav2vec2(layers: int = 2) -> Made:
    import transformers

    torch.manual_seed(0)
    small = {k: v for k, v in SMALL.items() if k not in ("use_cache", "max_position_embeddings")}
    config = transformers.Wav2Vec2Config(
        **deep(small, layers),
        conv_dim=(8, 8),
        conv_kernel=(4, 4),
        conv_stride=(2, 2),
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2,
        classifier_proj_size=16,
        apply_spec_augment=False,
        layerdrop=0.0,
    )
    model = transformers.Wav2Vec2ForSequenceClassification(config).train()
    return Step(model), {"input_values": noise(BATCH, 80), "labels": torch.tensor([0, 1])}


FAMILIES |= {"clip": clip, "whisper": whisper, "wav2vec2": wav2vec2}


another("phi3", "Phi3Config", "Phi3ForCausalLM", causal, num_key_value_heads=2)
another("cohere", "CohereConfig", "CohereForCausalLM", causal, num_key_value_heads=2)
another("starcoder2", "Starcoder2Config", "Starcoder2ForCausalLM", causal, num_key_value_heads=2)
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
EXPERTS |= {"shared_expert_intermediate_size": 16, "decoder_sparse_step": 1}
another("qwen2_moe", "Qwen2MoeConfig", "Qwen2MoeForCausalLM", causal, num_key_value_heads=2, **EXPERTS)
MPT = {"vocab_size": WORDS, "d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 64, "expansion_ratio": 2}
another("mpt", "MptConfig", "MptForCausalLM", causal, MPT, use_cache=False)
XLM = {k: SMALL[k] for k in ("vocab_size", "max_position_embeddings", "pad_token_id", "bos_token_id", "eos_token_id")}
XLM |= {"emb_dim": 32, "n_layers": 2, "n_heads": 4}
another("xlm", "XLMConfig", "XLMForSequenceClassification", classified, XLM)
MAMBA = {"state_size": 8, "num_heads": 4, "head_dim": 16, "n_groups": 2, "chunk_size": 4, "conv_kernel": 2}
another("mamba2", "Mamba2Config", "Mamba2ForCausalLM", causal, **MAMBA, expand=2)
another("dinov2", "Dinov2Config", "Dinov2ForImageClassification", pictures, PICTURE, mlp_ratio=2)
another(
    "regnet",
    "RegNetConfig",
    "RegNetForImageClassification",
    lambda: pictures(32),
    {},
    hidden_sizes=[8, 16],
    depths=[1, 1],
    embedding_size=8,
    groups_width=4,
    layer_type="y",
)
RESTORED = {"decoder_hidden_size": 16, "decoder_num_hidden_layers": 1, "decoder_num_attention_heads": 2}
RESTORED |= {"decoder_intermediate_size": 20, "mask_ratio": 0.5}
another("vit_mae", "ViTMAEConfig", "ViTMAEForPreTraining", lambda: pictures(labels=False), PICTURE, **RESTORED)


# --- torch.nn -------------------------------------------------------------------------------------------------------


@plain
def transformer() -> Any:
    return nn.Transformer(16, 2, 1, 1, 24, batch_first=True), (noise(2, 4, 16), noise(2, 3, 16))


@plain
def lstm() -> Any:
    return nn.LSTM(6, 8, 2, batch_first=True, bidirectional=True), (noise(2, 5, 6),)


@plain
def gru() -> Any:
    return nn.GRU(6, 8, batch_first=True), (noise(2, 5, 6),)


@plain
def convolutions() -> Any:
    layers = [nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(8, 8, 3, groups=2, padding=1), nn.GroupNorm(2, 8), nn.SiLU(), nn.AdaptiveAvgPool2d(1)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Dropout(0.2), nn.Linear(8, 4)), (noise(2, 3, 16, 16),)


@plain
def autoencoder() -> Any:
    inward = [nn.Conv1d(2, 4, 3, padding=1), nn.BatchNorm1d(4), nn.ELU(), nn.AvgPool1d(2)]
    outward = [nn.ConvTranspose1d(4, 2, 2, stride=2), nn.InstanceNorm1d(2, affine=True), nn.Tanh()]
    return nn.Sequential(*inward, *outward), (noise(2, 2, 8),)


@plain
def embeddings() -> Any:
    return nn.Sequential(nn.EmbeddingBag(WORDS, 8, mode="mean"), nn.LayerNorm(8), nn.Linear(8, 2)), (tokens(),)


def training_step(call: Callable[[], object]) -> tuple[Callable[[], list[torch.Tensor]], list[torch.Tensor]]:
    """A step that calls a model, runs all of its results backward and returns them; and the gradients that its backward
    begins with, which the first step makes."""
    seeds: list[torch.Tensor] = []

    def step() -> list[torch.Tensor]:
        results = [one for one in torch.utils._pytree.tree_leaves(call()) if isinstance(one, torch.Tensor)]
        differentiable = [one for one in results if one.requires_grad]
        seeds.extend(torch.ones_like(one) for one in differentiable[len(seeds) :])
        torch.autograd.backward(differentiable, seeds)
        return results

    return step, seeds
