"""torch's partitioners, which are dependencies of this package and used as they are.

Note [Random states by value]
For a random node that the backward recomputes, a partitioner can save the random state as a tensor, or on a GPU let
forward and backward use separate generators that the wrapper keeps in step (`runtime/generators.py`). Only the first
draws eager's numbers, on every device. The second is what CUDA graphs can replay, and is used if they are enabled.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.fx as fx
from torch._functorch import config
from torch._functorch._activation_checkpointing import remat_using_tags_for_fwd_loss_bwd_graph_pass as rematerialization
from torch._functorch.partitioners import default_partition as default_partition
from torch._functorch.partitioners import functionalize_rng_ops as functionalize_rng_ops
from torch._functorch.partitioners import min_cut_rematerialization_partition as min_cut_rematerialization_partition
from torch._functorch.partitioners import must_recompute as must_recompute
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.utils.checkpoint import CheckpointPolicy

from aotviz.torch_private import script_objects
from aotviz.torch_private.tracers import swapped

remat_using_tags_for_fwd_loss_bwd_graph = rematerialization.remat_using_tags_for_fwd_loss_bwd_graph


@contextlib.contextmanager
def memory_budget(share: float) -> Iterator[None]:
    """Let the min-cut partitioner keep this share of the bytes that it would keep: 1 is all, 0 recomputes all it can.

    Raises ValueError for a share that is not between 0 and 1.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"a memory budget is a number between 0 and 1, not {share!r}")
    with config.patch(activation_memory_budget=float(share)):
        yield


def offloading(wanted: bool) -> contextlib.AbstractContextManager[Any]:
    """Let a partitioner move the saved values whose node has `should_offload` to the CPU, and back."""
    return config.patch(enable_activation_offloading=True) if wanted else contextlib.nullcontext()


def is_offloaded(node: fx.Node) -> bool:
    """Whether a saved value is the copy on the CPU that a partitioner made of another one under `offloading`."""
    is_copy = node.target is torch.ops.prims.device_put.default
    return is_copy and any(one.meta.get("saved_for_offloading") for one in node.all_input_nodes)


def saves_memory() -> bool:
    """Whether a memory budget asks the min-cut partitioner to keep less than it would."""
    return bool(config.activation_memory_budget < 1)


LEAST_BUDGET = 1e-9


def saving_what_must_be(graph: fx.Graph) -> contextlib.AbstractContextManager[Any]:
    """At a memory budget of 0, torch's min-cut partitioner saves inputs only, also where a node must be saved. With the
    least budget above that, it saves those nodes, and nothing more."""
    must = any(node.meta.get("recompute") == CheckpointPolicy.MUST_SAVE for node in graph.nodes)
    budget = LEAST_BUDGET if must and not config.activation_memory_budget else config.activation_memory_budget
    return config.patch(activation_memory_budget=budget)


def sharing(
    partition_fn: Callable[..., Any], share: Callable[[fx.Graph], Any], graph: fx.Graph
) -> contextlib.AbstractContextManager[Any]:
    """Replace the elimination of common subexpressions, with which torch's min-cut partitioner begins, by `share`.

    A partitioner that hands on to another one names that as `otherwise`.
    """
    last = getattr(partition_fn, "otherwise", partition_fn)
    if last not in ("min-cut", min_cut_rematerialization_partition) or not config.cse:
        return contextlib.nullcontext()
    graph.eliminate_dead_code()
    share(graph)
    return config.patch(cse=False)


def _objects_hold_nothing(graph: fx.Graph) -> dict[str, Any]:
    """The setting by which a partitioner counts objects as 0 bytes, if none of the graph is torchbind's. Without it the
    partitioner raises, because such an object may hold tensors; a mesh of devices holds none."""
    values = (node.meta.get("val") for node in graph.nodes)
    objects = [script_objects.real(value) for value in values if script_objects.is_stand_in(value)]
    if objects and not any(isinstance(one, torch.ScriptObject) for one in objects):
        return {name: True for name in ("unsafe_treat_script_objects_as_zero_size",) if hasattr(config, name)}
    return {}


@contextlib.contextmanager
def partitioning(graph: fx.Graph, fake_mode: FakeTensorMode, graphsafe_rng: bool = False) -> Iterator[None]:
    """The global state for partitioners and joint passes. Graph modules that they make generate their code when first
    run. A tensor that they make fake, such as the state of a generator, has sizes that are numbers."""
    with (
        torch.no_grad(),
        torch._C._DisableAutocast(),
        fake_mode,
        swapped(fake_mode, static_shapes=True),
        _use_lazy_graph_module(True),
        config.patch(_objects_hold_nothing(graph)),
        config.patch(graphsafe_rng_functionalization=graphsafe_rng),  # see Note [Random states by value]
    ):
        yield
