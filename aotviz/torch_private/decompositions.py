"""torch's decompositions, and the operators that only these and their kin name."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._C import DispatchKey
from torch._decomp import decompositions
from torch._decomp.decompositions import (
    Reduction,
    dropout,
    multi_margin_loss,
    one_layer_lstm,
    upsample_bicubic2d_default,
    upsample_bicubic2d_vec,
    upsample_bilinear2d,
    upsample_compute_output_size,
)

__all__ = [
    "Reduction",
    "dropout",
    "multi_margin_loss",
    "one_layer_lstm",
    "upsample_bicubic2d_default",
    "upsample_bicubic2d_vec",
    "upsample_bilinear2d",
    "upsample_compute_output_size",
]

upsample_linear_vec = decompositions._upsample_linear_vec
recurrent_layers = decompositions._rnn_helper
select_one_layer_lstm = decompositions.select_one_layer_lstm_function

BATCH_NORM = torch.ops.aten._native_batch_norm_legit
BATCH_NORM_FUNCTIONAL = torch.ops.aten._native_batch_norm_legit_functional.default
BATCH_NORM_NO_TRAINING = torch.ops.aten._native_batch_norm_legit_no_training.default
LOG_SOFTMAX_BACKWARD = torch.ops.aten._log_softmax_backward_data.default

# Under the Python dispatcher these run in place of an operator's C++ code, and take a view of their result where that
# code says `_unsafe_view` or `squeeze_`: what eager returns is a view of nothing.
UNSAFE_VIEWS = {inspect.unwrap(decompositions.matmul).__code__: ("aten::view", "aten::squeeze")}

_PLACES = (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)


def is_torchs(found: Any) -> bool:
    """Whether a decomposition is one of torch's own."""
    return getattr(found, "__module__", "") == decompositions.__name__


def below_autograd() -> Any:
    """A context in which an operator's own code runs, and not what autograd or Python put in its place."""
    return torch._C._AutoDispatchBelowAutograd()


@contextlib.contextmanager
def traced_as(others: dict[Any, Callable[..., Any]]) -> Iterator[None]:
    """Where the Python dispatcher has code of torch's for one of these operators, it runs this code instead."""
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


@contextlib.contextmanager
def layers_run_by(run: Callable[..., Any]) -> Iterator[None]:
    """Inside, `run` is called in the place of `recurrent_layers`."""
    decompositions._rnn_helper = run
    try:
        yield
    finally:
        decompositions._rnn_helper = recurrent_layers


@contextlib.contextmanager
def lstm_chosen_by(choose: Callable[..., Any]) -> Iterator[None]:
    """Inside, `choose` is called in the place of `select_one_layer_lstm`."""
    decompositions.select_one_layer_lstm_function = choose
    try:
        yield
    finally:
        decompositions.select_one_layer_lstm_function = select_one_layer_lstm
