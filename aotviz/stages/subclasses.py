"""From the tensors that a caller holds to those that a graph takes (docs/design/system.md C4).

Autograd sees a subclass as one tensor; the compiled graph takes and returns its parts. Before this stage a call has one
entry per tensor of the caller, after it one entry per part. The rewrite keeps the caller's description, and writes the
lines that convert between the two, inside the `autograd.Function`, so that the whole tensors have a `grad_fn`. A call
without subclasses passes unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import torch

from aotviz.ir import graphs
from aotviz.ir.descriptors import InputDescriptor, SyntheticBaseInput, parts_of
from aotviz.ir.forms import Emitter, Gradient, GraphCall, JointCall, Reason, Rewrite, Slot, Tangent
from aotviz.ir.refusals import Refused
from aotviz.ir.spelling import attribute, keywords, literal
from aotviz.ir.subclass_meta import (
    OpaqueMeta,
    PlainTensorMeta,
    Plan,
    SubclassCreationMeta,
    SubclassMeta,
    Wrapping,
    flat_results,
    leads_to_tensor,
    plan,
    spans,
    tree,
)
from aotviz.ir.view_and_mutation import InputAliasInfo, MutationType, ViewAndMutationMeta
from aotviz.ir.wrapper_subclasses import parts_by_path
from aotviz.runtime import call_differs, tangents
from aotviz.torch_private import runtime
from aotviz.tracing import functional


@dataclass(frozen=True)
class SubclassParts(Rewrite, Wrapping):
    """Graph inputs, slots, tangents and gradients are the parts of the caller's, in order."""

    meta: SubclassMeta
    graph_inputs: tuple[InputDescriptor, ...]  # this and the following fields describe the caller's tensors
    facts: ViewAndMutationMeta
    slots: tuple[Slot, ...]
    tangents: tuple[Tangent, ...]
    gradients: tuple[Gradient, ...]
    shared: Mapping[tuple[int, str], tuple[int, str]]  # (slot, path of a part) -> (input, path of the part's source)

    def caller(self, call: Any) -> Any:
        told = {"graph_inputs": self.graph_inputs, "slots": self.slots, "meta": self.facts}
        if isinstance(call, JointCall):
            told |= {"tangents": self.tangents, "gradients": self.gradients}
        return replace(call, **told)

    def inputs(self, emit: Emitter, variables: list[str]) -> list[str]:
        for variable, one, descriptor in zip(variables, self.meta.inputs, self.graph_inputs, strict=True):
            if isinstance(one, SubclassCreationMeta):
                differs = " or ".join(_types_differ(emit, variable, one))
                message = f"{str(descriptor)!r} was {_spoken(one)} when this was compiled."
                fact = f"the graph takes the inner tensors of {descriptor}"
                call_differs.check(emit, differs, message, fact, str(descriptor))
        return variables

    def unwrap(self, emit: Emitter, variables: list[str]) -> list[str]:
        """The graph's inputs, from the caller's tensors."""
        return [v + path for v, one in zip(variables, self.meta.inputs, strict=True) for path in one.paths()]

    def wrap(self, emit: Emitter, values: str, inputs: list[str], recorded: bool) -> list[str]:
        """The caller's results, from the graph's results `values` and the inputs that they share parts with. Unless
        autograd records the call, a subclass that is written part by part is not built."""
        made = []
        grouped = zip(self.meta.slots, self.slots, _results(values, self.meta.slots), strict=True)
        for number, (one, slot, results) in enumerate(grouped):
            for k, path in enumerate(one.paths()):
                if (number, path) in self.shared:
                    index, leads = self.shared[number, path]
                    results[k] = inputs[index] + leads
            name = str(slot.descriptor)
            if not isinstance(one, SubclassCreationMeta):
                made.append(results[0])
            elif not recorded and self._only_parts(slot):
                made.append(_side_by_side(emit, one, results, name))
            else:
                made.append(emit.fresh(name.replace("output", "out")))
                emit.line(f"{made[-1]} = {_creation(emit, one, results)}", f"{name} is {_spoken(one)}", name)
                if slot.version:
                    setter = emit.bind("set_versions", runtime.set_versions)
                    fact = "set the version counter that it has in eager"
                    emit.line(f"{setter}(({made[-1]},), ({slot.version},))", fact)
        return made

    def _only_parts(self, slot: Slot) -> bool:
        info = self.facts.input_info[slot.index] if slot.kind == "mutation" else None
        return info is not None and info.written_by_parts and info.layout_after is None and not info.resizes_storage

    def expect_tangents(self, emit: Emitter, names: list[str]) -> None:
        """Convert incoming gradients of another tensor class."""
        for name, one, tangent in zip(names, self.meta.tangents, self.tangents, strict=True):
            subject = str(self.slots[tangent.slot].descriptor)
            if not isinstance(one, SubclassCreationMeta):
                tangents.expect_plain(emit, name, subject)
                continue
            fact = f"the backward was compiled for the gradient of {subject} as {_spoken(one)}"
            inner = tuple((part.size, part.dtype, part.device) for part in tangent.parts)
            coerced = emit.bind("as_tangent", tangents.as_tangent)
            known = emit.bind("expected", tangents.Expected(subject, one, inner))
            differs = " or ".join([*_types_differ(emit, name, one, torch.Tensor), *_contexts_differ(emit, name, one)])
            emit.line(f"if {name} is not None and ({differs}): {name} = {coerced}({name}, {known})", fact, subject)

    def unwrap_tangents(self, emit: Emitter, names: list[str]) -> list[str]:
        """The parts of the incoming gradients; None for each part of a missing one."""
        found: list[str] = []
        for name, one, tangent in zip(names, self.meta.tangents, self.tangents, strict=True):
            if not isinstance(one, SubclassCreationMeta):
                found.append(name)
                continue
            subject = str(self.slots[tangent.slot].descriptor)
            fact = f"the backward takes the inner tensors of the gradient of {subject}"
            paths = [path for path in one.paths() if leads_to_tensor(path)]
            inner = [emit.fresh(name + path) for path in paths]
            nothing = ", ".join(["None"] * len(inner))
            values = ", ".join(name + path for path in paths)
            emit.line(f"{', '.join(inner)}, = ({nothing},) if {name} is None else ({values},)", fact, subject)
            found += inner
        return found

    def wrap_gradients(self, emit: Emitter, values: str) -> list[str]:
        """One gradient per input of the caller, from the results `values` of the backward graph."""
        made = []
        grouped = zip(self.meta.gradients, self.gradients, _results(values, self.meta.gradients), strict=True)
        for one, gradient, results in grouped:
            if not isinstance(one, SubclassCreationMeta):
                made += results
                continue
            name = str(gradient.descriptor)
            made.append(emit.fresh(name))
            whole = f"None if {results[0]} is None else {_creation(emit, one, results)}"
            emit.line(f"{made[-1]} = {whole}", f"the {name} is {_spoken(one)}", name)
        return made


def _results(values: str, plans: Sequence[Plan | None]) -> Iterator[list[str]]:
    """For each plan, the expressions of its values among a graph's results. A missing gradient is one value, None."""
    return ([f"{values}[{number}]" for number in span] for span in spans(plans))


def _spoken(one: SubclassCreationMeta) -> str:
    return f"a {one.type.__name__}"


def _types_differ(emit: Emitter, value: str, one: Plan, plain: type | None = None) -> list[str]:
    """Tests that a value has another type than planned. Plain tensors inside are tested only if their type is given."""
    parts = ((path, part) for path, part in tree(one) if not isinstance(part, OpaqueMeta))
    kinds = ((path, part.type if isinstance(part, SubclassCreationMeta) else plain) for path, part in parts)
    return [f"type({value}{path}) is not {emit.bind(kind.__name__, kind)}" for path, kind in kinds if kind is not None]


def _contexts_differ(emit: Emitter, value: str, one: Plan) -> list[str]:
    """Tests that a value has another context. A class without a context at compile time has none at run time."""
    plans = ((path, part) for path, part in tree(one) if isinstance(part, SubclassCreationMeta))
    held = [(path, part.context) for path, part in plans if part.context is not None]
    same = emit.bind("same_context", tangents.same_context) if held else ""
    return [f"not {same}({value}{path}, {emit.bind('context', context)})" for path, context in held]


def _creation(emit: Emitter, one: Plan, values: Sequence[str]) -> str:
    """The expression that builds a value from its flat values."""
    if isinstance(one, PlainTensorMeta):
        return values[0]
    if isinstance(one, OpaqueMeta):
        return emit.bind(type(one.value).__name__, one.value)
    made, position = [], 0
    for name, part in one.attrs:
        made.append(f"{literal(name)}: {_creation(emit, part, values[position : position + part.count])}")
        position += part.count
    symbols = dict(zip(one.symbols, values[position:], strict=True))
    size, stride = _numbers("size", one.outer_size, symbols), _numbers("stride", one.outer_stride, symbols)
    plain = one.context is None or type(one.context) in (bool, int, str)
    known = emit.bind(one.type.__name__, one.type)
    given = literal(one.context) if plain else emit.bind("context", one.context)
    return f"{known}.__tensor_unflatten__({{{', '.join(made)}}}, {given}, {size}, {stride})"


def _side_by_side(emit: Emitter, one: SubclassCreationMeta, values: list[str], name: str) -> str:
    """A variable with the parts of a subclass as attributes, if the subclass itself is not needed."""
    leaves = dict(zip(one.paths(), values, strict=True))
    places = emit.bind("Places", SimpleNamespace)

    def nested(plan: Plan, path: str) -> str:
        if not isinstance(plan, SubclassCreationMeta):
            return leaves.get(path, "None")
        parts = keywords((part, nested(inner, path + attribute(part))) for part, inner in plan.attrs)
        return f"{places}({', '.join(parts)})"

    variable = emit.fresh(name)
    emit.line(f"{variable} = {nested(one, '')}", f"write each inner tensor of {name}", name)
    return variable


def _numbers(kind: str, numbers: Sequence[int | None], symbols: dict[tuple[str, int], str]) -> str:
    texts = [symbols.get((kind, i), "-1") if n is None else str(n) for i, n in enumerate(numbers)]  # -1: ragged
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def run(call: GraphCall) -> GraphCall:
    """JointCall -> JointCall, or GraphCall -> GraphCall."""
    inward = _Inward(call)
    plans = (*inward.plans, *inward.slots, *inward.incoming, *inward.gradients)
    return inward.call() if any(isinstance(one, SubclassCreationMeta) for one in plans) else call


class _Inward:
    """Describes a call in terms of the graph's tensors."""

    def __init__(self, call: GraphCall) -> None:
        self.outer = call
        self.plans: tuple[Plan, ...] = call.forward.plans
        self.slots = tuple(plan(call.forward.value(slot.kind, slot.index)) for slot in call.slots)
        self.incoming: tuple[Plan, ...] = ()
        self.gradients: tuple[Plan | None, ...] = ()
        if isinstance(call, JointCall):
            self.incoming = tuple(plan(tangent.value) for tangent in call.tangents)
            self.gradients = tuple(None if one.value is None else plan(one.value) for one in call.gradients)
        self.spans = spans(self.plans)  # of the parts

    def call(self) -> GraphCall:
        outer = self.outer
        inner, kept, places = self._slots()
        changes: dict[str, Any] = {}
        tangents: tuple[Tangent, ...] = ()
        gradients: tuple[Gradient, ...] = ()
        if isinstance(outer, JointCall):
            tangents, gradients = outer.tangents, outer.gradients
            plain = ((places[t.slot][k], part) for t in tangents for k, part in enumerate(t.parts or (t,)))
            changes["tangents"] = tuple(replace(part, slot=place) for place, part in plain)
            changes["gradients"] = self._gradients(gradients)
        stay = [i for i, slot in enumerate(outer.slots) if not self._in_graph(slot)]
        renumbered = {old: new for new, old in enumerate(stay)}
        rewrite = SubclassParts(
            SubclassMeta(self.plans, tuple(self.slots[i] for i in stay), self.incoming, self.gradients),
            outer.graph_inputs,
            self._counted_by_caller(),
            tuple(outer.slots[i] for i in stay),
            tuple(replace(t, slot=renumbered[t.slot]) for t in tangents),
            gradients,
            self._shared(stay),
        )
        pairs = zip(outer.graph_inputs, self.plans, strict=True)
        static = tuple(k for i in sorted({*outer.meta.static_input_indices}) for k in self.spans[i])
        return replace(
            outer,
            evidence=self._evidence(),
            graph_inputs=tuple(part for descriptor, one in pairs for part in parts_of(descriptor, one.paths())),
            meta=replace(outer.meta, input_info=self.infos, static_input_indices=static),
            slots=inner,
            rewrites=(*outer.rewrites, rewrite),
            graph_module=self._graph(kept),
            **changes,
        )

    def _shared(self, stay: list[int]) -> dict[tuple[int, str], tuple[int, str]]:
        """Parts of results that are a written input or a view of one. They are made from the input: the graph returns a
        copy."""
        forward, outer = self.outer.forward, self.outer
        owners: dict[Any, tuple[int, str, Any]] = {}
        for i, (info, value) in enumerate(zip(outer.meta.input_info, forward.args, strict=True)):
            if info.mutated:
                owners |= {functional.storage(part): (i, path, part) for path, part in parts_by_path(value)}
        found: dict[tuple[int, str], tuple[int, str]] = {}
        for number, position in enumerate(stay):
            slot = outer.slots[position]
            if slot.kind == "mutation" or isinstance(self.slots[position], PlainTensorMeta):
                continue
            for path, part in parts_by_path(forward.value(slot.kind, slot.index)):
                owner = owners.get(functional.storage(part))
                if owner is not None:
                    index, leads, source = owner
                    name = f"{slot.descriptor}{path}"
                    info = outer.meta.input_info[index]
                    apart = not leads and (info.requires_grad or info.requires_grad_after)
                    whose = outer.graph_inputs[index]
                    view = "" if part is source else self._taken_again(part, source, name, whose, apart)
                    found[number, path] = (index, leads + view + (".detach()" if apart else ""))
        return found

    def _taken_again(self, part: Any, source: Any, name: str, whose: InputDescriptor, apart: bool) -> str:
        """The calls that take a part of a result from `source`, the written input whose memory it shares. `apart`: it
        must have no base, since the wrapper writes the input after the part is taken, and a view would be stale."""
        ledger = self.outer.forward.ledger
        where = ledger.known_layout(part)
        if where is None or isinstance(whose, SyntheticBaseInput):  # eager's part has the base of the caller's views
            raise Refused("view of what is written", name, str(whose))
        if not where.concrete:
            raise Refused("symbolic view of a subclass", name, str(whose))
        whole = ledger.number(source)
        _, path = ledger.path(ledger.number(part), lambda one: one == whole)
        detached = any(event.detaches for event, _ in path)
        if apart and not detached:
            raise Refused("view of what is written", name, str(whose))
        return f"{'.detach()' if detached else ''}.as_strided({where.size}, {where.stride}, {where.offset})"

    def _in_graph(self, slot: Slot) -> bool:
        """Whether the graph itself writes the result of a slot."""
        return slot.kind == "mutation" and slot.index in self.outer.meta.in_graph_mutated_indices

    def _slots(self) -> tuple[tuple[Slot, ...], list[int], dict[int, list[int]]]:
        """The parts of all slots; their numbers among the graph's results; the places of each slot's tensors among
        them."""
        found: list[Slot] = []
        kept: list[int] = []
        places: dict[int, list[int]] = {}
        result = 0
        for position, (slot, one) in enumerate(zip(self.outer.slots, self.slots, strict=True)):
            places[position] = []
            paths = list(one.paths())
            for path, descriptor in zip(paths, parts_of(slot.descriptor, paths), strict=True):
                index, wanted = self._place_of(slot, path, len(found))
                tensor = leads_to_tensor(path)
                if wanted:
                    places[position] += [len(found)] if tensor else []
                    kept.append(result)
                    version, differentiable = None if path else slot.version, slot.differentiable and tensor
                    found.append(
                        Slot(slot.kind, index, descriptor, differentiable, slot.hidden, version, slot.inference)
                    )
                result += 1
        return tuple(found), kept, places

    def _place_of(self, slot: Slot, path: str, number: int) -> tuple[int, bool]:
        """The index of a part's slot, and whether the graph returns it: it does not return what it writes itself."""
        if slot.kind != "mutation":
            return number, True
        paths = list(self.plans[slot.index].paths())
        index = self.spans[slot.index].start + (paths.index(path) if path in paths else 0)
        return index, not self._in_graph(slot) or (path in paths and self.infos[index].mutated)

    @cached_property
    def infos(self) -> tuple[InputAliasInfo, ...]:
        infos: list[InputAliasInfo] = []
        for info, one, value in zip(self.outer.meta.input_info, self.plans, self.outer.forward.args, strict=True):
            inner = dict(parts_by_path(value))
            is_plain = isinstance(one, PlainTensorMeta)
            infos += [info] if is_plain else [_part_info(info, inner.get(path)) for path in one.paths()]
        return tuple(infos)

    def _counted_by_caller(self) -> ViewAndMutationMeta:
        """A graph that writes a part of a subclass bumps the version of the part, not that of the whole."""
        extra = 1 if self.outer.options.graph_counts_writes else 0
        inside = self.outer.meta.in_graph_mutated_indices
        infos = list(self.outer.meta.input_info)
        for i in inside:
            if isinstance(self.plans[i], SubclassCreationMeta):
                infos[i] = replace(infos[i], version_bumps=infos[i].version_bumps + extra)
        return replace(self.outer.meta, input_info=tuple(infos))

    def _gradients(self, gradients: tuple[Gradient, ...]) -> tuple[Gradient, ...]:
        found: list[Gradient] = []
        for gradient, one in zip(gradients, self.gradients, strict=True):
            if one is None or isinstance(one, PlainTensorMeta) or gradient.descriptor is None:
                found.append(gradient)
            else:
                found += [Gradient(d, None) for d in parts_of(gradient.descriptor, one.paths())]
        return tuple(found)

    def _graph(self, kept: list[int]) -> torch.fx.GraphModule:
        """The graph with one result per part, without the slots that are not needed."""
        module = graphs.copy(self.outer.graph_module)
        results, count = graphs.outputs(module.graph), len(self.outer.slots)
        slots = flat_results(results[:count])
        graphs.set_outputs(module.graph, (*(slots[k] for k in kept), *flat_results(results[count:])))
        return module

    def _evidence(self) -> tuple[Reason, ...]:
        descriptors = (*self.outer.graph_inputs, *(slot.descriptor for slot in self.outer.slots))
        named = zip(map(str, descriptors), (*self.plans, *self.slots), strict=True)
        found = ((name, one) for name, one in named if isinstance(one, SubclassCreationMeta))
        listed = ((name, one.type.__name__, ", ".join(name + path for path in one.paths())) for name, one in found)
        return tuple(Reason(name, f"it is a {kind}; the graph has {parts}") for name, kind, parts in listed)


def _part_info(whole: InputAliasInfo, part: Any) -> InputAliasInfo:
    """The facts about a part of an input: parts are written, but only the whole has a `grad_fn`."""
    written = part is not None and functional.is_functional(part) and functional.data_mutated(part)
    return InputAliasInfo(
        is_tensor=part is not None,
        is_leaf=True,
        requires_grad=False,
        requires_grad_after=False,
        mutates_data=written,
        mutations_hidden_from_autograd=whole.mutations_hidden_from_autograd,
        mutations_under_no_grad_or_inference_mode=whole.mutations_under_no_grad_or_inference_mode,
        keep_input_mutations=whole.mutation_type is MutationType.MUTATED_IN_GRAPH,
    )
