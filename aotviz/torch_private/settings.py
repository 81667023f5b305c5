"""torch's own settings of AOTAutograd that aotviz takes over as options. They are read when options are made."""

from __future__ import annotations

from typing import Any

from torch._functorch import config
from torch._inductor import config as inductor_config


def current() -> dict[str, Any]:
    """Fields of `Options`, by torch's settings."""
    return {
        "functionalize_rng_ops": bool(config.functionalize_rng_ops),
        "selective_decompose": bool(config.selective_decompose or inductor_config.selective_decompose),
        "remat_using_tags": bool(config.remat_using_tags_for_fwd_loss_bwd_graph),
    }


def graphsafe_rng() -> bool:
    """Whether CUDA graphs are asked for, and generators that they can replay."""
    graphs = inductor_config.triton.cudagraphs and not inductor_config.fallback_random
    return bool(config.graphsafe_rng_functionalization and graphs)
