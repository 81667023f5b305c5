"""The functions that `torch.utils.checkpoint` and Dynamo call for a checkpointed region, and how to replace them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from torch._higher_order_ops import wrap
from torch.utils import checkpoint

from aotviz.torch_private.tracers import swapped

generator = checkpoint._checkpoint_without_reentrant_generator
by_tuples: Callable[..., Any] | None = getattr(checkpoint, "_checkpoint_without_reentrant_generator_impl", None)
"""The function that newer releases call instead; None in older ones."""
of_dynamo: Callable[..., Any] = wrap.tag_activation_checkpoint_impl
_tags_by_itself = hasattr(wrap.TagActivationCheckpoint, "tag_nodes")  # newer releases call `torch.utils.checkpoint`


@contextlib.contextmanager
def replaced(
    by_generator: Callable[..., Any], by_tuples_: Callable[..., Any], reentrant: Any, by_dynamo: Callable[..., Any]
) -> Iterator[None]:
    """Inside this context, a region calls these functions: instead of `generator`, of `by_tuples`, of
    `CheckpointFunction`, and of `of_dynamo` if Dynamo does not call one of the others."""
    ours = {"_checkpoint_without_reentrant_generator": by_generator, "CheckpointFunction": reentrant}
    if by_tuples is not None:
        ours["_checkpoint_without_reentrant_generator_impl"] = by_tuples_
    dynamos = by_dynamo if _tags_by_itself else of_dynamo
    with swapped(checkpoint, **ours), swapped(wrap, tag_activation_checkpoint_impl=dynamos):
        yield


region_number: Callable[[], int] = wrap.uid.__next__
"""Returns a new number for a region. Partitioners read from a node which region it belongs to."""
