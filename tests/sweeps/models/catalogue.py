"""The models of the sweep: random weights, small sizes, and inputs for a batch of any size.

    @model("timm")
    def vision_transformer():
        import timm
        return timm.create_model(...), lambda n: (noise(n, 3, 32, 32),)

The function is called with torch's seed set, and imports its package itself, so that the models of other packages can
be had without it. It returns a module, which is put into training mode, and a function from a batch size to the
arguments of one call: a tuple, or a dict of keyword arguments.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Inputs = Callable[[int], Any]
WORDS = 61


@dataclass(frozen=True)
class Model:
    name: str  # "timm: vision_transformer"
    package: str  # as PyPI knows it
    make: Callable[[], tuple[nn.Module, Inputs]]
    by_inductor: bool  # whether it is compiled by Inductor too
    in_ci: bool  # whether it needs no package but those of requirements.lock, and is among the tests


def declare_torchvisions_operators() -> None:
    """Let torchvision load where its compiled operators don't, being built for CUDA: it asks for two schemas then."""
    if importlib.util.find_spec("torchvision") is None:
        return
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


MODELS: dict[str, Model] = {}


def model(package: str, by_inductor: bool = False, in_ci: bool = False) -> Callable[[Any], Any]:
    def added(make: Callable[[], tuple[nn.Module, Inputs]]) -> Any:
        name = f"{package}: {make.__name__}"
        assert name not in MODELS, name
        MODELS[name] = Model(name, package, make, by_inductor, in_ci)
        return make

    return added


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(shape[0]))


def words(batch: int, length: int = 12, end: int = WORDS) -> torch.Tensor:
    return torch.randint(3, end, (batch, length), generator=torch.Generator().manual_seed(batch))


def images(channels: int = 3, size: int = 32, dimensions: int = 2) -> Inputs:
    return lambda n: (noise(n, channels, *[size] * dimensions),)
