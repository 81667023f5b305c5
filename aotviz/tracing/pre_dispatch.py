"""A graph captured above autograd and autocast, for `torch.export`: `linear` stays `linear`, and changes of grad mode
and autocast are nodes.

Only modes in front of torch's dispatcher see such operators. The open trace of this pipeline is behind it, so the
function runs once more, under `make_fx`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx as fx
from torch.fx.experimental.proxy_tensor import make_fx

from aotviz.ir import effects
from aotviz.torch_private import functional_tensors, pytree
from aotviz.torch_private.dispatch import enable_python_dispatcher
from aotviz.torch_private.fake_tensors import detect_fake_mode
from aotviz.torch_private.functional_tensors import FunctionalTensorMode
from aotviz.tracing.functional import inner, wrapped


def trace(
    function: Callable[..., Any],
    args: Sequence[Any],
    written: Sequence[int],
    kinds: Sequence[Any],
    decompositions: Mapping[Any, Any] | None,
) -> fx.GraphModule:
    """Trace `function(*args)` functionally. The graph returns the new values of the inputs `written`, then the flat
    results.

    Args:
        args: fakes and plain values, one per graph input.
        kinds: the kinds of side effects that the function has.
    """
    mode = FunctionalTensorMode(pre_dispatch=True, export=True, _allow_token_discovery=True)

    def functional(*inputs: Any) -> tuple[Any, ...]:
        given = [wrapped(value) if isinstance(value, torch.Tensor) else value for value in inputs]
        functional_tensors.tokens(mode).update(zip(kinds, given, strict=False))
        given = given[len(kinds) :]
        results = pytree.tree_flatten(function(*given))[0]
        tokens = (functional_tensors.tokens(mode)[kind] for kind in kinds)
        return tuple(inner(value) for value in (*tokens, *(given[i] for i in written), *results))

    with detect_fake_mode(list(args)) or contextlib.nullcontext():
        tokens = [torch.empty(0) for _ in kinds]
    with enable_python_dispatcher(), mode:
        make = make_fx(functional, dict(decompositions or {}), record_module_stack=True, pre_dispatch=True)
        module: fx.GraphModule = make(*tokens, *args)
    effects.close_around(module, len(kinds))
    return module
