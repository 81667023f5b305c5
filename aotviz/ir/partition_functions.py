"""Partitioners of joint graphs: choosing one, and telling it what to save.

Note [Random nodes run once]
A random node must run once, in the same half of a joint graph as in eager. Drawing a number changes the random state,
so partitioners keep a random node of the forward in the backward too, even if nothing reads it there. They also move a
random node of the backward that depends on no gradient to the forward. In both cases, later random numbers would differ
from eager's.

Note [Common subexpressions]
torch's min-cut partitioner begins with a pass that computes them once. That pass asks Inductor which operators write,
and so imports a hundred modules. This takes a second of the first compilation, which is wasted if the graph does not go
to Inductor. So it gets `share` in place of its own pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx as fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.checkpoint import CheckpointPolicy

from aotviz.ir import graphs
from aotviz.ir.symbolic_sizes import SYMBOLIC
from aotviz.torch_private import operators
from aotviz.torch_private.partitioners import default_partition, min_cut_rematerialization_partition


def region_partitioner(call: fx.Node) -> Callable[..., Any] | None:
    """The partitioner that a region itself requests (`torch.compiler.nested_compile_region(options=...)`)."""
    config = call.meta.get("custom", {}).get("nested_region_config")
    chosen = getattr(config, "partitioner", None)
    if chosen is None or callable(chosen):
        return chosen
    return named(chosen)


def named(partition_fn: str | Callable[..., Any]) -> Callable[..., Any]:
    """The partitioner with this name, or the given function. Raises ValueError, TypeError.

    >>> named("default_partition").__name__
    'default_partition'
    """
    known = {fn.__name__: fn for fn in (default_partition, min_cut_rematerialization_partition)}
    if isinstance(partition_fn, str):
        if partition_fn not in known:
            raise ValueError(f"there is no partitioner {partition_fn!r}; there are {', '.join(known)}")
        return known[partition_fn]
    if not callable(partition_fn):
        raise TypeError(f"partition_fn must be callable or a name ({', '.join(known)}), and it is {partition_fn!r}")
    return partition_fn


def must_save(node: fx.Node) -> None:
    """Forbid every partitioner to recompute `node` in the backward."""
    node.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    node.meta["ac_graph_id"] = 0


def hold_random_in_backward(joint: fx.GraphModule) -> None:
    """Keep random nodes of the backward there; see Note [Random nodes run once]. Edits tags that partitioners use."""
    for node in joint.graph.nodes:
        if operators.is_random(node.target) and node.meta.get("partitioner_tag") == "is_backward":
            node.meta["partitioner_tag"] = "must_be_in_backward"


def drop_repeated_random(backward: fx.GraphModule) -> None:
    """Remove random nodes that the forward has already run and whose results are not read here. Edits `backward`."""
    random = [node for node in backward.graph.nodes if operators.is_random(node.target)]
    drawn = [node for node in random if not str(node.meta.get("partitioner_tag")).endswith("backward")]
    gone: set[fx.Node] = set()
    for node in drawn:
        if node not in gone and all(not user.users for user in node.users):
            for one in [*node.users, node]:
                backward.graph.erase_node(one)
                gone.add(one)
    if gone:
        backward.graph.eliminate_dead_code()
        backward.recompile()


def share(graph: fx.Graph) -> int:
    """Merge equal calls of an operator, in place; see Note [Common subexpressions]. Returns how many were removed.

    These are not merged: side effects, random numbers, uninitialized memory, values in the memory of an output (two
    outputs stay two tensors), calls with a write between them, operators that run graphs, and numbers that are read
    from a tensor.

    >>> import torch
    >>> module = torch.fx.symbolic_trace(lambda x: x.sin() + x.sin())
    >>> share(module.graph)  # methods of tensors, as this tracer records them, are no operators
    0
    """
    returned = {_storage(node) for node in graphs.output_node(graph).all_input_nodes} - {None}
    seen: dict[Any, fx.Node] = {}
    writes = before = len(graph.nodes)
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        writes += operators.writes(node.target)
        if _is_its_own(node) or _storage(node) in returned:
            continue
        key = (writes, node.target, _key(node.args), _key(node.kwargs))
        first = seen.setdefault(key, node)
        if first is not node:
            node.replace_all_uses_with(first)
            graph.erase_node(node)
    return before - len(graph.nodes)


def _is_its_own(node: fx.Node) -> bool:
    value = node.meta.get("val")
    read_off = isinstance(value, SYMBOLIC) and bool(free_unbacked_symbols(value))
    packet = getattr(node.target, "overloadpacket", None)
    with_graphs = not operators.is_operator(node.target) and any(n.op == "get_attr" for n in node.all_input_nodes)
    drawn = packet is torch.ops.aten.empty or operators.is_random(node.target)
    return read_off or with_graphs or drawn or node.is_impure()


def _storage(node: fx.Node) -> Any:
    """The storage of a node's value, or None."""
    value = node.meta.get("val")
    try:
        return StorageWeakRef(value.untyped_storage()) if isinstance(value, torch.Tensor) else None
    except NotImplementedError:
        return None


def _key(argument: Any) -> Any:
    """A hashable key that is equal for arguments that mean the same. 1 and 1.0 differ, and so do 0.0 and -0.0."""
    if isinstance(argument, (tuple, list)):
        return type(argument), tuple(map(_key, argument))
    if isinstance(argument, dict):
        return tuple((name, _key(value)) for name, value in argument.items())
    if isinstance(argument, slice):
        return slice, _key(argument.start), _key(argument.stop), _key(argument.step)
    if isinstance(argument, float):
        return float, argument.hex()
    if isinstance(argument, SYMBOLIC):
        return type(argument), id(argument.node)
    try:
        hash(argument)
    except TypeError:
        return id(argument)
    return type(argument), argument


def generators_of(graph: fx.Graph) -> list[Callable[[int], Any]]:
    """For each generator that is an input of a partitioned graph, a function that creates one from a seed."""

    def maker(like: Any) -> Callable[[int], Any]:
        return lambda seed: like.clone_state().manual_seed(seed)

    return [maker(node.meta["val"]) for node in graph.nodes if is_generator(node)]


def is_generator(node: fx.Node) -> bool:
    """Whether a node is an input that a partitioner created for a generator."""
    return node.op == "placeholder" and str(node.target).startswith(("fwd_rng_state_", "bwd_rng_state_"))
