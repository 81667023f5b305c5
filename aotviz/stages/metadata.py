"""Run the forward once, functionalised, and read the facts (docs/design/system.md B3, A1-A4).

The run is also the first half of the graph: it stays open, and the joint stage continues it.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import torch

from aotviz.ir import effects
from aotviz.ir.descriptors import PlainOutput
from aotviz.ir.forms import FlatCall, Reason, TracedCall
from aotviz.ir.refusals import Refused
from aotviz.ir.storages import has_no_root
from aotviz.ir.view_and_mutation import InputAliasInfo, MutationType, OutputType, ViewAndMutationMeta
from aotviz.torch_private.context import autocast_enabled
from aotviz.torch_private.tensors import base_of
from aotviz.tracing import forward as tracing
from aotviz.tracing import functional, views_of_no_grad_bases
from aotviz.tracing.events import Hooked, MetadataOp
from aotviz.tracing.forward import Run
from aotviz.tracing.functional import is_view_with_history
from aotviz.tracing.program import Program
from aotviz.tracing.views import layout


def run(call: FlatCall) -> TracedCall:
    program = Program(
        fn=call.fn,
        args=call.args,
        names=tuple(d.name for d in call.descriptors),
        fake_mode=call.fake_mode,
        decompositions=None if call.options.selective_decompose else call.options.decompositions,
        root=call.root,
        is_graph=call.is_graph,
        keep_input_mutations=call.options.keep_inference_input_mutations,
    )
    forward = _first_run(call, program)
    graded = torch.is_grad_enabled()
    infos = enumerate(forward.input_info)
    moves = (i for i, info in infos if info.requires_grad and _only_moves(info) and (graded or not info.turned_off))
    moved = frozenset(filter(forward.wants_view, moves))
    _refuse_written_views(call, forward)
    known = forward.program.known
    if moved - known.as_views:  # see Note [Inputs changed in place]
        known = replace(known, as_views=moved | known.as_views)
        forward = forward.rerun(known=known)
        known = forward.program.known
    asking = {**known.no_grad_views, **(_lose_views(call, forward) if graded else {})}
    no_grad_views = {i: others for i, others in asking.items() if has_no_root(call.args[i])}
    if graded:
        forward = replace(forward, unrepeatable=_turned_base(call, forward) or forward.unrepeatable)
        _refuse_views_set_elsewhere(call, forward)
        _refuse_hooked_views(call, forward)
    if no_grad_views != known.no_grad_views:
        forward = forward.rerun(known=replace(known, no_grad_views=no_grad_views))
    infos = enumerate(forward.input_info)
    asks = tuple(replace(info, asks_for_root=i in asking or info.history_ends) for i, info in infos)
    forward = replace(forward, input_info=asks)
    forward.describe(call.descriptors)
    meta = ViewAndMutationMeta(
        **forward.found(),
        grad_enabled=graded,
        grad_enabled_after=forward.grad_enabled_after,
        static_input_indices=call.static_inputs,
        deterministic=torch.are_deterministic_algorithms_enabled(),
        autocast=autocast_enabled(),
    )
    outputs = tuple(PlainOutput(index, name) for index, name in enumerate(forward.output_names))
    return call.then(
        TracedCall,
        evidence=_evidence(call, forward, meta, outputs),
        meta=meta,
        forward=forward,
        graph_inputs=call.descriptors,
        outputs=outputs,
        out_spec=forward.out_spec,
        rewrites=(),
        user_input_info=meta,
        source=call,
    )


def _first_run(call: FlatCall, program: Program) -> Run:
    """Trace each duplicate as a separate tensor, so that the program is valid for other calls too. If that fails,
    because the function relies on both having moved, trace them as one tensor.

    Before that, if autograd refuses to resize, write or use a view because it requires grad: one that is taken under
    no_grad does not, if the argument is itself a view of a tensor that does not; see
    tracing/views_of_no_grad_bases.py."""
    try:
        return tracing.run(program)
    except (RuntimeError, IndexError, ValueError) as error:
        bare = {i: () for i, one in enumerate(call.args) if _is_tracked(one) and has_no_root(one)}
        if bare and not program.known.no_grad_views and _requires_grad(error):
            with contextlib.suppress(RuntimeError, IndexError, ValueError):
                return _first_run(call, replace(program, known=replace(program.known, no_grad_views=bare)))
        if all(same is None for same in call.duplicate_of):
            raise

    def merged(*flat: Any) -> Any:
        pairs = zip(flat, call.duplicate_of, strict=True)
        return program.fn(*[value if first is None else flat[first] for value, first in pairs])

    return tracing.run(replace(program, fn=merged))


def _is_tracked(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _requires_grad(error: Exception) -> bool:
    """Whether autograd raised this because a view requires grad."""
    stale = isinstance(error, Refused) and error.reason == "stale view"
    raised = ("cannot resize variables that require grad", "is a view and is being modified inplace")
    return stale or any(text in str(error) for text in raised)


def _only_moves(info: InputAliasInfo) -> bool:
    return info.mutates_metadata and not (info.mutates_data or info.mutates_storage_metadata)


def _refuse_written_views(call: FlatCall, forward: Run) -> None:
    """Refuse an argument that is changed by a metadata op, is written too, and of which the function got a view because
    it fails otherwise: the write would give that view a `grad_fn`, and not the argument."""
    for i in forward.program.known.as_views:
        moved = next(forward.ledger.metadata_ops(forward.ledger.number(forward.args[i])), None)
        if moved is not None and (forward.input_info[i].mutates_data or forward.input_info[i].mutates_storage_metadata):
            forward.describe(call.descriptors)
            raise forward.refusal(moved)


def _lose_views(call: FlatCall, forward: Run) -> dict[int, tuple[int, ...]]:
    """The inputs whose gradients depend on their base, with the other inputs whose writes bump their version counter.

    See tracing/views_of_no_grad_bases.py.

    Raises:
        Refused: autograd sees the write to one of these others, so that later uses get a `grad_fn` from it.
    """
    infos = forward.input_info
    found: dict[int, tuple[int, ...]] = {}
    for position, same in _occurrences(call).items():
        if not infos[position].requires_grad:
            continue
        others = {i: _counting_with(call, forward, i) for i in same}
        used = any(_is_used_after(forward, i, others[i]) for i in same)
        written = (infos[j] for j in others[position] if j not in same and infos[j].mutates_data)
        seen = any(info.requires_grad_after and not info.mutations_hidden_from_autograd for info in written)
        if used and seen and has_no_root(call.args[position]):
            reason = "leaf that is a view" if infos[position].is_leaf else "view whose base does not require grad"
            raise Refused(reason, _name(call, position))
        if used or any(infos[i].asks_for_root for i in same):
            found.update((i, tuple(others[i]) if used or not infos[position].is_leaf else ()) for i in same)
    return found


def _turned_base(call: FlatCall, forward: Run) -> MetadataOp | None:
    """The metadata op on the base of an input after which that input's gradients would differ from eager's."""
    found = None
    for position, same in _occurrences(call).items():
        if forward.input_info[position].requires_grad and is_view_with_history(call.args[position]):
            others = [j for j in _counting_with(call, forward, position) if j not in same]
            found = _turned_before_use(call, forward, others, same) or found
    return found


def _occurrences(call: FlatCall) -> dict[int, list[int]]:
    """Position of an input -> itself and its duplicates."""
    found: dict[int, list[int]] = {}
    for i, first in enumerate(call.duplicate_of):
        found.setdefault(i if first is None else first, []).append(i)
    return found


def _counting_with(call: FlatCall, forward: Run, position: int) -> list[int]:
    """The other inputs that are written and share the version counter of this one, its duplicates included."""
    written = (j for j, info in enumerate(forward.input_info) if info.version_bumps > 0 and j != position)
    return [j for j in written if call.counter_of[j] == call.counter_of[position]]


def _is_used_after(forward: Run, position: int, others: list[int]) -> bool:
    """Whether an input, or an earlier view of it, is used after one of the others was written. For a leaf, only its
    views count: the leaf itself does not change."""
    argument, written = forward.args[position], [forward.args[j] for j in others]
    ledger, graph = forward.ledger, forward.open.graph
    if forward.input_info[position].is_leaf:
        return views_of_no_grad_bases.used_view(ledger, graph, argument, written)
    return views_of_no_grad_bases.used_after(ledger, graph, forward.graph_input(position)[0], argument, written)


def _name(call: FlatCall, position: int) -> str:
    return repr(call.descriptors[position].name)


def _turned_before_use(call: FlatCall, forward: Run, others: list[int], same: list[int]) -> MetadataOp | None:
    """The metadata op under no_grad that changed the order of a base's elements before one of its views was used. In
    eager, the gradient of the view then goes to other elements. `same` are the view and its duplicates.

    Raises:
        Refused: the view is written after any such change.
    """
    ledger, found = forward.ledger, None
    for j in others:
        given = ledger.given.get(ledger.number(forward.args[j]))
        if given is None or not given.reordered or base_of(call.args[j]) is not None:
            continue
        turned = [forward.args[j]]
        for i in same:
            view, node = forward.args[i], forward.graph_input(i)[0]
            if given.unseen is None:
                moved = views_of_no_grad_bases.written_after_move(ledger, view, turned)
                if moved is not None:
                    forward.describe(call.descriptors)
                    raise forward.refusal(moved)
            elif views_of_no_grad_bases.used_after(ledger, forward.open.graph, node, view, turned):
                found = given.unseen
    return found


def _refuse_hooked_views(call: FlatCall, forward: Run) -> None:
    """Refuse a view on which the function registers a gradient hook, and which it writes in grad mode. In eager, the
    write gives the view another `grad_fn`, and later gradients bypass the hook."""
    for i in forward.hooked_inputs():
        info = forward.input_info[i]
        if info.mutates_data and not info.mutations_hidden_from_autograd and is_view_with_history(call.args[i]):
            raise Refused("hook on an alias", _name(call, i))


def _refuse_views_set_elsewhere(call: FlatCall, forward: Run) -> None:
    """Refuse a view that is given another storage with `set_`, and used. Autograd still considers it a view of the same
    base, with the layout of its new storage. After an assignment to `.data`, the same happens at the next write, and
    the effect depends on when autograd last read its `grad_fn`."""
    for i, (info, argument) in enumerate(zip(forward.input_info, call.args, strict=True)):
        if info.assigns_data and info.version_bumps and is_view_with_history(argument):
            raise Refused("data is assigned", _name(call, i))
        moves = info.mutates_storage_metadata and not info.assigns_data and info.requires_grad
        if not moves or base_of(argument) is None:
            continue
        given = forward.open.node_of(functional.inner(forward.args[i]))
        used = (user for user in given.users if user.op != "output" and not user.meta.get("under_no_grad"))
        if info.layout_after != layout(argument) and any(used):
            raise Refused("set_ before a write", _name(call, i))


def _evidence(
    call: FlatCall, forward: Run, meta: ViewAndMutationMeta, outputs: tuple[PlainOutput, ...]
) -> tuple[Reason, ...]:
    reasons: list[Reason] = []
    if forward.program.known.is_compiling:
        why = "it is True: otherwise the function asks for the value of a tensor"
        reasons.append(Reason("torch.compiler.is_compiling()", why))
    for descriptor, info in zip(call.descriptors, meta.input_info, strict=True):
        if info.mutation_type is MutationType.NOT_MUTATED:
            continue
        said = (
            ("its data is written", info.mutates_data),
            ("its storage is replaced by set_", info.mutates_storage_metadata),
            ("its storage is resized", info.resizes_storage),
            ("its shape or strides change", info.mutates_metadata and not info.mutates_storage_metadata),
        )
        what = " and ".join(text for text, holds in said if holds)
        how = " under no_grad" if info.mutations_under_no_grad_or_inference_mode else ""
        how = " through a detached alias" if info.mutations_hidden_from_autograd and info.mutates_data else how
        where = info.mutation_type.value if info.mutates_data else "the wrapper does the same to it after the graph ran"
        reasons.append(Reason(descriptor.name, f"{what}{how}; {where}"))
    for output, fact in zip(outputs, meta.output_info, strict=True):
        if fact.same_object_as is not None:
            reasons.append(Reason(output.name, f"it is the same object as {outputs[fact.same_object_as].name}"))
        elif fact.output_type is not OutputType.non_alias:
            reasons.append(Reason(output.name, f"it is {fact.output_type.value}"))
    for operator in effects.operators(forward.open.graph):
        reasons.append(Reason(operator, "it has side effects: a token keeps its calls, and their order"))
    for event in forward.ledger.events:
        if isinstance(event, Hooked) and event.why:
            why = f"Python calls it in each backward, so the backward is split there: {event.why}"
            reasons.append(Reason("gradient hook", why))
    if meta.grad_enabled_after is not None:
        reasons.append(Reason("grad mode", f"the call leaves it {'on' if meta.grad_enabled_after else 'off'}"))
    return tuple(reasons)
