"""Partitioners of joint graphs: choosing one, and telling it what to save.

Note [Random nodes run once]
A random node must run once, in the same half of a joint graph as in eager. Drawing a number changes the random state,
so partitioners keep a random node of the forward in the backward too, even if nothing reads it there. They also move a
random node of the backward that depends on no gradient to the forward. In both cases, later random numbers would differ
from eager's.

With a memory budget, torch's min-cut partitioner recomputes random nodes of the forward, as other partitioners may.
They would draw other numbers, and the gradient would belong to another result. So the forward saves the random state
before each such node, as it does for those that a checkpoint's policy recomputes, and the backward draws from that
state. The state of a generator that the user passes is not saved, nor are the states inside of an operator that runs
graphs, nor that of Inductor's seeds; there the results are.

Note [Effects run once]
An operator that only has an effect, such as the record of an event on a stream, has no input that says which half it
is in: partitioners put it into both. So it gets the tag of its half. The min-cut partitioner leaves out those of the
backward that come before the first use of a tangent. They are put back, before what follows them in the joint graph.

Note [Recomputing from an input]
The min-cut partitioner may save an input or a result, and recompute from it what eager saves. But the caller may write
that tensor before the backward, which eager allows: then the backward could not run. So where a write is likely, what
is computed first from it is saved in its place, unless the backward itself reads it, or it is a parameter: of an input
that the function returns, or that overlaps one; if the code after a graph break writes in place; and under a memory
budget, which recomputes from more. Elsewhere, that would only cost memory.

A graph that runs operator by operator saves no time by recomputing. So there this is done for all results, too; for all
inputs of a program that computes gradients, since the caller has had them since the call; for all inputs that the code
after a graph break still has; and, if that code writes, even for what the backward itself reads: writes through a
DTensor are not counted, and eager's backward reads the new value in those places only. What the backward reads
unchecked (tracing/kept_by_name.py) is saved itself everywhere, and nothing is recomputed from it.

Note [Common subexpressions]
torch's min-cut partitioner begins with a pass that computes them once. That pass asks Inductor which operators write,
and so imports a hundred modules. This takes a second of the first compilation, which is wasted if the graph does not go
to Inductor. So it gets `share` in place of its own pass.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Any

import torch
import torch.fx as fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.checkpoint import CheckpointPolicy

from aotviz.ir import absent, graphs
from aotviz.ir.symbolic_sizes import SYMBOLIC
from aotviz.torch_private import collectives, graph_nodes, operators
from aotviz.torch_private.partitioners import (
    default_partition,
    functionalize_rng_ops,
    min_cut_rematerialization_partition,
    must_recompute,
)
from aotviz.torch_private.random_numbers import run_and_save_rng_state

RANDOM_STATE = "rng_state_output_"  # torch's name in a backward for the state with which it recomputes a random node
NUMBERED_STATE = re.compile(RANDOM_STATE + r"\d+")
BACKWARD_ONLY = "must_be_in_backward"  # the `partitioner_tag` of what stays in the backward
FORWARD_ONLY = "must_be_in_forward"  # and in the forward
GENERATOR = "bwd_rng_state_"  # and for a generator, which the wrapper keeps in step with the forward's
Halves = tuple[fx.GraphModule, fx.GraphModule]


BY_NAME: dict[str, Callable[..., Any]] = {"default": default_partition, "min-cut": min_cut_rematerialization_partition}


def region_partitioner(call: fx.Node) -> Callable[..., Any] | None:
    """The partitioner that a region itself requests (`torch.compiler.nested_compile_region(options=...)`)."""
    config = call.meta.get("custom", {}).get("nested_region_config")
    chosen = getattr(config, "partitioner", None)
    return chosen if chosen is None else named(chosen)


def named(partition_fn: str | Callable[..., Any]) -> Callable[..., Any]:
    """The partitioner with this name, or the given function. Raises ValueError, TypeError.

    >>> named("default").__name__, named("default_partition").__name__
    ('default_partition', 'default_partition')
    """
    if isinstance(partition_fn, str):
        known = {fn.__name__: fn for fn in BY_NAME.values()} | BY_NAME
        if partition_fn not in known:
            raise ValueError(f"there is no partitioner {partition_fn!r}; there are {', '.join(known)}")
        return known[partition_fn]
    if not callable(partition_fn):
        raise TypeError(f"partition_fn must be callable or a name ({', '.join(BY_NAME)}), and it is {partition_fn!r}")
    return partition_fn


def is_backwards(node: fx.Node) -> bool:
    """Whether a node of a joint graph is tagged as one of the backward."""
    return str(node.meta.get("partitioner_tag")).endswith("backward")


def must_save(node: fx.Node) -> None:
    """Forbid every partitioner to recompute `node` in the backward."""
    node.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    node.meta["ac_graph_id"] = 0


def drawing_once(
    joint: fx.GraphModule,
    results: int,
    cut: Callable[[fx.GraphModule], Halves],
    writable: Set[str] = frozenset(),
    not_recomputed_from: Set[str] = frozenset(),
) -> Halves:
    """The halves that `cut` makes, in which each random node draws as in eager; see Note [Random nodes run once].

    The forward has `results` outputs before what it saves. `writable` are names of values from which nothing is
    recomputed unless the backward reads them itself, `not_recomputed_from` of those from which nothing is, and which
    are not recomputed either; see Note [Recomputing from an input]. Edits the tags of `joint` that partitioners use.
    """
    several: dict[str, Any] = {}
    late_effects: list[fx.Node] = []
    for node in joint.graph.nodes:
        late = is_backwards(node)
        if operators.only_has_effects(node.target):  # see Note [Effects run once]
            node.meta["partitioner_tag"] = BACKWARD_ONLY if late else FORWARD_ONLY
            late_effects += [node] * late
        elif operators.is_random(node.target):
            if late:
                node.meta["partitioner_tag"] = BACKWARD_ONLY
            value = node.meta.get("val")
            if isinstance(value, (tuple, list)) and all(not user.users for user in node.users):
                several[node.name] = value
                node.meta["val"] = value[0]  # torch takes a node without users for one tensor
    forward, backward = cut(joint)
    if late_effects:
        _put_back(late_effects, joint, forward, backward, results)
    _save_items(forward, backward, results)
    _name_states(forward, backward, [node for node in joint.graph.nodes if must_recompute(node)])
    for node in (*forward.graph.nodes, *backward.graph.nodes):
        if node.name in several:
            node.meta["val"] = several[node.name]
    _drop_repeated_random(backward)
    _save_only_what_is_read(forward, backward, results)
    if writable or not_recomputed_from:
        _recompute_from_none(joint, forward, backward, results, writable, not_recomputed_from)
    first = {node.name: node for node in forward.graph.nodes}
    again = [node for node in backward.graph.nodes if draws(backward, node) and node.name in first]
    has_tangents = any(absent.is_tangent(node) for node in graphs.placeholders(backward.graph))  # torch asks for one
    by_state = {node.name for node in again if has_state(node)} if has_tangents else set()
    for node in again:
        if node.name not in by_state:
            _read_saved(forward, backward, results, first[node.name], node)
    if by_state:
        forward, backward = _draw_from_state(joint, forward, backward, results, by_state)
    forward.recompile()
    backward.recompile()
    return forward, backward


def _put_back(
    effects: Sequence[fx.Node],
    joint: fx.GraphModule,
    forward: fx.GraphModule,
    backward: fx.GraphModule,
    results: int,
) -> None:
    """Put effects of the backward where a partitioner left them out. See Note [Effects run once]."""
    there = {node.name: node for node in backward.graph.nodes}
    lost = {node for node in effects if node.name not in there}
    if not lost:
        return
    first = {node.name: node for node in forward.graph.nodes}
    read = dict.fromkeys(one.name for node in lost for one in node.all_input_nodes)
    save(forward, backward, results, [first[name] for name in read if name not in there])
    there = {node.name: node for node in backward.graph.nodes}
    following = graphs.output_node(backward.graph)
    for node in reversed(joint.graph.nodes):
        if node in lost:
            with backward.graph.inserting_before(following):
                following = backward.graph.node_copy(node, lambda one: there[one.name])
        elif node.op == "call_function":
            following = there.get(node.name, following)


def _recompute_from_none(
    joint: fx.GraphModule,
    forward: fx.GraphModule,
    backward: fx.GraphModule,
    results: int,
    writable: Set[str],
    not_recomputed_from: Set[str],
) -> None:
    """Save what is computed first from these values, where the backward recomputes from them."""
    backwards = filter(is_backwards, joint.graph.nodes)
    read = {graphs.owner(argument).name for node in backwards for argument in node.all_input_nodes}
    asked = {node.name for node in joint.graph.nodes if must_recompute(node)}  # by the user
    first = {node.name: node for node in forward.graph.nodes}
    for node in list(backward.graph.nodes):
        if node.name in not_recomputed_from and node.name in first and node.op != "placeholder":
            _read_saved(forward, backward, results, first[node.name], node)
    examined: set[str] = set()
    while left := [n for n in graphs.placeholders(backward.graph) if n.name not in examined]:  # saving adds some
        for node in left:
            examined.add(node.name)
            owner = graphs.owner(first.get(node.name, node)).name
            if owner not in not_recomputed_from and (owner not in writable or owner in read):
                continue
            computed = list(dict.fromkeys(_computed_from(node)))  # one may read it twice, as itself and as a view
            recomputed = [one for one in computed if one.name in first]
            if not any(one.name in asked for one in recomputed):
                for again in recomputed:
                    _read_saved(forward, backward, results, first[again.name], again)
    _save_only_what_is_read(forward, backward, results)


def _computed_from(node: fx.Node) -> Iterator[fx.Node]:
    """The nodes that read a node or a view of it, and are no views."""
    for user in list(node.users):
        if graphs.is_view(user):
            yield from _computed_from(user)
        elif user.op != "output":
            yield user


def draws(module: fx.GraphModule, node: fx.Node) -> bool:
    """Whether a node draws random numbers, itself or in a graph that it runs."""
    if operators.is_random(node.target) or node.target is run_and_save_rng_state:
        return True
    graphs_run = (getattr(module, str(one.target), None) for one in node.all_input_nodes if one.op == "get_attr")
    return any(draws(one, inner) for one in graphs_run if isinstance(one, fx.GraphModule) for inner in one.graph.nodes)


def has_state(node: fx.Node) -> bool:
    """Whether a random node draws from the default generator of its tensors' device, or of `device=`: torch saves no
    other. Inductor's seeds have a device as an argument by position."""
    drawn = operators.is_random(node.target) and node.kwargs.get("generator") is None
    return drawn and not any(isinstance(one, torch.device) for one in node.args)


def _read_saved(
    forward: fx.GraphModule, backward: fx.GraphModule, results: int, first: fx.Node, again: fx.Node
) -> None:
    """Let the forward save what `first` draws, and let the backward read that instead of running `again`."""
    pairs = [(first, again)]
    if isinstance(first.meta.get("val"), (tuple, list)):
        items = {user.args[1]: user for user in first.users}
        pairs = [(items.get(user.args[1]) or _item(first, user), user) for user in again.users]
    for drawn, read in pairs:
        save(forward, backward, results, [drawn], {drawn.name: read})
    if again not in (read for _, read in pairs):
        backward.graph.erase_node(again)
    backward.graph.eliminate_dead_code()


def _save_items(forward: fx.GraphModule, backward: fx.GraphModule, results: int) -> None:
    """Save the items of a tuple that the backward reads in place of the tuple, which autograd cannot save.

    Under a memory budget, torch's min-cut partitioner saves whatever must be saved, an operator with several results
    as well.
    """
    returned = graphs.outputs(forward.graph)
    kept, taken = list(returned[results:]), {node.name: node for node in graphs.placeholders(backward.graph)}
    tuples = [one for one in kept if isinstance(one, fx.Node) and isinstance(one.meta.get("val"), (tuple, list))]
    for several in tuples:
        items = {user.args[1]: user for user in several.users if user.target is operator.getitem}
        place, whole, added = kept.index(several), taken[several.name], []
        for read in list(whole.users):
            item = items.get(read.args[1]) or _item(several, read)
            if item.name not in taken:
                graph_nodes.rename(read, f"{item.name}_again")
                with backward.graph.inserting_before(whole):
                    saved = backward.graph.placeholder(item.name)
                saved.meta["val"], saved.name = item.meta["val"], item.name
                taken[item.name] = saved
                added.append(item)
            read.replace_all_uses_with(taken[item.name])
            backward.graph.erase_node(read)
        kept[place : place + 1] = added
        backward.graph.erase_node(whole)
    graphs.set_outputs(forward.graph, (*returned[:results], *kept))


def _item(first: fx.Node, like: fx.Node) -> fx.Node:
    with first.graph.inserting_after(first):
        made = first.graph.call_function(operator.getitem, (first, like.args[1]))
    made.meta, made.name = dict(like.meta), like.name
    return made


def _draw_from_state(
    joint: fx.GraphModule, forward: fx.GraphModule, backward: fx.GraphModule, results: int, names: set[str]
) -> Halves:
    """Let the forward save the random state before the nodes with these names, and let the backward draw from it."""
    policies = {node: node.meta.pop("recompute", None) for node in joint.graph.nodes}
    again = [node for node in policies if node.name in names]
    for node in again:
        node.meta["recompute"] = CheckpointPolicy.MUST_RECOMPUTE
    kept = graphs.outputs(forward.graph)[results:]
    halves: Halves = functionalize_rng_ops(joint, forward, backward, len(kept) - len(list(_tensors(kept))))
    _name_states(forward, backward, again)
    for node in again:
        del node.meta["recompute"]
    for node, policy in policies.items():
        if policy is not None:
            node.meta["recompute"] = policy
    return halves


def _name_states(forward: fx.GraphModule, backward: fx.GraphModule, again: Sequence[fx.Node]) -> None:
    """Give each random state one name and one value in both halves, and what the backward draws from it the forward's.

    torch numbers the states from 0 each time, in the order of the joint graph's nodes, which are `again`.
    """
    states = [node for node in graphs.placeholders(backward.graph) if NUMBERED_STATE.fullmatch(node.name)]
    saved = [node for node in _tensors(graphs.outputs(forward.graph)) if operators.is_random_state(node)]
    for first, state in zip(saved[len(saved) - len(states) :], states, strict=True):
        graph_nodes.rename(first, f"{RANDOM_STATE}of_{first.name}")
        graph_nodes.rename(state, first.name)
        state.target = state.name
        state.meta["val"] = first.meta["val"]  # one tensor, whose storage both halves have
        run = graphs.argument(first)
        items = sorted(run.users, key=lambda one: str(one.args[1]))
        run.meta.setdefault("val", tuple(one.meta["val"] for one in items))
    left = {node.name for node in forward.graph.nodes}
    drawn = [node for node in again if operators.is_random(node.target) and node.name not in left]
    if len(drawn) == len(states):  # torch leaves out what only one of the halves has
        for node, state in zip(drawn, states, strict=True):
            for one in state.users:
                one.name, one.meta = node.name, dict(node.meta)


def save(
    forward: fx.GraphModule,
    backward: fx.GraphModule,
    results: int,
    nodes: Sequence[fx.Node],
    again: Mapping[str, fx.Node] = MappingProxyType({}),
) -> None:
    """Let the forward save these nodes too, after the other tensors, and pass them to the backward. Where that computed
    them again, in nodes of the same names or in those that `again` has under them, it reads them instead."""
    returned = graphs.outputs(forward.graph)
    kept = returned[results:]
    tensors = list(_tensors(kept))
    graphs.set_outputs(forward.graph, (*returned[:results], *tensors, *nodes, *kept[len(tensors) :]))
    names = {tensor.name for tensor in tensors}
    others = (node for node in graphs.placeholders(backward.graph) if node.name not in names)
    before = next(others, next(iter(backward.graph.nodes)))
    computed = {node.name: node for node in backward.graph.nodes} | {**again}
    for node in nodes:
        with backward.graph.inserting_before(before):
            passed = backward.graph.placeholder(node.name)
        passed.meta["val"] = node.meta["val"]
        if node.name in computed:
            computed[node.name].replace_all_uses_with(passed)
            backward.graph.erase_node(computed[node.name])
        passed.name = node.name  # torch would not give the name of another node again, also of one that is gone
    forward.recompile()
    backward.recompile()


def _tensors(kept: Sequence[Any]) -> Iterator[fx.Node]:
    return (one for one in kept if isinstance(one, fx.Node) and isinstance(one.meta.get("val"), torch.Tensor))


def _drop_repeated_random(backward: fx.GraphModule) -> None:
    """Remove random nodes that the forward has already run and whose results are not read here. Edits `backward`."""
    drawn = [node for node in backward.graph.nodes if operators.is_random(node.target) and not is_backwards(node)]
    gone: set[fx.Node] = set()
    for node in drawn:
        if node not in gone and all(not user.users for user in node.users):
            for one in [*node.users, node]:
                backward.graph.erase_node(one)
                gone.add(one)
    if gone:
        backward.graph.eliminate_dead_code()


def _save_only_what_is_read(forward: fx.GraphModule, backward: fx.GraphModule, results: int) -> None:
    """Save no tensor that the backward does not read: if it is an input, the caller could not write it before then.

    Numbers stay: one that no node reads may be what gives Inductor a symbol in the sizes of what is read.
    """
    returned = graphs.outputs(forward.graph)
    kept = {one.name for one in _tensors(returned[results:])}
    gone = {node.name: node for node in graphs.placeholders(backward.graph) if not node.users and node.name in kept}
    saved = (one for one in returned[results:] if not (isinstance(one, fx.Node) and one.name in gone))
    graphs.set_outputs(forward.graph, (*returned[:results], *saved))
    for node in gone.values():
        backward.graph.erase_node(node)


def share(graph: fx.Graph) -> int:
    """Merge equal calls of an operator, in place; see Note [Common subexpressions]. Returns how many were removed.

    These are not merged: side effects, collectives, random numbers, uninitialized memory, values in the memory of an
    output (two outputs stay two tensors), calls with a write between them, operators that run graphs, numbers that are
    read from a tensor, and what the backward must compute with what the forward may.

    >>> import torch
    >>> module = torch.fx.symbolic_trace(lambda x: x.sin() + x.sin())
    >>> share(module.graph)  # methods of tensors, as this tracer records them, are no operators
    0
    """
    returned = {_storage(node) for node in graphs.output_node(graph).all_input_nodes} - {None}
    seen: dict[Any, fx.Node] = {}
    merged: set[fx.Node] = set()
    writes = before = len(graph.nodes)
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        if not merged.isdisjoint(node.all_input_nodes) and _lies_elsewhere(node):
            args, kwargs = fx.node.map_arg((node.args, dict(node.kwargs)), lambda one: one.meta["val"])
            operation: Any = node.target
            node.meta["val"] = operation(*args, **kwargs)
            merged.add(node)
        writes += operators.writes(node.target)
        if _is_its_own(node) or _storage(node) in returned:
            continue
        late = node.meta.get("partitioner_tag") == BACKWARD_ONLY
        key = (writes, late, node.target, _key(node.args), _key(node.kwargs))
        first = seen.setdefault(key, node)
        if first is not node:
            node.replace_all_uses_with(first)
            graph.erase_node(node)
            merged.add(first)
    return before - len(graph.nodes)


def _lies_elsewhere(node: fx.Node) -> bool:
    """Whether a view's value, or an item's, is not in the memory of what it is taken from, since that was merged."""
    if node.target is operator.getitem:
        return node.meta["val"] is not graphs.argument(node).meta["val"][node.args[1]]
    own = _storage(node) if operators.is_view(node.target) else None
    return own is not None and own not in {_storage(graphs.argument(node))}


def _is_its_own(node: fx.Node) -> bool:
    value = node.meta.get("val")
    read_off = isinstance(value, SYMBOLIC) and bool(free_unbacked_symbols(value))
    packet = getattr(node.target, "overloadpacket", None)
    with_graphs = not operators.is_operator(node.target) and any(n.op == "get_attr" for n in node.all_input_nodes)
    drawn = packet is torch.ops.aten.empty or operators.is_random(node.target)
    return read_off or with_graphs or drawn or node.is_impure() or collectives.communicates(node.target)


def _storage(node: fx.Node) -> Any:
    """The storage of a node's value, or None."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    return StorageWeakRef(value.untyped_storage())


def _key(argument: Any) -> Any:
    """A hashable key that is equal for arguments that mean the same. 1 and 1.0 differ, and so do 0.0 and -0.0."""
    if isinstance(argument, (tuple, list)):
        return type(argument), tuple(map(_key, argument))
    if isinstance(argument, dict):
        return tuple((name, _key(value)) for name, value in argument.items())
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
    return node.op == "placeholder" and str(node.target).startswith(("fwd_rng_state_", GENERATOR))
