"""torch's pass that computes with tensors instead of symbolic floats; see `stages/scalars.py`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch
import torch.fx as fx
from torch._dynamo.exc import TensorifyScalarRestartAnalysis as TensorifyScalarRestartAnalysis
from torch._dynamo.symbolic_convert import TensorifyState
from torch.fx.passes._tensorify_python_scalars import tensorify_python_scalars as tensorify_python_scalars

READ = torch.ops.aten._local_scalar_dense.default
"""The operator that reads the value of a tensor."""


forget_what_to_fix: Callable[[], None] = TensorifyState.clear
"""Forgets the floats that the pass wants fixed, when Dynamo does not trace the function again."""


@contextlib.contextmanager
def told_of_new_nodes(module: fx.GraphModule, created: Callable[[fx.Node], None]) -> Iterator[None]:
    """Call `created` with each node that is added to the graph."""
    module._register_create_node_hook(created)
    try:
        yield
    finally:
        module._unregister_create_node_hook(created)
