"""torch's own AOTAutograd, for comparison.

aotviz replaces this system and does not use it. Only `aotviz.verify` reaches it, through here: the imports are inside
the function, so that compiling never loads it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def aot(fn: Any, **settings: Any) -> Callable[..., Any]:
    """torch's `aot_module` of a module, its `aot_function` of anything else."""
    from torch._functorch.aot_autograd import aot_function, aot_module

    door: Any = aot_module if isinstance(fn, torch.nn.Module) else aot_function
    return door(fn, **settings)
