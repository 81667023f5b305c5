"""`torch.utils.checkpoint` inside a trace (docs/design/system.md D4).

In eager, a checkpointed region saves only its inputs and runs again in the backward, with the random state of the first
run. A plain trace would record both runs, with different random numbers. In a graph, a region only says which nodes the
partitioner should recompute. So here a region runs once and tags each node, by the user's policy if there is one. What
autograd saves inside has the value of that moment, whatever is written to the tensor later, because the second run
would compute that value.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.fx.traceback as fx_traceback
from torch.autograd.graph import saved_tensors_hooks
from torch.utils import checkpoint
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts, noop_context_fn

from aotviz.torch_private import checkpoints, tracers
from aotviz.torch_private.dispatch import is_tracing
from aotviz.torch_private.tracers import items_kept
from aotviz.tracing import functional

_reentrant = checkpoint.CheckpointFunction
_EMPTY = (torch.ops.aten.empty_like.default, torch.ops.aten.empty.memory_format)

Watch = Callable[[], contextlib.AbstractContextManager[None]]


def tagging_checkpoints(watch: Watch) -> contextlib.AbstractContextManager[None]:
    """Let checkpointed regions tag the nodes that they trace, each within `watch()`. Other threads do not trace, and
    checkpoint as usual."""
    return checkpoints.replaced(
        functools.partial(_tagging_generator, watch),
        functools.partial(_tagging_by_tuples, watch),
        SimpleNamespace(apply=functools.partial(_tagging_reentrantly, watch)),
        functools.partial(_tagged_by_dynamo, watch),
    )


def _tagging_generator(
    watch: Watch,
    fn: Callable[..., Any],
    preserve_rng_state: bool = True,
    context_fn: Callable[[], Any] = noop_context_fn,
    *args: Any,
    **kwargs: Any,
) -> Any:
    if not is_tracing():
        return checkpoints.generator(fn, preserve_rng_state, context_fn, *args, **kwargs)
    return _region(watch, context_fn)


def _tagging_by_tuples(watch: Watch, fn: Callable[..., Any], args: Any, kwargs: Any, **settings: Any) -> Any:
    """The entry point of newer releases."""
    assert checkpoints.by_tuples is not None
    if not is_tracing():
        return checkpoints.by_tuples(fn, args, kwargs, **settings)
    return _region(watch, settings.get("context_fn", noop_context_fn))


def _tagged_by_dynamo(watch: Watch, region: Any, *args: Any, **kwargs: Any) -> Any:
    if not is_tracing() or not torch.is_grad_enabled() or "_checkpoint_context_fn" in region.meta:
        return checkpoints.of_dynamo(region, *args, **kwargs)
    with watch(), saved_tensors_hooks(_pack, _unpack):
        return checkpoints.of_dynamo(region, *args, **kwargs)


def _region(watch: Watch, context_fn: Callable[[], Any] = noop_context_fn) -> Iterator[None]:
    """A generator that surrounds a region: nodes traced between its `yield` and its end are tagged."""
    if not torch.is_grad_enabled():
        yield
        return
    tags_kept = items_kept(fx_traceback.current_meta, "recompute", "ac_graph_id")
    with tags_kept, watch(), saved_tensors_hooks(_pack, _unpack), _tagging_mode(context_fn):
        yield


def _tagging_mode(context_fn: Callable[[], Any]) -> Any:
    if context_fn is noop_context_fn:
        mode, _ = create_selective_checkpoint_contexts(lambda *_args, **_kwargs: CheckpointPolicy.PREFER_RECOMPUTE)
    else:
        mode, _ = context_fn()
    if getattr(mode, "ac_graph_id", 0) is None:
        mode.ac_graph_id = checkpoints.region_number()
    return mode


def _pack(tensor: torch.Tensor) -> tuple[Any, bool]:
    value = functional.inner(tensor)
    if tracers.is_made_by(value, _EMPTY):  # saved for the operator that is about to fill it, as the noise of `rrelu`
        return tensor, False
    return value, functional.is_functional(tensor)


def _unpack(kept: tuple[Any, bool]) -> Any:
    value, is_wrapped = kept
    return functional.wrapped(value) if is_wrapped else value


def _tagging_reentrantly(watch: Watch, function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
    """Replaces the reentrant variant, which calls autograd inside its backward and so cannot be traced."""
    if not is_tracing():
        return _reentrant.apply(function, preserve, *args)
    if not any(isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args):
        with torch.no_grad():  # as in eager, where only arguments can bring gradients into the region
            return function(*args)
    with contextlib.contextmanager(_region)(watch):
        return function(*args)
