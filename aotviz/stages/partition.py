"""Partition the joint graph: a forward that saves values, and a backward that takes them (docs/design/system.md D3).

Note [Old values of mutated inputs]
A partitioner may recompute a value in the backward from any graph input. By then a mutated input has been overwritten,
by the graph or the wrapper, and the recomputed value is silently wrong. So if a partition hands a mutated input to the
backward, it is repeated on a graph in which the backward reads such inputs only through a clone that must be saved. The
clone is inserted after the compiler's own joint passes, which would remove it as redundant.

Note [Clones of inputs]
A function clones what may be written later. If the input were saved instead of the clone, the backward would see writes
between the call and its backward. Autograd notices them, except writes with another version counter, as through
`.data`. So a clone of an input is not recomputed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.fx as fx

from aotviz.ir import effects, graphs
from aotviz.ir.descriptors import RandomStateInput, SavedInput, SavedOutput, TangentInput
from aotviz.ir.forms import GradientRequest, HookedResult, JointGraph, Reason, SavedTensor, Split
from aotviz.ir.partition_functions import drawing_once, is_generator, must_save, save, share
from aotviz.ir.symbolic_sizes import SYMBOLIC
from aotviz.ir.view_and_mutation import OutputType, Ref
from aotviz.torch_private import operators
from aotviz.torch_private.partitioners import partitioning, saves_memory, sharing
from aotviz.torch_private.torchs_log import compiling
from aotviz.tracing import functional, kept_by_name, saved_values
from aotviz.tracing.second_order import besides, kept_inputs

_OF_INPUTS = (OutputType.is_input, OutputType.alias_of_input, OutputType.custom_function_view)
_BESIDES = "a second derivative would read it, and the tensor that it is computed from is overwritten"


def run(call: JointGraph) -> Split:
    evidence: list[Reason] = []
    module = graphs.copy(call.graph_module)
    tokens, late_tokens = effects.lift(module.graph, len(call.slots))  # see Note [Tokens across the cut]
    inputs = graphs.placeholders(module.graph)
    results = len(call.slots) + tokens
    count = sum(not node.name.startswith("tangents_") for node in inputs)
    joint_inputs = list(graphs.values(inputs[:count])), list(graphs.values(inputs[count:]))
    with partitioning(module.graph, call.fake_mode, call.options.graphsafe_rng), compiling(call.number, "joint"):
        custom = call.options.joint_custom_pass
        if custom is not None:
            module = custom(module, joint_inputs)
            text = f"your pass {getattr(custom, '__name__', custom)} was called on it"
            evidence.append(Reason("joint graph", text))
        if call.options.joint_pass is not None:
            module = call.options.joint_pass(module, joint_inputs)
        descriptors = {node.name: node.meta.get("desc") for node in graphs.placeholders(module.graph)}
        by_name = kept_by_name.readers(module.graph)  # partitioners merge nodes of the joint graph in place

        writable = _writable(call, graphs.outputs(module.graph)[:results])
        named = {node.name: node for node in module.graph.nodes}
        not_recomputed_from = {graphs.owner(named[name]).name for name in by_name if name in named}
        if call.follows.writes and call.options.by_operator:
            not_recomputed_from |= writable
        cut = Cut(call.options.partition_fn, joint_inputs, results, call.meta.static_input_indices)
        forward, backward, protected = cut.halves(module, _overwritten(call), writable, not_recomputed_from)
    effects.unlift(forward, len(call.slots), tokens)
    effects.unlift(backward, len(call.gradients), late_tokens)
    as_it_is = kept_by_name.read_as_it_is(backward.graph, by_name)
    extra = _save_besides(call, forward, backward, protected, by_name.keys() - as_it_is.keys())
    saved = _saved(call, forward, protected, extra, frozenset(as_it_is.values()))
    _describe(call, forward, backward, descriptors)
    evidence += [Reason(value.name, value.why) for value in saved]
    evidence += [Reason(name, "a copy of a mutated input's old value, for the backward") for name in sorted(protected)]
    kept = kept_inputs(call, {value.name for value in saved})
    why = "not saved; kept for a second derivative (create_graph=True)"
    evidence += [Reason(str(call.graph_inputs[i]), why) for i in kept]
    split = call.then(
        Split,
        evidence=tuple(evidence),
        forward_module=forward,
        backward_module=backward,
        saved=tuple(saved),
        kept=kept,
        unpacked={},
    )
    return replace(
        split,
        hooked_results=(*call.hooked_results, *(HookedResult(ref, ()) for ref in saved_values.passed_unsaved(split))),
    )


@dataclass(frozen=True)
class Cut:
    """How a joint graph is cut in two."""

    partition_fn: Callable[..., tuple[fx.GraphModule, fx.GraphModule]]
    inputs: tuple[Sequence[Any], Sequence[Any]]  # values of what goes in, and tangents
    results: int
    static: Sequence[int]  # inputs that stay in one place

    def halves(
        self, joint: fx.GraphModule, overwritten: Sequence[int], writable: Set[str], others: Set[str] = frozenset()
    ) -> tuple[fx.GraphModule, fx.GraphModule, set[str]]:
        """The forward, the backward, and the names of clones; see Note [Old values of mutated inputs]. `writable` and
        `others` are not recomputed from: see Note [Recomputing from an input]."""
        untouched = graphs.copy(joint) if overwritten else joint
        forward, backward = drawing_once(joint, self.results, self._once, writable, others)
        if not reads_overwritten(forward, self.results, overwritten):
            return forward, backward, set()
        clones = protect_old_values(untouched, overwritten)
        return *drawing_once(untouched, self.results, self._once, writable, others), clones

    def _once(self, joint: fx.GraphModule) -> tuple[fx.GraphModule, fx.GraphModule]:
        for node in filter(is_clone_of_input, joint.graph.nodes):
            if "recompute" not in node.meta:
                must_save(node)
        with sharing(self.partition_fn, share, joint.graph):
            forward, backward = self.partition_fn(
                joint, self.inputs, num_fwd_outputs=self.results, static_lifetime_input_indices=list(self.static)
            )
        _check_outputs(forward, backward, self.results, len(graphs.outputs(joint.graph)), self.partition_fn)
        return forward, backward


def _writable(call: JointGraph, results: Sequence[Any]) -> frozenset[str]:
    """The names of values that the caller may well write before the backward, but for parameters and buffers; see
    Note [Recomputing from an input]."""
    graph_inputs = graphs.placeholders(call.graph_module.graph)[: len(call.graph_inputs)]
    inputs = {i: node for i, node in enumerate(graph_inputs) if i not in call.meta.static_input_indices}
    made = {graphs.owner(one).name for one in results if isinstance(one, fx.Node)}
    by_operator = call.options.by_operator
    if saves_memory() or call.follows.writes or (by_operator and isinstance(call.source, GradientRequest)):
        return frozenset(made | {node.name for node in inputs.values()})
    returned = {info.base_index for info in call.meta.output_info if info.output_type in _OF_INPUTS}
    outside = {*call.follows.returned, *(call.follows.alive if by_operator else ())}
    returned |= {i for i in inputs if not call.members(i).isdisjoint(outside)}
    values = ((i, node.meta.get("val")) for i, node in inputs.items())
    storages = {i: functional.storage(value) for i, value in values if functional.has_storage(value)}
    places = {place for i, place in storages.items() if i in returned}
    found = {inputs[i].name for i, place in storages.items() if place in places}
    return frozenset(found | made if by_operator else found)


def _check_outputs(
    forward: fx.GraphModule, backward: fx.GraphModule, results: int, joint: int, partition_fn: Callable[..., Any]
) -> None:
    """Raise ValueError if a half lacks one of the `joint` outputs; the first `results` of them are the forward's."""
    name = getattr(partition_fn, "__name__", partition_fn)
    returned = len(graphs.outputs(forward.graph)), len(graphs.outputs(backward.graph))
    if returned[0] < results:
        raise ValueError(
            f"partition_fn {name!r} returned a forward with {returned[0]} outputs. It needs the first {results} of the "
            "joint graph (num_fwd_outputs), and then what it saves."
        )
    if returned[1] != joint - results:
        raise ValueError(
            f"partition_fn {name!r} returned a backward with {returned[1]} outputs. It needs the last "
            f"{joint - results} of the joint graph, the gradients, those included that are None."
        )


def is_clone_of_input(node: fx.Node) -> bool:
    """See Note [Clones of inputs]. The clones that `contiguous()` makes do not count."""
    clones = node.target is torch.ops.aten.clone.default and not node.kwargs
    return clones and bool(graphs.owner(node.args[0]).op == "placeholder")


def reads_overwritten(forward: fx.GraphModule, results: int, overwritten: Sequence[int]) -> bool:
    """Whether a forward saves one of these inputs, or a view of one."""
    inputs = graphs.placeholders(forward.graph)
    values = (inputs[i].meta.get("val") for i in overwritten)
    mutated = {functional.storage(value) for value in values if isinstance(value, torch.Tensor)}
    kept = graphs.values(graphs.outputs(forward.graph)[results:])
    return any(isinstance(value, torch.Tensor) and functional.storage(value) in mutated for value in kept)


def _overwritten(call: JointGraph) -> list[int]:
    """Inputs that are written after the graph ran, or whose version the replay bumps because a view of them moves;
    those that share a storage which is resized then; and those that the backward writes and a Function keeps by name.
    Not those that the graph fills: see tracing/storage_sizes.py."""
    bumped = call.meta.replayed_writes if call.wrapping is None else {}
    infos, graph = call.meta.input_info, call.graph_module.graph
    inputs = dict(enumerate(graphs.placeholders(graph)[: len(infos)]))
    fakes = {i: node.meta.get("val") for i, node in inputs.items()}
    keys = {i: functional.storage(fake) for i, fake in fakes.items() if functional.has_storage(fake)}
    resized = {keys[i] for i, info in enumerate(infos) if info.resizes_storage and i in keys}
    found = [i for i, info in enumerate(infos) if info.mutated or bumped.get(Ref("input", i)) or keys.get(i) in resized]
    by_name = kept_by_name.readers(graph) if call.late_writes else {}
    late = (call.input_parts[i][0] for i, _ in call.late_writes)
    found += [i for i in late if inputs[i].name in by_name]
    return [i for i in found if not (infos[i].resizes_storage and graphs.fills(graph, inputs[i]))]


def protect_old_values(module: fx.GraphModule, overwritten: Sequence[int]) -> set[str]:
    """Let the backward read these inputs through clones; see Note [Old values of mutated inputs]. Edits the joint graph
    `module`, and returns the names of the clones."""
    graph = module.graph
    inputs = graphs.placeholders(graph)
    mutated = [inputs[i] for i in overwritten]
    reaches: dict[fx.Node, bool] = {}
    for node in reversed(graph.nodes):
        backward = str(node.meta.get("partitioner_tag")).endswith("backward") and node.op != "placeholder"
        reaches[node] = backward or any(reaches[user] for user in node.users if user.op != "output")
    first = next(node for node in graph.nodes if node.op != "placeholder")
    names, by_name = set[str](), kept_by_name.readers(graph)
    for node in mutated:
        writes = {user for user in node.users if graphs.is_input_mutation(user) and user.args[0] is node}
        kept = by_name.get(node.name, ())  # they read what was written since
        users = [user for user in node.users if user.op != "output" and user not in writes and user.name not in kept]
        if not any(reaches[user] for user in users):
            continue
        with graph.inserting_before(first):
            clone = graph.call_function(torch.ops.aten.clone.default, (node,))
        clone.meta["val"] = node.meta["val"].detach().clone()
        clone.meta["partitioner_tag"] = "is_forward"
        must_save(clone)
        for user in users:
            user.replace_input_with(node, clone)
        names.add(clone.name)
    if names:
        module.recompile()
    return names


def _save_besides(
    call: JointGraph, forward: fx.GraphModule, backward: fx.GraphModule, protected: set[str], watched: set[str]
) -> set[str]:
    """Save values that only a second differentiation would read, and values whose writes must be detected. Returns
    names."""
    kept = graphs.outputs(forward.graph)[len(call.slots) :]
    if not all(isinstance(node, fx.Node) for node in kept):
        return set()
    names = {node.name for node in kept} | {node.args[0].name for node in kept if node.name in protected}
    extra = list(besides(call, forward, {node.name for node in backward.graph.nodes}, names))
    extra += [n for n in forward.graph.nodes if n.name in watched and n.name not in names and n not in extra]
    if not extra:
        return set()
    save(forward, backward, len(call.slots), extra)
    return {node.name for node in extra}


def _saved(
    call: JointGraph, forward: fx.GraphModule, protected: set[str], extra: set[str], as_it_is: frozenset[str]
) -> list[SavedTensor]:
    kept = graphs.outputs(forward.graph)[len(call.slots) :]
    partitioner = getattr(call.options.partition_fn, "__name__", "partition_fn")
    saved = []
    for node in kept:
        if not isinstance(node, fx.Node):
            raise TypeError(f"{partitioner} saved {node!r} for the backward; it may save only nodes of the graph")
        value = node.meta.get("val")
        stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
        saved.append(
            SavedTensor(
                name=node.name,
                is_symbol=isinstance(value, (*SYMBOLIC, int, float, bool)),
                value=value,
                producer=str(node.meta.get("desc") or _called(node).target),
                stack=node.meta.get("stack_trace") or "",
                module=next((str(entry[0]) for entry in reversed(stack.values())), ""),
                why=_BESIDES if node.name in extra else _why(node, protected, partitioner),
                is_view=node.op == "placeholder" or node.target is operator.getitem or operators.is_view(node.target),
                checked=node.name not in as_it_is,
                inference=isinstance(value, torch.Tensor) and value.is_inference(),
            )
        )
    saved.sort(key=lambda one: one.is_symbol)  # stable: the partitioner's order within each kind
    if [one.name for one in saved] != [node.name for node in kept]:
        raise ValueError(f"{partitioner} must save tensors first, then symbolic numbers")
    return saved


def _called(node: fx.Node) -> fx.Node:
    """The operator that computes a value; a value that is one of several results is a getitem of the operator."""
    while node.target is operator.getitem and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    return node


def _why(node: fx.Node, protected: set[str], partitioner: str) -> str:
    if node.name in protected:
        return "the call overwrites this input, so its old value is saved"
    if node.op == "placeholder":
        return "an input: saving it costs no extra memory"
    if operators.is_random_state(node):
        return "the random state before a node that the backward recomputes"
    if is_clone_of_input(node):
        return "the function cloned this input, and the input may be written before the backward"
    if "policy" in node.meta:
        return str(node.meta["policy"])
    tag = node.meta.get("recompute")
    if tag is not None:
        return f"tagged {getattr(tag, 'name', tag)} by checkpointing"
    if operators.is_random(node.target):
        return "random: recomputing it would give another value"
    if partitioner == "default_partition":
        return "the backward reads it"
    detail = "; the forward reads it too" if any(user.op != "output" for user in node.users) else ""
    return f"{partitioner} estimates that saving it is cheaper than recomputing it{detail}"


def _describe(call: JointGraph, forward: fx.GraphModule, backward: fx.GraphModule, known: dict[str, Any]) -> None:
    """Put descriptors on both halves; partitioners keep only those of the placeholders."""
    for node in graphs.placeholders(forward.graph):
        generator = RandomStateInput("generator") if is_generator(node) else None
        node.meta["desc"] = known.get(node.name) or generator or node.meta.get("desc")
    kept = graphs.outputs(forward.graph)[len(call.slots) :]
    saved_names = [SavedOutput(node.name) for node in kept]
    graphs.output_node(forward.graph).meta["desc"] = [*(slot.descriptor for slot in call.slots), *saved_names]
    for node in graphs.placeholders(backward.graph):
        desc = known.get(node.name)
        saved = RandomStateInput("generator") if is_generator(node) else SavedInput(node.name)
        # the default partitioner gives an input's node the same `meta` in both halves
        node.meta = {**node.meta, "desc": desc if isinstance(desc, TangentInput) else saved}
    joint = graphs.output_node(call.graph_module.graph).meta["desc"]
    graphs.output_node(backward.graph).meta["desc"] = list(joint[len(call.slots) :])
