"""The operators by which torch keeps side effects in order; see `ir/effects.py`."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx as fx
from torch._higher_order_ops import effects

from aotviz.torch_private import versions

WITH_EFFECTS = torch.ops.higher_order.with_effects
MAKE_TOKEN = torch.ops.prims._make_token.default
SINK_TOKENS = torch.ops.prims._sink_tokens.default
if not versions.has("a failing linear algebra is an effect"):
    fx.node.has_side_effect(torch.ops.aten._linalg_check_errors.default)  # its only effect is to raise


def kind_of(call: fx.Node) -> Any:
    """The kind of the side effect that a call of `WITH_EFFECTS` has."""
    earlier = getattr(effects, "get_effect_key", None)
    if earlier is not None:
        return earlier(call.args[1], call.args[2:], call.kwargs)
    return effects._get_effect(call.args[1])
