"""One functionalised run of the user's function: the forward half of the graph, and all facts about the call.

`run` returns a frozen value. Only its field `open` is live: the trace is left open, so that the backward can be traced
after it in the same graph (`backward.py`). Only one caller can continue it; a second one, such as a user who resumes
twice from an earlier stage, gets a new run.

Note [Inputs changed in place]
After a function has changed the shape or strides of a view in place, autograd regenerates the `grad_fn` of that view.
For other tensors it does not (see tracing/argument_state.py). So if such an argument is a view, the function runs again
on a view of it. The same holds for a leaf that gets another shape, because the gradient at its edge would have the
final shape, and for an argument of which a view was taken before, because that view does not change.
A view with another dtype may even be impossible to take from an argument that moved: autograd then raises when it
regenerates the `grad_fn` of a view that was taken before. In eager it starts from the base, which did not move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.fx as fx

from aotviz.ir.descriptors import InputDescriptor, parts_of
from aotviz.ir.forms import Tangent
from aotviz.ir.graphs import placeholders, prefix
from aotviz.ir.refusals import Refused, line_in, refuse, translated
from aotviz.ir.view_and_mutation import InputAliasInfo, Ref
from aotviz.ir.wrapper_subclasses import is_subclass
from aotviz.torch_private import pytree
from aotviz.torch_private.tensors import base_of
from aotviz.torch_private.tracers import swapped, telling_of_compilation
from aotviz.tracing import (
    arguments,
    facts_of_inputs,
    facts_of_outputs,
    functional,
    late_writes,
    registered_hooks,
    rules,
    storage_sizes,
    user_calls,
)
from aotviz.tracing.arguments import Arguments
from aotviz.tracing.backward import Autocasts, trace_gradients
from aotviz.tracing.checkpointing import tagging_checkpoints
from aotviz.tracing.events import Event, MetadataOp, TensorNumber, Viewed
from aotviz.tracing.fakes import asks_for_values, rng_preserved, strays
from aotviz.tracing.late_writes import LateWrites
from aotviz.tracing.ledger import Ledger
from aotviz.tracing.open_trace import OpenTrace, module_stack
from aotviz.tracing.program import Known, Program, WithMembers
from aotviz.tracing.ran import Ran, told_of_move
from aotviz.tracing.results import Results
from aotviz.tracing.run_listener import RunListener
from aotviz.tracing.views_of_no_grad_bases import Watch


def run(program: Program) -> Run:
    """Run the function, and again as long as a run finds out too late what it should have known."""
    while isinstance(found := _attempt(program), Known):
        program = replace(program, known=found)
    return found


def _attempt(program: Program) -> Run | Known:
    """Run the function once. Returns what the next run must know, if this one is of no use.

    Raises:
        Refused: torch raised an error which has another cause in a trace, or the program is refused.
    """
    logs_views = program.known.logs_views or any(map(is_subclass, program.args))
    opened = OpenTrace(program.fake_mode, program.decompositions, not program.is_graph, Ledger(), logs_views)
    given: Arguments | None = None
    try:
        with rng_preserved(), opened.active("is_forward"), module_stack(program.root_module):
            given = arguments.of_program(program, opened)
            listener = RunListener(given, opened)
            told = user_calls.told(listener, map(type, filter(is_subclass, program.args)))
            with tagging_checkpoints(listener.checkpointed), told:
                found = _called(given, opened)
            opened.close_effects()
    except (RuntimeError, ValueError, IndexError) as error:
        known = _learned(error, program, opened.ledger, given)
        if known is None:
            _refuse_failed_move(error, opened, given)
            if strays(error):
                raise
            with translated():
                raise
        return known
    if isinstance(found, Run):
        storage_sizes.put_into(opened, zip(found.args, program.args, strict=True), found.outputs)
        return replace(found, length=len(opened.graph.nodes))
    return found


def _learned(error: Exception, program: Program, ledger: Ledger, given: Arguments | None) -> Known | None:
    """What an error of the user's function tells about the function, if it is not known yet."""
    known = program.known
    if asks_for_values(error):  # see Note [Values asked for]
        return None if known.is_compiling or program.is_graph else replace(known, is_compiling=True)
    if given is None or isinstance(error, NotImplementedError):  # a refusal
        return None
    moved = frozenset(i for i in map(given.position, ledger.moved_views()) if i is not None)
    return replace(known, as_views=known.as_views | moved) if moved - known.as_views else None


def _refuse_failed_move(error: Exception, opened: OpenTrace, given: Arguments | None) -> None:
    """Refuse a metadata op after which autograd raised this, when it regenerated a `grad_fn`."""
    event = opened.ledger.moved_view()
    if event is None or given is None:
        return
    of_a_view = base_of(opened.ledger.tensors[event.tensor]) is not None or opened.ledger.is_viewed(event.tensor)
    if isinstance(error, RuntimeError):
        of_the_move = "returned an invalid gradient" in str(error)  # of an inner autograd.grad
    else:
        of_the_move = (isinstance(error, IndexError) and of_a_view) or "Cannot view a tensor" in str(error)
    if of_the_move:
        raise _refused_move(event, opened, given) from error


def _refused_move(event: MetadataOp, opened: OpenTrace, given: Arguments) -> Refused:
    sets, names = told_of_move(event, opened, given)
    return Refused("alias is given another storage" if sets else "metadata op on a view", *names)


def _called(given: Arguments, opened: OpenTrace) -> Run | Known:
    """Call the function, and read the facts."""
    program, known = given.program, given.program.known
    if program.made_no_grad_views is not None:
        program.made_no_grad_views.clear()
    watch = Watch(opened.ledger, given.no_grad_views, program.made_no_grad_views)
    watching = watch if watch.is_needed else nullcontext()
    telling = telling_of_compilation() if known.is_compiling else nullcontext()
    grad_mode = torch.is_grad_enabled()
    with swapped(opened.ledger, open=True):
        with watching, telling:
            result = program.fn(*given.args)
        watch.look()
    whole = result if isinstance(result, WithMembers) else WithMembers(result, {}, {})
    grad_mode_after = torch.is_grad_enabled()
    torch.set_grad_enabled(grad_mode)
    return _read(
        given.replaced(whole.stand_ins), opened, whole, watch, grad_mode_after if grad_mode_after != grad_mode else None
    )


def _read(
    given: Arguments, opened: OpenTrace, whole: WithMembers, watch: Watch, grad_enabled_after: bool | None
) -> Run | Known:
    """Read the facts about a run. The order of the refusals decides which of several is named."""
    program, known, ledger, args = given.program, given.program.known, opened.ledger, given.args
    outputs, out_spec = pytree.tree_flatten(whole.result)
    if not opened.logs_views and (ledger.meets_subclass or any(map(is_subclass, outputs))):
        return replace(known, logs_views=True)
    paths, _ = pytree.tree_flatten_with_path(whole.result)
    hooked = registered_hooks.hooked_inside(ledger, (*args, *whole.members.values(), *outputs))
    outputs += hooked
    names = (f"output{pytree.keystr(path)}" for path, _ in paths)
    output_names = (*names, *(f"hooked_{number + 1}" for number in range(len(hooked))))
    ran = Ran(
        **vars(given),
        open=opened,
        members=whole.members,
        shared=whole.shared,
        members_with_grad_fn=whole.members_with_grad_fn,
        outputs=tuple(outputs),
        out_spec=out_spec,
        output_names=output_names,
        input_info=tuple(_input_facts(given, opened, whole, outputs, position) for position in range(len(args))),
    )
    refuse(rules.OF_RUN, ran)
    if ran.turned_on and not program.with_gradients:
        return replace(known, turns_grad_on=True)
    facts = facts_of_outputs.Classifier(ran).facts()
    if facts.deferred_hook is not None:
        return replace(known, deferred_hooks=known.deferred_hooks | {facts.deferred_hook})
    if not torch.is_inference_mode_enabled():
        edges = (functional.edge(args[i]) if i in ran.turned_on else edge for i, edge in enumerate(given.edges))
        ran = replace(ran, edges=tuple(edges))
    found = Run(
        **vars(ran),
        output_facts=facts,
        forgotten=tuple(watch.forgotten),
        grad_enabled_after=grad_enabled_after,
        turned=None,
        length=len(opened.graph.nodes),
    )
    refuse(rules.OF_RESULTS, found)
    return found


def _input_facts(
    given: Arguments, opened: OpenTrace, whole: WithMembers, outputs: Sequence[Any], position: int
) -> InputAliasInfo:
    """The facts about an input. The ledger gets the metadata op after which its gradients would differ from eager's."""
    program, ledger = given.program, opened.ledger
    argument, fake, before = given.args[position], program.args[position], given.before[position]
    if position in whole.stand_ins:
        info = facts_of_inputs.of_stand_in(argument, fake, before)
    elif isinstance(argument, torch.Tensor):
        seen = facts_of_inputs.Seen(argument, fake, before, ledger, program.name(position), outputs)
        refuse(rules.OF_INPUT, seen)
        info = facts_of_inputs.facts(seen, program.keep_input_mutations)
        ledger.unrepeatable = facts_of_inputs.unrepeatable(seen) or ledger.unrepeatable
    else:
        info = InputAliasInfo(False, True, False, False, keep_input_mutations=program.keep_input_mutations)
    if position in whole.hidden_counters:
        info = replace(info, version_bumps=int(info.mutated))
    used = facts_of_inputs.used_before_moving(given, position, info, ledger, opened.graph)
    asked = position in ledger.differentiated
    return replace(info, used_before_moving=used, differentiated=asked)


@dataclass(frozen=True, eq=False)
class Run(Results):
    """A run that can be continued."""

    grad_enabled_after: bool | None  # the grad mode in which the function leaves the thread, if it changes it
    length: int  # of the forward's graph, in nodes

    @property
    def values_before(self) -> Sequence[Any]:
        """The inputs' fakes before the call."""
        return self.program.args

    def found(self) -> dict[str, Any]:
        """The facts about the run, as fields of a ViewAndMutationMeta."""
        return {
            "input_info": self.input_info,
            "output_info": self.output_facts.infos,
            "intermediate_bases": self.output_facts.base_info,
            "replay": self.output_facts.replay,
            "counts_with": {Ref("member", p): Ref("input", g) for p, g in self.shared.items()},
        }

    def placing_views(self) -> AbstractContextManager[None]:
        """If the function wrote through `as_strided`, so do its gradients, and the ledger must watch these too."""
        return swapped(self.ledger, open=bool(self.ledger.placed))

    def differentiated(
        self, outputs: Mapping[int, Any], edges: Sequence[Any], autocast: Autocasts
    ) -> tuple[tuple[Tangent, ...], tuple[Any, ...], tuple[Any, ...], LateWrites]:
        """What `trace_gradients` returns, and what the backward writes to inputs.

        Raises:
            Refused: gradients would differ from eager's; see Note [Views changed in place] in ledger.py.
        """
        try:
            watch = late_writes.Watch(self.open, self.values_before, self.args)
            with self.placing_views(), translated(line_in(self.open.graph)):
                found = trace_gradients(self.open, outputs, edges, autocast)
            written = watch.written(self.program.name)
        except Refused:
            raise
        except (RuntimeError, IndexError, ValueError) as error:
            event = self.ledger.moved_view()
            if event is None:
                raise
            raise _refused_move(event, self.open, self) from error
        refuse(rules.OF_GRADIENTS, self)
        return *found, written

    def reshaped_leaves(self, gradients: Sequence[Any]) -> tuple[int, ...]:
        """Leaves with gradients that change shape before any other use: eager's gradients have the new shape."""
        found = []
        for i, info in enumerate(self.input_info):
            if gradients[i] is not None and facts_of_inputs.is_reshaped_leaf(self.args[i], self.program.args[i], info):
                number = self.ledger.number(self.args[i])
                first = next((event for event in self.ledger.events if self._uses(event, number)), None)
                if isinstance(first, MetadataOp):
                    found.append(i)
                    # It did not require grad yet, or the engine sums its gradient to the old shape.
                    if info.turned_on or self.program.args[i].numel() == 1:
                        raise _refused_move(first, self.open, self)
        return tuple(found)

    def _uses(self, event: Event, tensor: TensorNumber) -> bool:
        if isinstance(event, Viewed):
            return event.mode.grad and not event.detaches and self.ledger.root(event.source) == tensor
        return isinstance(event, MetadataOp) and event.tensor == tensor

    def value(self, kind: str, index: int) -> Any:
        """The result in a slot: a mutated input, the data left in its storage, an output or an intermediate base."""
        if kind == "left":
            left = self.ledger.left[self.ledger.number(self.args[index])]
            return None if left is None else left.value
        return {"mutation": self.args, "output": self.outputs, "base": self.output_facts.bases}[kind][index]

    def graph(self) -> fx.Graph:
        """The forward's nodes, without those that a later stage traced after them."""
        graph = self.open.graph
        return prefix(graph, self.length) if len(graph.nodes) != self.length else graph

    def closed_from(self) -> Mapping[str, fx.Node]:
        """The nodes of the trace, by the names that they have in the closed graph."""
        return {node.name: node for node in self.open.graph.nodes}

    def describe(self, descriptors: Sequence[InputDescriptor]) -> None:
        """Put a descriptor on each placeholder. `descriptors` are one per graph input."""
        pairs = zip(descriptors, self.plans, strict=True)
        parts = (part for descriptor, plan in pairs for part in parts_of(descriptor, plan.paths()))
        for node, part in zip(placeholders(self.open.graph), parts, strict=False):
            node.meta["desc"] = part

    def closed(self, results: Sequence[Any]) -> fx.GraphModule:
        """The graph module that returns `results`. Nothing can be traced after it."""
        graph = self.open.graph
        output = graph.output(tuple(results))
        output.meta["desc"] = [None] * len(results)
        return self.open.graph_module(graph)

    def take(self, known: Known | None = None) -> Run:
        """This run, to be continued. A second caller, or one with something else `known`, gets a new run."""
        if known is None and self.open.take():
            self.__post_init__()
            return self
        again = self.rerun(known=known or self.program.known)
        for node, described in zip(placeholders(again.open.graph), placeholders(self.open.graph), strict=False):
            node.meta["desc"] = described.meta.get("desc")
        return again.take()

    def rerun(self, **changes: Any) -> Run:
        """Trace the same program with `changes`, such as another calling convention."""
        return run(replace(self.program, **changes))
