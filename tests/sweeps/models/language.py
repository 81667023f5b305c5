"""Models that read text, series and sound."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import nn

from .catalogue import WORDS, model, noise, words

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

SMALL: dict[str, Any] = {"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
SMALL |= {"intermediate_size": 40, "max_position_embeddings": 64, "use_cache": False}
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def transformer(config: str, name: str, **sizes: Any) -> nn.Module:
    import transformers

    return getattr(transformers, name)(getattr(transformers, config)(**sizes, **SPECIAL))


def labelled(n: int) -> dict[str, Any]:
    return {"input_ids": words(n), "labels": words(n)}


@model("transformers", by_inductor=True, in_ci=True)
def gpt2():
    sizes = {"vocab_size": WORDS, "n_embd": 32, "n_layer": 1, "n_head": 4, "n_positions": 32, "use_cache": False}
    return transformer("GPT2Config", "GPT2LMHeadModel", **sizes), labelled


@model("transformers", in_ci=True)
def llama():
    return transformer("LlamaConfig", "LlamaForCausalLM", **SMALL, num_key_value_heads=2), labelled


@model("transformers", in_ci=True)
def switch_transformer():
    sizes = {"vocab_size": WORDS, "d_model": 32, "d_kv": 8, "d_ff": 40, "num_layers": 1, "num_heads": 4}
    sizes |= {"num_experts": 3, "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1, "num_decoder_layers": 1}
    sizes |= {"use_cache": False}
    made = transformer(
        "SwitchTransformersConfig", "SwitchTransformersForConditionalGeneration", **sizes, decoder_start_token_id=0
    )
    return made, labelled


@model("transformers", in_ci=True)
def mixtral():
    sizes = {**SMALL, "num_key_value_heads": 2, "num_local_experts": 3, "num_experts_per_tok": 2}
    return transformer("MixtralConfig", "MixtralForCausalLM", **sizes, output_router_logits=True), labelled


@model("transformers", in_ci=True)
def fourier_transformer():
    sizes = {key: value for key, value in SMALL.items() if key not in ("num_attention_heads", "use_cache")}
    return transformer("FNetConfig", "FNetForMaskedLM", **sizes), labelled


@model("transformers")
def series_in_patches():
    sizes = {"num_input_channels": 2, "context_length": 16, "patch_length": 4, "patch_stride": 4, "d_model": 16}
    sizes |= {"num_hidden_layers": 1, "num_attention_heads": 2, "ffn_dim": 20, "prediction_length": 4}
    made = transformer("PatchTSTConfig", "PatchTSTForPrediction", **sizes)
    return made, lambda n: {"past_values": noise(n, 16, 2), "future_values": noise(n, 4, 2)}


@model("transformers", in_ci=True)
def big_bird():
    return transformer("BigBirdConfig", "BigBirdForMaskedLM", **SMALL, attention_type="original_full"), labelled


@model("transformers")
def speech_to_text():
    sizes = {**SMALL, "conv_dim": (8, 8), "conv_kernel": (4, 4), "conv_stride": (2, 2), "num_feat_extract_layers": 2}
    sizes |= {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "apply_spec_augment": False}
    sizes = {key: value for key, value in sizes.items() if key not in ("use_cache", "max_position_embeddings")}
    made = transformer("HubertConfig", "HubertForCTC", **sizes, layerdrop=0.0)
    return made, lambda n: {"input_values": noise(n, 400), "labels": words(n, 5)}


@model("torch", in_ci=True)
def recurrent_language_model():
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(WORDS, 8)
            self.memory = nn.LSTMCell(8, 8)
            self.head = nn.Linear(8, WORDS)
            self.head.weight = self.words.weight

        def forward(self, read):
            state, guessed = None, []
            for word in self.words(read[:, :-1]).unbind(1):
                state = self.memory(word, state)
                guessed.append(self.head(state[0]))
            return nn.functional.cross_entropy(torch.stack(guessed, 1).flatten(0, 1), read[:, 1:].flatten())

    return Reader(), lambda n: (words(n, 5),)


@model("torch", in_ci=True)
def encoder_decoder():
    made = nn.Transformer(16, 2, 1, 1, 24, batch_first=True)
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    return made, lambda n: {"src": noise(n, 6, 16), "tgt": noise(n, 5, 16), "tgt_mask": mask, "tgt_is_causal": True}


@model("peft")
def low_rank_adapters():
    from peft import LoraConfig, get_peft_model

    made, inputs = gpt2()
    adapters = LoraConfig(r=2, lora_dropout=0.1, target_modules=["c_attn"], task_type="CAUSAL_LM")
    return get_peft_model(made, adapters), inputs


@model("x-transformers")
def autoregressive_decoder():
    from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

    layers = Decoder(dim=32, depth=1, heads=2, attn_dim_head=16, rotary_pos_emb=True, ff_glu=True, attn_dropout=0.1)
    made = TransformerWrapper(num_tokens=WORDS, max_seq_len=32, attn_layers=layers)
    return AutoregressiveWrapper(made), lambda n: (words(n),)


@model("x-transformers")
def continuous_encoder():
    from x_transformers import ContinuousTransformerWrapper, Encoder

    layers = Encoder(dim=32, depth=1, heads=2, attn_dim_head=16, alibi_pos_bias=True, use_rmsnorm=True)
    made = ContinuousTransformerWrapper(dim_in=6, dim_out=4, max_seq_len=32, attn_layers=layers)
    return made, lambda n: (noise(n, 10, 6),)


@model("performer-pytorch")
def performer():
    from performer_pytorch import PerformerLM

    sizes = {"dim": 16, "depth": 1, "heads": 2, "dim_head": 8, "nb_features": 8}
    return PerformerLM(num_tokens=WORDS, max_seq_len=12, **sizes, causal=False), lambda n: (words(n),)


@model("linformer")
def linformer():
    from linformer import LinformerLM

    return LinformerLM(num_tokens=WORDS, dim=16, seq_len=12, depth=1, heads=2, k=4), lambda n: (words(n),)


@model("reformer-pytorch")
def reformer():
    from reformer_pytorch import ReformerLM

    sizes = {"dim": 16, "depth": 1, "heads": 2, "bucket_size": 4, "n_hashes": 2, "ff_chunks": 1}
    return ReformerLM(num_tokens=WORDS, max_seq_len=16, **sizes), lambda n: (words(n, 16),)


@model("local-attention")
def local_attention():
    from local_attention import LocalTransformer

    sizes = {"dim": 16, "depth": 1, "heads": 2, "dim_head": 8, "local_attn_window_size": 4}
    return LocalTransformer(num_tokens=WORDS, max_seq_len=12, **sizes, causal=True), lambda n: (words(n),)


@model("nystrom-attention")
def nystroem():
    from nystrom_attention import Nystromformer

    made = Nystromformer(dim=16, depth=1, heads=2, dim_head=8, num_landmarks=4, pinv_iterations=2)
    return made, lambda n: (noise(n, 12, 16),)


@model("conformer")
def conformer():
    from conformer import ConformerBlock

    return ConformerBlock(dim=16, dim_head=8, heads=2, ff_mult=2, conv_kernel_size=5), lambda n: (noise(n, 10, 16),)


@model("st-moe-pytorch")
def sparse_mixture_of_experts():
    from st_moe_pytorch import MoE, SparseMoEBlock

    made = SparseMoEBlock(MoE(dim=16, num_experts=4, gating_top_n=2), add_ff_before=True, add_ff_after=True)
    return made, lambda n: (noise(n, 8, 16),)


@model("mambapy")
def selective_state_space():
    from mambapy.mamba import Mamba, MambaConfig

    return Mamba(MambaConfig(d_model=16, n_layers=1, d_state=4)), lambda n: (noise(n, 8, 16),)


@model("iTransformer")
def inverted_transformer():
    from iTransformer import iTransformer

    sizes = {"num_variates": 5, "lookback_len": 12, "dim": 16, "depth": 1, "heads": 2, "dim_head": 8}
    made = iTransformer(**sizes, pred_length=(2, 4), use_reversible_instance_norm=True)
    return made, lambda n: (noise(n, 12, 5),)


@model("gateloop-transformer")
def gated_loop():
    from gateloop_transformer import Transformer

    return Transformer(num_tokens=WORDS, dim=16, depth=1, use_gate_looped_attn=True), lambda n: (words(n, 8),)


@model("pytorch-crf")
def tagger():
    from torchcrf import CRF

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.head, self.chain = nn.Embedding(WORDS, 8), nn.Linear(8, 4), CRF(4, batch_first=True)

        def forward(self, read, tags, mask):
            return -self.chain(self.head(self.words(read)), tags, mask, reduction="mean")

    return Tagger(), lambda n: (words(n, 6), words(n, 6) % 4, torch.arange(6).expand(n, 6) < 5)
