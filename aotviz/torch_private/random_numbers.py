"""Random generators, and torch's decomposition of random operators to functions of a seed and an offset."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

import torch
from torch._decomp import decompositions_for_rng
from torch._decomp.decompositions_for_rng import PhiloxStateTracker
from torch._prims.rng_prims import run_and_save_rng_state as run_and_save_rng_state
from torch._prims.rng_prims import run_with_rng_state as run_with_rng_state
from torch._prims_common import CUDARngStateHelper

rng_decompositions: dict[Any, Any] = decompositions_for_rng.rng_decompositions
"""A function of seed and offset for each random operator."""

identity: Callable[[torch.Generator], int] = attrgetter("_cdata")
"""Equal for two Python objects that wrap the same generator."""

state = CUDARngStateHelper.get_torch_state_as_tuple
"""Returns the current seed and offset of the GPU's generator."""

set_offset = CUDARngStateHelper.set_new_offset
"""Called with a tensor: advances the GPU's generator after a graph has drawn from it."""


@contextlib.contextmanager
def counting(seed: Any, offset: Any) -> Iterator[Callable[[], Any]]:
    """Let `rng_decompositions` draw from `seed` and `offset`. Yields a function that returns the offset after that."""
    with PhiloxStateTracker():
        PhiloxStateTracker.record_state(seed, offset, "forward")
        yield PhiloxStateTracker.get_updated_fwd_offset
