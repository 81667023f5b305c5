"""What a functionalised run shows about its outputs (docs/design/system.md A1-A3).

Everything here reads functional tensors after the run, inside the open trace: reading the final value of a tensor
applies the writes that are still pending on its base.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from aotviz.ir import autograd_graph
from aotviz.ir.refusals import Refused
from aotviz.ir.symbolic_sizes import SYMBOLIC, is_concrete
from aotviz.ir.view_and_mutation import (
    IntermediateBase,
    MutationType,
    OutputAliasInfo,
    OutputType,
    Ref,
    ReplayStep,
    ViewStep,
)
from aotviz.ir.wrapper_subclasses import is_subclass, parts_by_path
from aotviz.python_state.user_objects import contents
from aotviz.torch_private import script_objects
from aotviz.torch_private.tensors import base_of
from aotviz.tracing import functional, registered_hooks, replay
from aotviz.tracing.events import Path, TensorNumber, TracedHook
from aotviz.tracing.ran import Ran
from aotviz.tracing.views import layout

MOST_STEPS = 5  # from an object in the result to a tensor that it holds


@dataclass(frozen=True, eq=False)
class OutputFacts:
    """What is known about all outputs together."""

    infos: tuple[OutputAliasInfo, ...]  # one per output
    bases: tuple[Any, ...]  # the intermediates that the graph must return because outputs are views of them
    base_info: tuple[IntermediateBase, ...]  # one per base
    replay: tuple[ReplayStep, ...]  # how the wrapper creates the outputs that are views
    deferred_hook: int | None = None  # the number of a traced hook which the wrapper must register instead


def _refuse_hidden_tensors(output: Any, place: str) -> None:
    """Raise for an object that holds tensors which pytree does not see. `place` is its position in the result."""
    found = _hidden_tensor(output, MOST_STEPS)
    if found:
        raise TypeError(
            f"{place} is a {type(output).__name__} that contains the tensor {place}{found}, and this class is "
            "not registered with pytree. Return a tuple or dict of tensors instead, or register the class "
            "(torch.utils._pytree.register_pytree_node). Models of transformers do not return their cache "
            "with use_cache=False."
        )


def _hidden_tensor(value: object, steps: int) -> str:
    """The path from an object to the first tensor in its attributes, lists and dicts, e.g. ".layers[0].keys", or "". At
    most `steps` steps are searched. Tensors that existed before the trace count only if they are one step away."""
    for step, one in () if isinstance(value, (type, nn.Module)) else contents(value):
        if functional.is_functional(one) or (isinstance(one, torch.Tensor) and steps == MOST_STEPS):
            return step
        further = _hidden_tensor(one, steps - 1) if steps > 1 and not isinstance(one, torch.Tensor) else ""
        if further:
            return step + further
    return ""


class Classifier:
    """Sorts the outputs into the eight output types, one after the other, by the origin of their memory in the
    ledger."""

    def __init__(self, ran: Ran) -> None:
        self.ran, self.ledger, self.args, self.outputs = ran, ran.ledger, ran.args, ran.outputs
        self.input_info, self.output_names = ran.input_info, ran.output_names
        tensors = [(i, a) for i, a in enumerate(ran.args) if isinstance(a, torch.Tensor)]
        number = self.number = ran.ledger.number
        inputs = {number(part): Ref("input", i, path) for i, a in tensors for path, part in parts_by_path(a)}
        wholes = {number(a): Ref("input", i) for i, a in tensors}
        self.named = {**inputs, **wholes, **{number(m): Ref("member", p) for p, m in ran.members.items()}}
        self.input_of_storage = {functional.storage(a): i for i, a in tensors}
        self.first_output: dict[TensorNumber, int] = {}
        for index, output in enumerate(ran.outputs):
            if isinstance(output, torch.Tensor):
                self.first_output.setdefault(number(output), index)
        self.bases: list[torch.Tensor] = []
        self.roots: list[tuple[Any, Any]] = []  # (intermediate, an output that is a view of it)
        self.views: list[torch.Tensor] = []
        self.first_view: list[int] = []  # for each base, the output that it is returned for
        self.leaf_views: list[torch.Tensor] = []  # views made to require grad inside, while their base does not
        self.rewritten: dict[TensorNumber, Ref] = {}  # detached alias with a grad_fn -> the base that has it
        self.histories: dict[TensorNumber, Ref] = {}  # view with a grad_fn of its own -> the base that has it

    def facts(self) -> OutputFacts:
        number, infos = self.number, [self._classify(index, output) for index, output in enumerate(self.outputs)]
        self._refuse_tied_leaves(infos)
        separate = {*self.histories, *self.rewritten}
        slots = {number(base): Ref("base", b) for b, base in enumerate(self.bases) if number(base) not in separate}
        for index, info in enumerate(infos):
            if info.layout is not None and info.same_object_as is None and info.output_type.owns_memory:
                slots[number(self.outputs[index])] = Ref("output", index)
        out = MutationType.MUTATED_OUT_GRAPH
        tensors = [(number(a), i) for i, a in enumerate(self.args) if isinstance(a, torch.Tensor)]
        written = {key: Ref("mutation", i) for key, i in tensors if self.input_info[i].mutation_type is out}
        for base in self.bases:  # a write to a detached alias of the whole input also writes the input
            root, path = self.ledger.path(number(base))
            if number(base) in self.rewritten and root in written and base.numel() == self.ledger.tensors[root].numel():
                given = self.input_info[written[root].index]
                uncounted = given.version_bumps and any(self.ledger.counts_apart(event.results[k]) for event, k in path)
                if given.mutations_hidden_from_autograd and not uncounted:
                    del written[root]
        # `detach_` is an in-place metadata op too
        moved = [key for key, i in tensors if self.input_info[i].mutates_metadata or self.input_info[i].turned_off]
        moved += map(number, self.ran.members.values())
        moved += (event.tensor for *_, event in self.ran.moved_parts())
        wanted = replay.Wanted(
            named=self.named,
            slots=slots,
            views=list(map(number, self.views)),
            histories=self.histories,
            moved=moved,
            marked=[key for key, i in tensors if self.input_info[i].turned_off] + list(map(number, self.leaf_views)),
            written=written | self.rewritten,
            left={one for one, left in self.ledger.left.items() if left is not None},
        )
        steps, refs = replay.Builder(self.ledger, replay.States(self.ledger.tensors), wanted).build()
        leaving = {key for key, ref in refs.items() if ref.kind != "base"}
        deferred = next((hook.number for hook in self.ledger.traced_hooks if self._is_deferred(hook, leaving)), None)
        made = {number(view): refs[number(view)] for view in self.views}
        for index, output in enumerate(self.outputs):
            if number(output) in made and infos[index].same_object_as is None:
                infos[index] = replace(infos[index], made=made[number(output)])
        leaves = set(map(number, self.leaf_views))
        wholes = ((number(r), output) for r, output in self.roots if number(output) not in leaves)
        tracked = {root for root, output in wholes if output.requires_grad} | separate
        pairs = zip(self.bases, self.first_view, strict=True)
        base_info = (IntermediateBase(view, base.requires_grad and number(base) in tracked) for base, view in pairs)
        return OutputFacts(tuple(infos), tuple(self.bases), tuple(base_info), steps, deferred)

    def _refuse_tied_leaves(self, infos: Sequence[OutputAliasInfo]) -> None:
        """Refuse a leaf created inside if another result was computed from it, or is a view that the wrapper does not
        replay."""
        leaves = [output for output, info in zip(self.outputs, infos, strict=True) if info.new_leaf]
        if not leaves:
            return
        roots = [root for root, _ in self.roots]
        again = set(map(self.number, self.views))
        outputs = (output for output in self.outputs if self.number(output) not in again)
        bases = (root for root, output in self.roots if output.requires_grad)
        leaving = filter(functional.is_functional, (*self.args, *outputs, *bases))
        known = autograd_graph.leaves_behind(list(map(functional.grad_fn, leaving)))
        if any(leaf is other for leaf in leaves for other in (*roots, *known)):
            raise Refused("a new leaf is returned", "an output")

    def _is_deferred(self, hook: TracedHook, leaving: Set[TensorNumber]) -> bool:
        """Whether a hook is left to the wrapper: its tensor leaves the function, or it cannot be traced.

        If the tensor is a result that was written after the hook was registered, the hook receives the gradients from
        before the write, inside the graph.
        """
        leaves = hook.tensor in leaving
        if not (hook.why or leaves):
            return False
        named, returned = hook.tensor in self.named, hook.tensor in self.first_output
        written = not named and registered_hooks.is_written(self.ledger, hook.tensor, hook.position)
        if hook.why and written:
            raise Refused("hook that depends on the call", "a tensor that it writes afterwards", hook.why)
        if written and returned:
            return False
        if named or (leaves and not returned):
            raise Refused("hook on an alias", "an input" if named else "an output")
        return True

    def _classify(self, index: int, output: Any) -> OutputAliasInfo:
        plain = OutputAliasInfo(OutputType.non_alias)
        if isinstance(output, SYMBOLIC):
            return plain
        if not isinstance(output, torch.Tensor):
            if script_objects.is_stand_in(output):
                given = next(position for position, arg in enumerate(self.args) if arg is output)
                ref = Ref("input", given)
                return replace(plain, output_type=OutputType.is_input, base_index=given, made=ref)
            _refuse_hidden_tensors(output, self.output_names[index])
            return replace(plain, constant=output, is_constant=True)
        where = layout(output)
        if not functional.is_functional(output):  # from the closure: the graph holds it as a constant
            return replace(plain, requires_grad=output.requires_grad, layout=where)
        info = replace(
            plain,
            dynamic_dims=frozenset(i for i, s in enumerate(output.shape) if not is_concrete(s)),
            requires_grad=output.requires_grad,
            layout=where,
        )
        number = self.number(output)
        if self.first_output[number] != index:
            return replace(info, same_object_as=self.first_output[number])
        if number in self.named:
            ref = self.named[number]
            return replace(info, output_type=OutputType.is_input, base_index=self._input_index(output), made=ref)
        root, path = self._path(output)
        if path and not replay.replayable(path):
            return self._not_replayable(info, output, root)
        if self.number(root) in self.named:
            self._refuse_new_history(output, root)
            return self._view(info, output, OutputType.alias_of_input, self._input_index(root), path)
        if path:
            if not root.requires_grad and functional.grad_fn(output) is not None:
                raise Refused("stale view", "a view of a tensor that is detached afterwards")
            return self._view_of_intermediate(info, output, root, path)
        return self._own(info, output)

    def _refuse_new_history(self, output: torch.Tensor, root: torch.Tensor) -> None:
        """Refuse a detached alias of an input that was written with a value that has a `grad_fn`: a view cannot have
        it."""
        known_base = base_of(output)
        base = output if known_base is None else known_base
        if base is not root and base is not base_of(root) and functional.grad_fn(base) is not None:
            source = self._input_name(root)
            raise Refused("detached alias is written", f"output {self.first_output[self.number(output)]}", source)

    def _path(self, tensor: torch.Tensor, above: bool = False) -> tuple[torch.Tensor, Path]:
        """`Log.path` from the tensor that stands alone to this one; `above`: from another one, if this one does too."""
        own = self.number(tensor)
        number, path = self.ledger.path(own, lambda one: self._stands_alone(one) and not (above and one == own))
        return self.ledger.tensors[number] if path else tensor, path

    def _stands_alone(self, number: TensorNumber) -> bool:
        """Whether a path ends at this tensor, though it may be an alias: the wrapper has it from elsewhere."""
        event = self.ledger.origin(number)
        if number in self.named or event is None:
            return True
        tensor = self.ledger.tensors[number]
        if base_of(tensor) is None and tensor.requires_grad and functional.grad_fn(tensor) is not None:
            return True  # a detached alias that was written with a value that has a `grad_fn`
        return not event.mode.grad and autograd_graph.from_custom_function(functional.grad_fn(tensor))

    def _input_index(self, tensor: torch.Tensor) -> int | None:
        ref = self.named.get(self.number(tensor))
        return ref.index if ref and ref.kind == "input" else self.input_of_storage.get(functional.storage(tensor))

    def _input_name(self, tensor: torch.Tensor) -> str:
        index = self._input_index(tensor)
        return "an input" if index is None else self.ran.program.name(index)

    def _own(self, info: OutputAliasInfo, output: torch.Tensor) -> OutputAliasInfo:
        """An output that the graph returns."""
        source = self.input_of_storage.get(functional.storage(output))
        tangent = output.requires_grad and functional.grad_fn(output) is not None
        if self.ledger.origin(self.number(output)) is not None:
            return self._alias_with_history(info, output)
        if source is not None and not functional.storage_replaced(output):
            return replace(info, output_type=OutputType.alias_of_input, base_index=source)
        if output.requires_grad and functional.grad_fn(output) is None and base_of(output) is None:
            return replace(info, output_type=OutputType.non_alias, new_leaf=True)
        kind = OutputType.non_alias if base_of(output) is None else OutputType.unsafe_view_alias
        return replace(info, output_type=kind, has_tangent=tangent)

    def _is_custom_view(self, tensor: torch.Tensor) -> bool:
        """Whether a custom autograd.Function returned it as a view of an input."""
        of_input = functional.storage(tensor) in self.input_of_storage
        return of_input and autograd_graph.from_custom_function(functional.grad_fn(tensor))

    def _alias_with_history(self, info: OutputAliasInfo, output: torch.Tensor) -> OutputAliasInfo:
        """A view that a custom autograd.Function returned, or a detached alias that was written under autograd."""
        root, path = self._path(output, above=True)
        named = self.number(root) in self.named
        if not named and not replay.replayable(path):
            return self._not_replayable(info, output, root)
        self._keep_history(output, output)
        if named:
            kind = OutputType.custom_function_view if self._is_custom_view(output) else OutputType.alias_of_input
            return self._view(info, output, kind, self._input_index(root), path)
        return self._view_of_intermediate(info, output, root, path)

    def _keep_history(self, alias: torch.Tensor, output: torch.Tensor) -> None:
        number = self.number(alias)
        if number in self.histories or number in self.rewritten:
            return
        written = base_of(alias) is None and any(event.tensor == number for _, event in self.ledger.writes())
        (self.rewritten if written else self.histories)[number] = self._base(alias, output)

    def _not_replayable(self, info: OutputAliasInfo, output: torch.Tensor, root: torch.Tensor) -> OutputAliasInfo:
        """A view whose operator needs a size that is not known before the call. The wrapper takes it by its strides. A
        subclass has none, nor can a view of one be taken by strides: the graph returns it, or its parts."""
        if _is_new_leaf(output):
            raise Refused("a new leaf is returned", "an output")
        if functional.is_stale(output):
            raise Refused("stale view", "a part whose size depends on the call, of a tensor that is written afterwards")
        if self.number(root) in self.named:
            source = self._input_index(root)
            if not (is_subclass(output) or is_subclass(root)):
                return replace(info, output_type=OutputType.alias_of_input, base_index=source)
            if source is not None and not is_subclass(output) and self.input_info[source].mutates_data:
                name = f"output {self.first_output[self.number(output)]}"
                raise Refused("symbolic view of a subclass", name, self._input_name(root))
        tangent = functional.grad_fn(output) is not None
        return replace(info, output_type=OutputType.unsafe_view_alias, has_tangent=tangent)

    def _view(
        self, info: OutputAliasInfo, output: torch.Tensor, kind: OutputType, base: int | None, path: Path
    ) -> OutputAliasInfo:
        self.views.append(output)
        steps = ((event, k if event.several else None) for event, k in path)
        chain = tuple(ViewStep(event.operator, event.args, item, not event.mode.grad) for event, item in steps)
        new_leaf = self._turned_on(output, path)
        return replace(info, output_type=kind, base_index=base, view_chain=chain, new_leaf=new_leaf)

    def _turned_on(self, output: torch.Tensor, path: Path) -> bool:
        """Whether a view is a leaf made to require grad inside, or a view of one. The wrapper turns these on."""
        for view in (*(self.ledger.tensors[event.results[k]] for event, k in path), output):
            if _is_new_leaf(view):
                if len(self.ledger.marks_of(self.number(view))) > 1:
                    raise Refused("a new leaf is returned", "an output")
                if not any(view is other for other in self.leaf_views):
                    self.leaf_views.append(view)
                return True
        return False

    def _view_of_intermediate(
        self, info: OutputAliasInfo, output: torch.Tensor, root: torch.Tensor, path: Path
    ) -> OutputAliasInfo:
        self.roots.append((root, output))
        number = self.number(root)
        first = self.first_output.get(number)
        returned = first is not None and self._is_custom_view(root)
        if self.ledger.origin(number) is not None and not returned:
            self.views.append(root)
            self._keep_history(root, output)
            self._need_memory(root, output)
            kind = OutputType.alias_of_intermediate
            base = self.histories.get(number) or self.rewritten[number]
            return self._view(info, output, kind, base.index, path)
        if first is not None:
            return self._view(info, output, OutputType.alias_of_intermediate_base_is_user_output, first, path)
        known = next((b for b, base in enumerate(self.bases) if base is root), None)
        if known is not None:
            return self._view(info, output, OutputType.alias_of_intermediate, known, path)
        base = self._base(root, output)
        return self._view(info, output, OutputType.alias_of_intermediate_save_as_output, base.index, path)

    def _need_memory(self, alias: torch.Tensor, output: torch.Tensor) -> None:
        """Let the graph return the memory of a detached alias, unless the wrapper has it already."""
        root, _ = self._path(alias, above=True)
        number = self.number(root)
        if self.ledger.origin(number) is not None and number not in self.named:
            raise Refused("stale view", "an alias of an alias, each with its own grad_fn")
        held = number in self.named or number in self.first_output or any(base is root for base in self.bases)
        if not held:
            self._base(root, output)

    def _base(self, tensor: torch.Tensor, output: torch.Tensor) -> Ref:
        """Let the graph return `tensor`, because `output` is a view of it."""
        self.bases.append(tensor)
        self.first_view.append(self.first_output[self.number(output)])
        return Ref("base", len(self.bases) - 1)


def _is_new_leaf(view: torch.Tensor) -> bool:
    """Whether a view or detached alias was itself made to require grad."""
    base = base_of(view)
    tracked = base is not None and base.requires_grad
    return view.requires_grad and not tracked and functional.grad_fn(view) is None
