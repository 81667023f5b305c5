"""Generators of random numbers, and torch's way to make what draws from one a function of a seed and an offset."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._decomp.decompositions_for_rng import PhiloxStateTracker, rng_decompositions
from torch._prims.rng_prims import run_and_save_rng_state
from torch._prims_common import CUDARngStateHelper

__all__ = ["rng_decompositions", "run_and_save_rng_state"]


def identity(generator: torch.Generator) -> int:
    """The same for two Python objects that are one generator, as an operator and its caller may have them."""
    return int(generator._cdata)


def state() -> tuple[torch.Tensor, torch.Tensor]:
    """The seed and offset of the GPU's generator at this moment."""
    seed, offset = CUDARngStateHelper.get_torch_state_as_tuple()
    return seed, offset


def set_offset(offset: torch.Tensor) -> None:
    """Let the GPU's generator go on behind what a graph has drawn."""
    CUDARngStateHelper.set_new_offset(offset)


@contextlib.contextmanager
def counting(seed: Any, offset: Any) -> Iterator[Callable[[], Any]]:
    """What `rng_decompositions` trace inside draws from these; what is yielded gives the offset behind all of that."""
    with PhiloxStateTracker():
        PhiloxStateTracker.record_state(seed, offset, "forward")
        yield PhiloxStateTracker.get_updated_fwd_offset
