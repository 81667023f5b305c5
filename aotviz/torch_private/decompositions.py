"""torch's decompositions, and operators with private names."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.fx as fx
from torch._C import DispatchKey
from torch._decomp import decompositions
from torch._decomp.decompositions import Reduction as Reduction
from torch._decomp.decompositions import dropout as dropout
from torch._decomp.decompositions import multi_margin_loss as multi_margin_loss
from torch._decomp.decompositions import one_layer_lstm as one_layer_lstm
from torch._decomp.decompositions import upsample_bicubic2d_default as upsample_bicubic2d_default
from torch._decomp.decompositions import upsample_bicubic2d_vec as upsample_bicubic2d_vec
from torch._decomp.decompositions import upsample_bilinear2d as upsample_bilinear2d
from torch._decomp.decompositions import upsample_compute_output_size as upsample_compute_output_size

from aotviz.torch_private.tracers import swapped

upsample_linear_vec = decompositions._upsample_linear_vec
recurrent_layers = decompositions._rnn_helper
select_one_layer_lstm = decompositions.select_one_layer_lstm_function

BATCH_NORM = torch.ops.aten._native_batch_norm_legit
BATCH_NORM_FUNCTIONAL = torch.ops.aten._native_batch_norm_legit_functional.default
BATCH_NORM_NO_TRAINING = torch.ops.aten._native_batch_norm_legit_no_training.default
LOG_SOFTMAX_BACKWARD = torch.ops.aten._log_softmax_backward_data.default

# Under the Python dispatcher these replace an operator's C++ code, and return a view where that code calls
# `_unsafe_view` or `squeeze_`: eager's result is not a view.
UNSAFE_VIEWS = {inspect.unwrap(decompositions.matmul).__code__: ("aten::view", "aten::squeeze")}

below_autograd = torch._C._AutoDispatchBelowAutograd
"""Makes a context in which an operator's own code runs, not what autograd or Python replaced it by."""

_PLACES = (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)


def is_torchs(found: Any) -> bool:
    """Whether a decomposition is one of torch's own."""
    return getattr(found, "__module__", "") == decompositions.__name__


def scale_first(graph: fx.Graph) -> None:
    """Write `x.add(y, alpha=a)` as `x.add(y * a)`, in place: before torch 2.15, where `y` is a matrix product, Inductor
    fuses the two without `a`. Integers, whose type the product could change, stay as they are."""
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.add.Tensor):
        alpha, scaled = node.kwargs.get("alpha", 1), node.args[1]
        value = scaled.meta.get("val") if isinstance(scaled, fx.Node) else None
        if alpha != 1 and isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex()):
            with graph.inserting_before(node):
                product = graph.call_function(torch.ops.aten.mul.Tensor, (scaled, alpha))
            product.meta = {**node.meta, "val": value}
            node.args, node.kwargs = (node.args[0], product), {}


@contextlib.contextmanager
def traced_as(others: dict[Any, Callable[..., Any]]) -> Iterator[None]:
    """Replace torch's Python dispatcher code for these operators."""
    before = [(op, key, op.py_kernels[key]) for op in others for key in _PLACES if key in op.py_kernels]
    for op, key, _ in before:
        op.py_kernels[key] = others[op]
        op._dispatch_cache.clear()
    try:
        yield
    finally:
        for op, key, kernel in before:
            op.py_kernels[key] = kernel
            op._dispatch_cache.clear()


def layers_run_by(run: Callable[..., Any]) -> contextlib.AbstractContextManager[None]:
    """Call `run` instead of `recurrent_layers`."""
    return swapped(decompositions, _rnn_helper=run)


def lstm_chosen_by(choose: Callable[..., Any]) -> contextlib.AbstractContextManager[None]:
    """Call `choose` instead of `select_one_layer_lstm`."""
    return swapped(decompositions, select_one_layer_lstm_function=choose)
