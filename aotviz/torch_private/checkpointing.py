"""`torch.utils.checkpoint` inside a trace (SYSTEM.md D4).

In eager, a checkpointed region saves its inputs alone and runs again in the backward, under the random state of the
first run. Traced as it is, the second run would be traced too, as other nodes, with other random numbers. What a
region means to a graph is which of its nodes to compute again; a partitioner sees to that. So in a trace the first
run tags each node, by the user's policy if there is one, and the second takes what the first one made.
"""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.fx.traceback as fx_traceback
from torch._higher_order_ops.wrap import uid
from torch.utils import checkpoint
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts, noop_context_fn

_TAGS = ("recompute", "ac_graph_id")
_generator = checkpoint._checkpoint_without_reentrant_generator
_by_tuples: Callable[..., Any] | None = getattr(checkpoint, "_checkpoint_without_reentrant_generator_impl", None)
_reentrant = checkpoint.CheckpointFunction


@contextlib.contextmanager
def tagging_checkpoints() -> Iterator[None]:
    """Let checkpointed regions tag what is traced inside. Other threads, which don't trace, checkpoint as ever."""
    ours: dict[str, Any] = {
        "_checkpoint_without_reentrant_generator": _tagging_generator,
        "CheckpointFunction": _TaggingFunction,
    }
    if _by_tuples is not None:
        ours["_checkpoint_without_reentrant_generator_impl"] = _tagging_by_tuples
    before = {name: getattr(checkpoint, name) for name in ours}
    vars(checkpoint).update(ours)
    try:
        yield
    finally:
        vars(checkpoint).update(before)


def _traces() -> bool:
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FUNCTIONAL) is not None


def _tagging_generator(
    fn: Callable[..., Any],
    preserve_rng_state: bool = True,
    context_fn: Callable[[], Any] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    *args: Any,
    **kwargs: Any,
) -> Any:
    if not _traces():
        return _generator(fn, preserve_rng_state, context_fn, determinism_check, debug, early_stop, *args, **kwargs)
    contexts = functools.partial(_tagging_contexts, context_fn)
    return _untagging(_generator(fn, False, contexts, determinism_check, False, False, *args, **kwargs))


def _tagging_by_tuples(fn: Callable[..., Any], args: Any, kwargs: Any, **settings: Any) -> Any:
    """What newer releases call."""
    assert _by_tuples is not None
    if not _traces():
        return _by_tuples(fn, args, kwargs, **settings)
    contexts = functools.partial(_tagging_contexts, settings.get("context_fn", noop_context_fn))
    ours = {"preserve_rng_state": False, "context_fn": contexts, "debug": False, "early_stop": False}
    return _untagging(_by_tuples(fn, args, kwargs, **{**settings, **ours}))


def _untagging(region: Iterator[Any]) -> Iterator[Any]:
    """`region`, behind whose end nodes are tagged as they were before it."""
    meta = fx_traceback.current_meta
    before = {name: meta[name] for name in _TAGS if name in meta}
    try:
        yield from region
    finally:
        for name in _TAGS:
            meta.pop(name, None)
        meta.update(before)


def _tagging_contexts(context_fn: Callable[[], Any]) -> Any:
    if context_fn is noop_context_fn:
        first, again = create_selective_checkpoint_contexts(_recompute_everything)
    else:
        first, again = context_fn()
    if getattr(first, "ac_graph_id", 0) is None:
        first.ac_graph_id = next(uid)  # partitioners ask which region a node is of
    if type(again) is checkpoint._CachedTorchDispatchMode:
        again.__class__ = _Replaying
    return first, again


class _Replaying(checkpoint._CachedTorchDispatchMode):
    """Gives what the first run made as often as it is asked: gradients of gradients ask again."""

    def __enter__(self) -> Any:
        if not hasattr(self, "whole"):
            self.whole = {key: copy.copy(entries) for key, entries in self.storage.items()}
        self.storage.update({key: copy.copy(entries) for key, entries in self.whole.items()})
        return super().__enter__()


def _recompute_everything(*_args: Any, **_kwargs: Any) -> CheckpointPolicy:
    return CheckpointPolicy.PREFER_RECOMPUTE


class _TaggingFunction:
    """Stands in for the reentrant variant, which differentiates inside its backward and so can't be traced itself."""

    @staticmethod
    def apply(function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
        if not _traces():
            return _reentrant.apply(function, preserve, *args)
        if not any(isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args):
            with torch.no_grad():  # as in eager, where only arguments can bring gradients into the region
                return function(*args)
        region = _tagging_generator(function, preserve, noop_context_fn, "default", False, False, *args)
        next(region)
        result = function(*args)
        with contextlib.suppress(StopIteration):
            next(region)
        return result
