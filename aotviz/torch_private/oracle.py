"""torch's own AOTAutograd, for comparison.

aotviz replaces this system and does not use it. Only `aotviz.verify` reaches it, through here: the imports are inside
the function, so that compiling never loads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch


def aot(
    fn: Any,
    fw_compiler: Callable[..., Any],
    bw_compiler: Callable[..., Any],
    partition_fn: Callable[..., Any],
    decompositions: Mapping[Any, Any] | None,
    dynamic: bool,
) -> Callable[..., Any]:
    """torch's `aot_module` of a module, its `aot_function` of anything else."""
    from torch._functorch.aot_autograd import aot_function, aot_module

    door: Any = aot_module if isinstance(fn, torch.nn.Module) else aot_function
    return door(
        fn,
        fw_compiler=fw_compiler,
        bw_compiler=bw_compiler,
        partition_fn=partition_fn,
        decompositions=decompositions,
        dynamic=dynamic,
    )
