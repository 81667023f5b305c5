"""Models as people train them, small enough for one core: shapes in proportion, weights random, nothing downloaded.

`MODELS[name](layers)` makes a module and the keyword arguments of one call. The module returns a tuple whose first
member is the loss. GPT-2 and Llama are those of transformers and return their logits beside the loss, as a
Trainer has them. The residual network and the U-Net are written here in plain torch, in the shape of torchvision's and
diffusers': batch norm that updates its statistics, skip connections, attention over pixels.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

Made = tuple[nn.Module, dict[str, Any]]
BATCH, LENGTH, WORDS = 2, 64, 1024  # sequences, tokens of each, different tokens


class LanguageModel(nn.Module):
    """Loss and logits of a causal language model of transformers."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        result = self.model(input_ids=tokens, labels=tokens)
        return result.loss, result.logits


def gpt2(layers: int = 4) -> Made:
    """With dropout, as GPT-2's configuration has it."""
    from transformers import GPT2Config, GPT2LMHeadModel  # seconds, which only this benchmark pays

    config = GPT2Config(
        n_layer=layers, n_head=6, n_embd=192, n_positions=LENGTH, vocab_size=WORDS, bos_token_id=0, eos_token_id=0
    )
    config.use_cache = False
    return LanguageModel(GPT2LMHeadModel(config)).train(), {"tokens": torch.randint(0, WORDS, (BATCH, LENGTH))}


def llama(layers: int = 4) -> Made:
    """Two query heads share a key head, as in Llama 3."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        num_hidden_layers=layers,
        num_attention_heads=6,
        num_key_value_heads=3,
        hidden_size=192,
        intermediate_size=512,
        max_position_embeddings=LENGTH,
        vocab_size=WORDS,
    )
    config.use_cache = False
    return LanguageModel(LlamaForCausalLM(config)).train(), {"tokens": torch.randint(0, WORDS, (BATCH, LENGTH))}


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(out)
        self.second = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(out)
        self.around: nn.Module = nn.Identity()
        if stride != 1 or channels != out:
            self.around = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = functional.relu(self.first_norm(self.first(x)), inplace=True)
        return functional.relu(self.second_norm(self.second(found)) + self.around(x), inplace=True)


class ResNet(nn.Module):
    """ResNet-18's blocks at a third of its width, for small pictures. Loss and class scores."""

    def __init__(self, blocks: int, width: int = 24, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        )
        sizes = [width, width, 2 * width, 4 * width, 8 * width]
        layers = [
            Block(before if first else after, after, 2 if first and after != width else 1)
            for before, after in pairwise(sizes)
            for first in (True, *[False] * (blocks - 1))
        ]
        self.blocks = nn.Sequential(*layers)
        self.head = nn.Linear(sizes[-1], classes)

    def forward(self, pictures: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = functional.adaptive_avg_pool2d(self.blocks(self.stem(pictures)), 1).flatten(1)
        scores = self.head(features)
        return functional.cross_entropy(scores, labels), scores


def resnet(layers: int = 2) -> Made:
    batch = {"pictures": torch.randn(4, 3, 32, 32), "labels": torch.randint(0, 10, (4,))}
    return ResNet(layers).train(), batch


class TimedBlock(nn.Module):
    """A residual block of a diffusion model: it is told the moment of the diffusion."""

    def __init__(self, channels: int, out: int, moment: int) -> None:
        super().__init__()
        self.first_norm, self.first = nn.GroupNorm(8, channels), nn.Conv2d(channels, out, 3, 1, 1)
        self.moment = nn.Linear(moment, out)
        self.second_norm, self.second = nn.GroupNorm(8, out), nn.Conv2d(out, out, 3, 1, 1)
        self.around = nn.Conv2d(channels, out, 1) if channels != out else nn.Identity()

    def forward(self, x: torch.Tensor, moment: torch.Tensor) -> torch.Tensor:
        found = self.first(functional.silu(self.first_norm(x)))
        found = found + self.moment(functional.silu(moment))[:, :, None, None]
        return self.second(functional.silu(self.second_norm(found))) + self.around(x)


class Attention(nn.Module):
    """Each pixel looks at all others."""

    def __init__(self, channels: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.mixed = nn.GroupNorm(8, channels), nn.Linear(channels, 3 * channels)
        self.out = nn.Linear(channels, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, channels, height, width = x.shape
        pixels = self.norm(x).flatten(2).transpose(1, 2)
        parts = self.mixed(pixels).view(batch, height * width, 3, self.heads, channels // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        found = functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        return x + self.out(found).transpose(1, 2).reshape(batch, channels, height, width)


class UNet(nn.Module):
    """The noise in a picture at a moment of the diffusion: down, across with attention, and up with skip connections.

    `pictures: f32[batch, 3, side, side]`, `moments: i64[batch]`. Returns the loss alone.
    """

    def __init__(self, blocks: int, width: int = 32, levels: int = 3) -> None:
        super().__init__()
        self.width, moment = width, 4 * width
        self.moment = nn.Sequential(nn.Linear(width, moment), nn.SiLU(), nn.Linear(moment, moment))
        self.stem = nn.Conv2d(3, width, 3, 1, 1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        skips, channels = [width], width
        for level in range(levels):
            for _ in range(blocks):
                self.down.append(TimedBlock(channels, width * 2**level, moment))
                channels = width * 2**level
                skips.append(channels)
            if level < levels - 1:
                self.down.append(nn.Conv2d(channels, channels, 3, 2, 1))
                skips.append(channels)
        self.across = nn.ModuleList([TimedBlock(channels, channels, moment), TimedBlock(channels, channels, moment)])
        self.attention = Attention(channels)
        for level in reversed(range(levels)):
            for _ in range(blocks + 1):
                self.up.append(TimedBlock(channels + skips.pop(), width * 2**level, moment))
                channels = width * 2**level
            if level:
                self.up.append(nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(channels, channels, 3, 1, 1)))
        self.head = nn.Sequential(nn.GroupNorm(8, channels), nn.SiLU(), nn.Conv2d(channels, 3, 3, 1, 1))

    def waves(self, moments: torch.Tensor) -> torch.Tensor:
        half = self.width // 2
        rates = torch.exp(-math.log(10_000) / half * torch.arange(half, device=moments.device))
        angles = moments[:, None].float() * rates
        return torch.cat([angles.sin(), angles.cos()], dim=1)

    def forward(self, pictures: torch.Tensor, moments: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, ...]:
        kept = (torch.cos(moments.float() / 1000 * math.pi / 2) ** 2)[:, None, None, None]
        x = self.stem(kept.sqrt() * pictures + (1 - kept).sqrt() * noise)
        moment, skips = self.moment(self.waves(moments)), [x]
        for layer in self.down:
            x = layer(x, moment) if isinstance(layer, TimedBlock) else layer(x)
            skips.append(x)
        x = self.across[1](self.attention(self.across[0](x, moment)), moment)
        for layer in self.up:
            x = layer(torch.cat([x, skips.pop()], 1), moment) if isinstance(layer, TimedBlock) else layer(x)
        return (functional.mse_loss(self.head(x), noise),)


def unet(layers: int = 1) -> Made:
    pictures, noise = torch.randn(2, 3, 16, 16), torch.randn(2, 3, 16, 16)
    return UNet(layers).train(), {"pictures": pictures, "moments": torch.randint(0, 1000, (2,)), "noise": noise}


MODELS: dict[str, Callable[..., Made]] = {"GPT-2": gpt2, "Llama": llama, "ResNet": resnet, "diffusion U-Net": unet}
