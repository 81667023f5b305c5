"""One functionalised run of the user's function: the forward half of the graph, and all facts about the call.

The trace is left open, so that the backward can be traced after it in the same graph (`backward.py`). Only one caller
can continue it; a second one, such as a user who resumes twice from an earlier stage, gets a new run.

Note [Gradient edges before the run]
A function may mutate the inputs that its outputs are differentiated with respect to. So their gradient edges are taken
before it runs; no clone in the graph is needed to refer to the original input.

Note [Moved inputs]
After a function has changed the shape or strides of a view in place, autograd regenerates the `grad_fn` of that view.
For other tensors it does not (see tracing/given.py). So if such an argument is a view, the function runs again on a
view of it. The same holds for a leaf that gets another shape, because the gradient at its edge would have the final
shape, and for an argument of which a view was taken before, because that view does not change.
A view with another dtype may even be impossible to take from an argument that moved: autograd then raises when it
regenerates the `grad_fn` of a view that was taken before. In eager it starts from the base, which did not move.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import torch

from aotviz.ir.descriptors import InputDescriptor, parts_of
from aotviz.ir.graphs import placeholders, prefix
from aotviz.ir.refusals import Refused, line_in, translated
from aotviz.ir.subclass_meta import plan
from aotviz.ir.view_and_mutation import Data, InputAliasInfo, MutationType, Ref, View
from aotviz.ir.wrapper_subclasses import is_subclass
from aotviz.torch_private import dynamo, operators, pytree
from aotviz.torch_private.tensors import base_of
from aotviz.torch_private.tracers import telling_of_compilation
from aotviz.tracing import facts, functional, late_writes, leaks, registered_hooks, storage_sizes, user_calls
from aotviz.tracing.checkpointing import tagging_checkpoints
from aotviz.tracing.fakes import asks_for_values, rng_preserved
from aotviz.tracing.given import Kind
from aotviz.tracing.ledger import Event, Hooked, Ledger, Marked, Moved, TracedHook, Viewed
from aotviz.tracing.open_trace import OpenTrace, module_stack
from aotviz.tracing.rootless import Rootless, depends_on_later_use, viewed_like


@dataclass(frozen=True)
class Program:
    """The function to run: `fn(*args)` returns any pytree. `args` are fakes, one per graph input."""

    fn: Callable[..., Any]
    args: Sequence[Any]
    fake_mode: Any
    decompositions: Mapping[Any, Any] | None
    root: torch.nn.Module | None  # whose module paths the nodes carry
    is_graph: bool  # `fn` interprets a graph whose nodes bring their own stacks
    keep_input_mutations: bool
    names: Sequence[str] = ()  # the user's names of the inputs
    fresh: frozenset[int] = frozenset()  # inputs that the function gets as a view; see Note [Moved inputs]
    # Input -> the other inputs whose writes bump its version counter; see tracing/rootless.py.
    rootless: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    logs_views: bool = False  # record views of subclasses, which the graph does not show
    turns_on: bool = False  # the function calls requires_grad_() on an input, and none required grad before
    tells: bool = False  # `torch.compiler.is_compiling()` is True; see Note [Values asked for]
    keeps_histories: bool = False  # retain the graph in inner autograd.grad; see Note [Differentiated inside]
    put_off: frozenset[int] = frozenset()  # numbers of the hooks on results; see tracing/registered_hooks.py
    made_rootless: list[Rootless] | None = None  # `fn` appends those that it creates itself

    def rootless_at(self, place: Mapping[int, int]) -> dict[int, tuple[int, ...]]:
        """`rootless` for inputs that have moved: `place` maps the old positions to the new ones."""
        moved = {place[i]: {place[j] for j in others} for i, others in self.rootless.items() if i in place}
        return {i: tuple(others - {i}) for i, others in moved.items()}


@dataclass(frozen=True)
class StandIn:
    """A tensor that a rewrite created inside the function to replace a graph input, and its initial state."""

    tensor: Any
    before: functional.Before
    edge: Any  # where its gradient goes


@dataclass(frozen=True)
class WithMembers:
    """What a traced function returns if a rewrite created some of the user's inputs inside it."""

    result: Any
    members: Mapping[int, Any]  # position among the user's inputs -> the tensor that replaced it
    shared: Mapping[int, int]  # member -> the graph input whose version counter it shares
    # Graph input whose elements are never read -> the tensor that has its gradient edge.
    stand_ins: Mapping[int, StandIn] = field(default_factory=dict)
    uncounted: frozenset[int] = frozenset()  # graph inputs whose version counter the caller cannot see
    grown: frozenset[int] = frozenset()  # members whose current grad_fn is known to autograd


# The attributes without tensors that user code may keep.
_WITHOUT_TENSORS = ("program", "values_before", "trace", "plans", "input_info", "edges", "part_edges")


class _RunsAgain(Exception):
    """The function must run again with `changes` to its program: what this run found out too late."""

    def __init__(self, **changes: Any) -> None:
        super().__init__(changes)
        self.changes = changes


def _has_another_reason(error: Exception) -> bool:
    """Whether a failed run is a refusal, or needs a value that no trace has."""
    return isinstance(error, NotImplementedError) or asks_for_values(error)


class ForwardTrace:
    """An open trace of the forward, with all facts about it."""

    def __init__(self, program: Program) -> None:
        leaks.own(self, *_WITHOUT_TENSORS)
        while True:
            try:
                self._trace(program)
                return
            except _RunsAgain as found:
                program = replace(program, **found.changes)
            except registered_hooks.PutOff as found:
                program = replace(program, put_off=program.put_off | {found.number})
            except RuntimeError as error:  # see Note [Values asked for]
                if program.tells or program.is_graph or not asks_for_values(error):
                    raise
                program = replace(program, tells=True)

    def _trace(self, program: Program) -> None:
        self.program = program
        self.values_before = program.args  # of the inputs: their fakes before the call
        self.ledger = Ledger()
        leaks.own(self.ledger)
        self.trace = trace = OpenTrace(program.fake_mode, program.decompositions, not program.is_graph, self.ledger)
        trace.logs_views = program.logs_views or any(map(is_subclass, program.args))
        self._taken = False
        requiring = any(isinstance(a, torch.Tensor) and a.requires_grad for a in program.args)
        self.with_gradients = requiring or program.turns_on
        names = map("primals_{}".format, count(1)) if self.with_gradients else map("arg{}_1".format, count())
        with rng_preserved(), trace.active("is_forward"), module_stack(program.root):
            self.plans = tuple(  # one per graph input
                plan(value, lambda part: trace.placeholder(next(names), part), trace.knows) for value in program.args
            )
            told = user_calls.told(self, storage_sizes.Storages(trace), map(type, filter(is_subclass, program.args)))
            with tagging_checkpoints(self._checkpointed), translated(), told:
                try:
                    self._run()
                except (RuntimeError, ValueError, IndexError) as error:
                    moved_views = frozenset(i for i in map(self._position, self.ledger.moved_views()) if i is not None)
                    if moved_views - program.fresh and not _has_another_reason(error):
                        raise _RunsAgain(fresh=program.fresh | moved_views) from error
                    event = self.ledger.moved_view()
                    if event is None or isinstance(error, RuntimeError):
                        raise
                    moved = event.tensor
                    of_a_view = base_of(moved) is not None or self.ledger.is_viewed(moved)
                    if not (isinstance(error, IndexError) and of_a_view) and "Cannot view a tensor" not in str(error):
                        raise
                    raise self.refusal(event) from error
            trace.close_effects()
        storage_sizes.put_into(trace, self.ledger, zip(self.args, program.args, strict=True), self.outputs)
        self.forward_length = len(trace.graph.nodes)

    def _run(self) -> None:
        args = [self.trace.functional(a) for a in self.program.args]
        self.forgotten: list[Any] = []  # views that lost their autograd connection to a leaf
        for i in self.program.rootless:
            value = self.program.args[i]
            args[i] = viewed_like(self.trace.without_history(value), value)
        self.edges = [functional.edge(a) for a in args]  # see Note [Gradient edges before the run]
        self.part_edges = facts.part_edges(args)
        with torch.enable_grad():
            args = [a.view(a.shape) if i in self.program.fresh else a for i, a in enumerate(args)]
        self.args = args
        given = zip(self.program.args, args, strict=True)
        self.leaves = {id(a): a for was, a in given if isinstance(a, torch.Tensor) and a.requires_grad and was.is_leaf}
        self.hooks_seen = 0
        self.together: dict[Any, Any] = {}  # call of `register_multi_grad_hook` -> its handle
        before = [functional.Before.of(a) for a in args]
        self.rootless = []
        for i, others in self.program.rootless.items():
            counting = tuple((args[j], before[j]) for j in others)
            self.rootless.append(Rootless(args[i], not self.program.args[i].is_leaf, before[i], counting))
        if self.program.made_rootless is not None:
            self.program.made_rootless.clear()
        for i, (value, argument) in enumerate(zip(self.program.args, args, strict=True)):
            self.ledger.give(argument, value, i in self.program.fresh)
        grad_mode = torch.is_grad_enabled()
        self.ledger.open = True
        forgets = self.program.rootless or self.program.made_rootless is not None
        forgetting = user_calls.BeforeEachCall(self._forget_leaves) if forgets else nullcontext()
        keeping = user_calls.RetainingGraphs() if self.program.keeps_histories else nullcontext()
        with forgetting, keeping, telling_of_compilation() if self.program.tells else nullcontext():
            result = self.program.fn(*args)
        self._forget_leaves()
        self.ledger.open = False
        whole = result if isinstance(result, WithMembers) else WithMembers(result, {}, {})
        result, self.shared = whole.result, whole.shared
        for i, made in whole.stand_ins.items():
            args[i], before[i], self.edges[i] = made.tensor, made.before, made.edge
        self.grad_enabled_after = torch.is_grad_enabled() if torch.is_grad_enabled() != grad_mode else None
        torch.set_grad_enabled(grad_mode)
        self.outputs, self.out_spec = pytree.tree_flatten(result)
        if not self.trace.logs_views and (self.ledger.meets_subclass or any(map(is_subclass, self.outputs))):
            raise _RunsAgain(logs_views=True)
        self.outputs += registered_hooks.hooked_inside(self.ledger, (*args, *whole.members.values(), *self.outputs))
        paths, _ = pytree.tree_flatten_with_path(result)
        names = (f"output{pytree.keystr(path)}" for path, _ in paths)
        hooked = (f"hooked_{number + 1}" for number in range(len(self.outputs) - len(paths)))
        self.output_names = (*names, *hooked)
        self.args, self.members, self.grown = args, whole.members, whole.grown
        self.input_info = tuple(self._info(i, was, whole) for i, was in enumerate(before))
        self._refuse_grad_changes()
        turned = [i for i, info in enumerate(self.input_info) if info.turned_on]
        if turned and not self.with_gradients:
            raise _RunsAgain(turns_on=True)
        if not torch.is_inference_mode_enabled():
            self.edges = [functional.edge(args[i]) if i in turned else edge for i, edge in enumerate(self.edges)]
        spelled = (self.output_names, self.program.names)
        self.output_facts = facts.Outputs(self.ledger, args, whole.members, self.outputs, spelled, self.input_info)
        self.output_facts.classify()
        self._refuse_unmarked_views(turned)
        self._refuse_forgotten_views()
        if not self.with_gradients:
            self._refuse_new_history()

    def _info(self, position: int, before: functional.Before, whole: WithMembers) -> InputAliasInfo:
        argument, fake = self.args[position], self.program.args[position]
        if position in whole.stand_ins:
            info = facts.of_stand_in(argument, fake, before)
        else:
            name, keep = self._name(position), self.program.keep_input_mutations
            info = facts.of_input(argument, fake, before, keep, self.ledger, name, self.outputs)
        if position in whole.uncounted:
            info = replace(info, version_bumps=int(info.mutated))
        return replace(info, used_before_moving=self._used_before_moving(position, info))

    def _name(self, position: int) -> str:
        return repr(self.program.names[position]) if position < len(self.program.names) else "an input"

    def _position(self, tensor: Any) -> int | None:
        """The position of a tensor among the arguments of the trace, or None."""
        return next((i for i, argument in enumerate(self.args) if argument is tensor), None)

    def stand_in(self, tensor: Any) -> Any:
        """The fake that an argument of the trace was made from; it has the attributes that the user set."""
        position = self._position(tensor) if self.ledger.open else None
        return None if position is None else self.program.args[position]

    def _forget_leaves(self) -> None:
        known = [*self.rootless, *(self.program.made_rootless or ())]
        leaves = {id(one.argument) for one in known if not one.ends}
        for one in known:
            self.forgotten += one.look(self.ledger, leaves)

    def found(self) -> dict[str, Any]:
        """The facts about the run, as fields of a ViewAndMutationMeta."""
        known = self.output_facts
        return {
            "input_info": self.input_info,
            "output_info": tuple(known.infos),
            "intermediate_bases": known.base_info,
            "replay": known.replay,
            "counts_with": {Ref("member", p): Ref("input", g) for p, g in self.shared.items()},
        }

    def placing_views(self) -> AbstractContextManager[None]:
        """If the function wrote through `as_strided`, so do its gradients, and the ledger must watch these too."""
        return user_calls.placed(self.ledger, open=bool(self.ledger.placed))

    @contextmanager
    def differentiating(self) -> Iterator[None]:
        """Refuse gradients that would differ from eager's; see Note [Moved views] in ledger.py. What the backward
        writes to inputs becomes `late_writes`."""
        try:
            with late_writes.traced(self, self._name), self.placing_views(), translated(line_in(self.trace.graph)):
                yield
        except Refused:
            raise
        except (RuntimeError, IndexError, ValueError) as error:
            event = self.ledger.moved_view()
            if event is None:
                raise
            raise self.refusal(event) from error
        if self.ledger.unrepeatable is not None:
            raise self.refusal(self.ledger.unrepeatable)

    @contextmanager
    def _checkpointed(self) -> Iterator[None]:
        """Around a checkpointed region: warn of its writes, which eager repeats in the backward."""
        before = late_writes.values_now(self.args)
        yield
        names = ", ".join(map(self._name, late_writes.changed(self.args, before)))
        if names:
            warnings.warn(
                f"a checkpointed region writes {names}. Eager writes it a second time, when the backward "
                "recomputes the region; the compiled function writes it once",
                stacklevel=1,
            )

    def hooked_inputs(self) -> set[int]:
        """The inputs on which the function registers gradient hooks."""
        traced = [hook.tensor for hook in self.ledger.hooked]
        called = [tensor for event in self.ledger.events if isinstance(event, Hooked) for tensor in event.tensors]
        return {i for i, argument in enumerate(self.args) if any(argument is one for one in (*traced, *called))}

    def reshaped_leaves(self, gradients: Sequence[Any]) -> tuple[int, ...]:
        """Leaves with gradients that change shape before any other use: eager's gradients have the new shape."""
        found = []
        for i, info in enumerate(self.input_info):
            if gradients[i] is not None and self._is_reshaped_leaf(i, info):
                first = next((event for event in self.ledger.events if self._uses(event, self.args[i])), None)
                if isinstance(first, Moved):
                    found.append(i)
                    # It did not require grad yet, or the engine sums its gradient to the old shape.
                    if info.turned_on or self.program.args[i].numel() == 1:
                        raise self.refusal(first)
        return tuple(found)

    def _is_reshaped_leaf(self, position: int, info: InputAliasInfo) -> bool:
        """Whether an input is a leaf that changes shape in place."""
        moves = info.mutates_metadata and not info.mutates_storage_metadata
        reshaped = self.program.args[position].shape != self.args[position].shape if moves else False
        return info.requires_grad and info.is_leaf and reshaped

    def _used_before_moving(self, position: int, info: InputAliasInfo) -> bool:
        """Whether autograd records a use of a leaf before the leaf changes shape."""
        argument = self.args[position]
        if not self._is_reshaped_leaf(position, info):
            return False
        events, nodes = iter(self.ledger.events), iter(self.trace.graph.nodes)
        if info.turned_on:  # autograd records no earlier use
            mark = next(e for e in events if isinstance(e, Marked) and e.tensor is argument)
            next((node for node in nodes if node is mark.after), None)
        moved = next((e.node for e in events if isinstance(e, Moved) and e.tensor is argument), None)
        before = itertools.takewhile(lambda node: node is not moved, nodes)
        used = {n for n in before if not n.meta.get("under_no_grad")} if moved is not None else set()
        passed = self.graph_input(position)[0]
        for _ in (on for on in (self.program.rootless, self.program.fresh) if position in on):
            passed = next(iter(passed.users))  # the function ran on a view of it
        # A view that nothing reads and the function did not ask for was taken to regenerate others.
        asked = {event.node for event in self.ledger.events if isinstance(event, Viewed)}
        real = (user for user in passed.users if user.users or user in asked or not operators.is_view(user.target))
        return any(user in used for user in real)

    def wants_view(self, position: int) -> bool:
        """Whether the function must run on a view of this argument; see Note [Moved inputs]."""
        passed, argument = self.program.args[position], self.args[position]
        given = self.ledger.given.get(id(argument))
        if given is None or given.kind is not Kind.OWNER or given.viewed:
            return True
        return passed.is_leaf and passed.shape != argument.shape

    def _uses(self, event: Event, tensor: Any) -> bool:
        if isinstance(event, Viewed):
            looks = event.mode.grad and event.operator is not torch.ops.aten.detach.default
            return looks and self.ledger.root(event.source) is tensor
        return isinstance(event, Moved) and event.tensor is tensor

    def assign_data(self, tensor: Any, value: Any) -> None:
        """`tensor.data = value`, allowed if no other result shares the memory of `value`."""
        if self.ledger.is_itself(tensor, value):
            return
        fresh = functional.is_functional(value) and self.ledger.origin(value) is None and not is_subclass(tensor)
        alike = isinstance(value, torch.Tensor) and (value.dtype, value.device) == (tensor.dtype, tensor.device)
        position = self._position(tensor)
        if position is None:
            looked = base_of(tensor) is not None and tensor.requires_grad
        else:
            looked = functional.has_another_history(tensor, self.edges[position])
        if not fresh or not alike or looked or any(value is argument for argument in self.args):
            known = position is not None and position < len(self.program.names)
            raise Refused("data is assigned", repr(self.program.names[position or 0]) if known else "an intermediate")
        self.ledger.leave(tensor)
        with user_calls.placed(self.ledger, open=False):
            functional.point_to(tensor, value)
        self.ledger.assign(tensor, position is not None)

    def mark(self, tensor: Any, on: bool, method: str) -> bool:
        """Called before `requires_grad_` and `detach_`. A leaf argument is not a leaf in the trace, and is detached
        there."""
        if self.ledger.open and tensor.requires_grad != on:
            self.ledger.events.append(Marked(tensor, on, method, next(iter(reversed(self.trace.graph.nodes)), None)))
        given = self._position(tensor)
        if method == "detach_" and given in self.program.fresh:
            raise Refused("requires_grad changes", self._name(given), "off")
        if on or given is None or method == "detach_" or not self.program.args[given].is_leaf:
            return False
        torch.Tensor.detach_(tensor)
        return True

    def is_leaf(self, tensor: Any) -> bool:
        """Whether a tensor is an argument that is the caller's leaf, though the trace gave it a `grad_fn`."""
        return self.ledger.open and self.leaves.get(id(tensor)) is tensor

    def read_data(self, value: Any) -> None:
        self.ledger.read_data[id(value)] = value

    def swap(self) -> None:
        if self.ledger.open:
            raise Refused("tensors are swapped", "torch.utils.swap_tensors")

    def ask(self, tensor: Any, name: str) -> None:
        """Refuse that the function reads state of an argument, or of a view of one, that no trace knows and no guard
        checks."""
        if not self.ledger.open or self.program.is_graph:
            return
        of_itself = name in ("retains_grad", "output_nr")
        position = self._position(tensor if of_itself else self.ledger.root(tensor))
        if position is not None and not (of_itself and self.program.args[position].is_leaf):
            raise Refused("state of a tensor", self._name(position), name)

    def use_gradient(self, tensor: Any) -> None:
        """Refuse `.grad` of an argument: a trace does not receive it, and would read None.

        Dynamo reads it in passing when it traces the branches of a `torch.cond`.
        """
        position = self._position(tensor)
        if self.ledger.open and position is not None and not dynamo.at_work():
            raise Refused("gradient of an argument", self._name(position))

    def take_hook(self, tensor: Any, method: str, *hook: Any) -> Any:
        """Handle a hook that the function registers; see tracing/registered_hooks.py."""
        together = registered_hooks.registered_together()
        if together is not None and self.ledger.open:
            key, tensors, *arguments = together
            if key not in self.together:
                self.together[key] = self._take(tensors, "register_multi_grad_hook", tuple(arguments))
            return self.together[key]
        return self._take((tensor,), method, hook)

    def _take(self, tensors: tuple[Any, ...], method: str, hook: tuple[Any, ...]) -> Any:
        number = self.hooks_seen
        self.hooks_seen += 1
        if not self.ledger.open:
            return NotImplemented
        several, first = method == "register_multi_grad_hook", tensors[0]
        accumulates = method == "register_post_accumulate_grad_hook"
        fits = several or (first.requires_grad and (first.is_leaf or not accumulates))
        positions = [self._position(tensor) for tensor in tensors]
        events, pairs = self.ledger.events, zip(positions, tensors, strict=True)
        waits = [t for place, t in pairs if place is None or registered_hooks.is_written(self.ledger, t, events)]
        why = ""
        if waits and not self.program.is_graph:
            why = "it is called with several gradients at once" if several else registered_hooks.why_not_traced(hook)
        position = next((one for one in positions if one is not None), len(self.program.names))
        name = self._name(position) if position < len(self.program.names) else "a tensor that it creates"
        if fits and (not waits or number in self.program.put_off):
            return registered_hooks.put_off(self.ledger, tensors, method, hook, name, why)
        if fits:
            self.ledger.hooked += [TracedHook(number, one, len(self.ledger.events), why) for one in waits]
        # A hook on several tensors makes the run useless, so its handle need not work.
        return registered_hooks.handle_of(self.ledger, Hooked(tensors, method, hook)) if several else NotImplemented

    def handle(self, handle: Any) -> Any:
        """The handle of a traced hook, which must not be removed after the call: the hook would still be in
        the graph."""
        traced = self.ledger.open and handle is not None and not self.program.is_graph
        return registered_hooks.Handle(self.ledger, handle.remove) if traced else handle

    def call_module_hook(self, hook: Any) -> None:
        """Refuse a backward hook of a module that cannot be traced: its tensors do not leave the graph."""
        if self.ledger.open and self.with_gradients and not self.program.is_graph and torch.is_grad_enabled():
            why = registered_hooks.why_not_traced([hook], of_a_module=True)
            if why:
                raise Refused("hook that depends on the call", "a module (register_full_backward_hook)", why)

    def _refuse_grad_changes(self) -> None:
        """Refuse a change of requires_grad that the wrapper cannot repeat on the input."""
        inputs = [*self.args, *self.members.values()]
        for event in (event for event in self.ledger.events if isinstance(event, Marked)):
            position = next((i for i, one in enumerate(inputs) if one is event.tensor), None)
            info = self.input_info[position] if position is not None and position < len(self.args) else None
            if position is not None and not (info is not None and (info.turned_on or info.turned_off)):
                known = position < len(self.program.names)
                name = self._name(position) if known else "an input that overlaps another"
                raise Refused("requires_grad changes", name, "on" if event.on else "off")

    def _refuse_new_history(self) -> None:
        """Refuse a result that requires grad although no input does: its autograd graph ends in a leaf made inside."""
        infos = zip(self.outputs, self.output_facts.infos, strict=True)
        new = {id(output) for output, info in infos if info.new_leaf}
        leaving = [(f"output {k}", output) for k, output in enumerate(self.outputs) if id(output) not in new]
        for name, value in [*zip(map(repr, self.program.names), self.args, strict=False), *leaving]:
            if isinstance(value, torch.Tensor) and functional.is_functional(value) and value.requires_grad:
                raise Refused("a leaf made inside", name)

    def _refuse_unmarked_views(self, turned: Sequence[int]) -> None:
        """Refuse a view of an input that the wrapper must replay and that was taken before the input required grad.

        An input that is a view of that input requires grad from then on, too, which this trace does not know. So it is
        refused if a result is computed from such a view afterwards.
        """
        for i in turned:
            position = self.ledger.marks_of(self.args[i])[0]
            views = [j for j, value in enumerate(self.program.args) if base_of(value) is self.program.args[i]]
            if any(self._viewed_before(position, j) for j in (i, *views)) or self._used_after(position, views):
                raise Refused("requires_grad changes", repr(self.program.names[i]), "on")

    def _viewed_before(self, position: int, i: int) -> bool:
        """Whether the wrapper must replay a view of an input, and one was taken before this event."""
        early = any(isinstance(e, Viewed) and e.source is self.args[i] for e in self.ledger.events[:position])
        steps = self.output_facts.replay
        return early and any(isinstance(step, View | Data) and step.source == Ref("input", i) for step in steps)

    def _used_after(self, position: int, inputs: Sequence[int]) -> bool:
        """Whether a result depends on a use of these inputs after the event, a `Marked`."""
        passed = [self.graph_input(i)[0] for i in inputs]
        leaving = [value for value in (*self.outputs, *self.args) if inputs and functional.is_functional(value)]
        nodes = pytree.tree_leaves(self.trace.nodes_of(leaving))
        return depends_on_later_use(self.trace.graph, passed, self.ledger.events[position], nodes)

    def _refuse_forgotten_views(self) -> None:
        """Refuse a replayed view of a leaf that lost its connection by a write that changes nothing: the wrapper
        applies such a write before the call."""
        for output in self.outputs:
            if any(output is view and view.requires_grad for view in self.forgotten):
                position = self._position(self.ledger.root(output))
                if position is None:
                    continue
                info = self.input_info[position]
                if info.mutation_type is MutationType.NOT_MUTATED and info.version_bumps:
                    raise Refused("leaf that is a view", self._name(position))

    def refusal(self, event: Moved) -> Refused:
        nodes = placeholders(self.trace.graph)
        root = self.ledger.root(event.tensor)
        position = self._position(root)
        name = str(event.operator.overloadpacket.__name__)
        if name == "set_":
            return Refused("alias is given another storage", "a view and its base")
        whose = "an intermediate" if position is None else str(nodes[position].meta.get("desc") or "an input")
        return Refused("metadata op on a view", whose, name, f"{name.removesuffix('_')}()")

    def value(self, kind: str, index: int) -> Any:
        """The result in a slot: a mutated input, the data left in its storage, an output or an intermediate base."""
        if kind == "left":
            left = self.ledger.left[id(self.args[index])]
            return None if left is None else left.value
        return {"mutation": self.args, "output": self.outputs, "base": self.output_facts.bases}[kind][index]

    def graph(self) -> Any:
        """The forward's nodes, without those that a later stage traced after them."""
        graph = self.trace.graph
        return prefix(graph, self.forward_length) if len(graph.nodes) != self.forward_length else graph

    def graph_input(self, index: int) -> tuple[Any, Any]:
        """The placeholder of a graph input, and its fake. For a subclass, each part is a graph input."""
        node = placeholders(self.trace.graph)[index]
        return node, node.meta["val"]

    def closed_from(self) -> Mapping[str, Any]:
        """The nodes of the trace, by the names that they have in the closed graph."""
        return {node.name: node for node in self.trace.graph.nodes}

    def describe(self, descriptors: Sequence[InputDescriptor]) -> None:
        """Put a descriptor on each placeholder. `descriptors` are one per graph input."""
        pairs = zip(descriptors, self.plans, strict=True)
        parts = (part for descriptor, plan in pairs for part in parts_of(descriptor, plan.paths()))
        for node, part in zip(placeholders(self.trace.graph), parts, strict=False):
            node.meta["desc"] = part

    def closed(self, results: Sequence[Any]) -> Any:
        """The graph module that returns `results`. Nothing can be traced after it."""
        graph = self.trace.graph
        output = graph.output(tuple(results))
        output.meta["desc"] = [None] * len(results)
        return self.trace.graph_module(graph)

    def take(self, **changes: Any) -> ForwardTrace:
        """This trace, to be continued. A second caller gets a new trace of the program with `changes`."""
        if self._taken:
            again = self.rerun(**changes)
            for node, known in zip(placeholders(again.trace.graph), placeholders(self.trace.graph), strict=False):
                node.meta["desc"] = known.meta.get("desc")
            return again.take()
        leaks.own(self, *_WITHOUT_TENSORS)
        self._taken = True
        return self

    def rerun(self, **changes: Any) -> ForwardTrace:
        """Trace the same program with another calling convention."""
        return ForwardTrace(replace(self.program, **changes))
