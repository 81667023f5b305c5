"""Facts about one call: how its inputs are changed, and what its outputs share memory with.

See docs/design/system.md A1-A4. All of it is frozen and free of torch objects, but for the operator overloads inside a
view chain. A stage that learns more makes a new value with `dataclasses.replace`. Lists state their length.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Size = int  # or a `torch.SymInt`, which torch's own annotations call an int, too
else:
    Size = Any  # for the cache, which reads annotations


class OutputType(Enum):
    """How an output relates to the inputs and to the other outputs."""

    non_alias = "not an alias"
    alias_of_input = "a view of an input"
    is_input = "an input itself"
    alias_of_intermediate_save_as_output = "a view of an intermediate, which the graph returns only for this view"
    alias_of_intermediate = "a view of an intermediate that is also an output"
    alias_of_intermediate_base_is_user_output = "a view of another output"
    unsafe_view_alias = "the only view of its base that leaves the function, so it is returned as an ordinary tensor"
    custom_function_view = "a view of an input that a custom autograd.Function returned"

    @property
    def owns_memory(self) -> bool:
        """Whether it is for the caller a tensor with memory of its own."""
        return self in (OutputType.non_alias, OutputType.unsafe_view_alias)


ALIASES_OF_INTERMEDIATES = (
    OutputType.alias_of_intermediate_save_as_output,
    OutputType.alias_of_intermediate,
    OutputType.alias_of_intermediate_base_is_user_output,
)


class MutationType(Enum):
    """Where the change of an input happens at run time."""

    NOT_MUTATED = "not mutated"
    MUTATED_IN_GRAPH = "the compiled graph writes it"
    MUTATED_OUT_GRAPH = "the wrapper writes it after the graph ran"


@dataclass(frozen=True)
class ViewStep:
    """One view operator of a chain: `result = target(base, *args)[item]`.

    `args` are the operator's arguments after the tensor; `item` picks one result of a multi-output view.
    """

    target: Any  # torch._ops.OpOverload
    args: tuple[Any, ...]
    item: int | None = None
    under_no_grad: bool = False  # the user made this view while grad mode was off

    def __str__(self) -> str:
        name = str(self.target.overloadpacket.__name__)
        # torch's end of a slice without an end; a symbol is not compared with it, which would be a guard
        args = ("end" if type(arg) is int and arg == sys.maxsize else repr(arg) for arg in self.args)
        text = f"{name}({', '.join(args)})"
        return text if self.item is None else f"{text}[{self.item}]"


@dataclass(frozen=True)
class Layout:
    """Where a strided tensor lies in its storage, in elements."""

    size: tuple[Size, ...]
    stride: tuple[Size, ...]
    offset: Size

    @property
    def concrete(self) -> bool:
        """Whether it is known at compile time."""
        return all(isinstance(part, int) for part in (*self.size, *self.stride, self.offset))

    @property
    def order(self) -> tuple[Any, ...]:
        """Which elements it has, in which order: what `unsqueeze_` and `squeeze_` leave as it is."""
        return *((n, step) for n, step in zip(self.size, self.stride, strict=True) if n != 1), self.offset


@dataclass(frozen=True)
class Ref:
    """A tensor that the wrapper has a variable for, or a result of the graph."""

    kind: str  # "input" | "member" | "output" | "base" | "mutation" | "left" | "view"
    index: int
    path: str = ""  # ".a": that part of the tensor

    def __str__(self) -> str:
        return f"{self.kind} {self.index}"


@dataclass(frozen=True)
class ReplayStep:
    """One statement about aliases that the wrapper repeats after the graph has run, in the user's order."""

    source: Ref

    @property
    def made(self) -> tuple[Ref, ...]:
        """The aliases that it creates."""
        return ()


@dataclass(frozen=True)
class _OfAnOperator(ReplayStep):
    operator: Any  # torch._ops.OpOverload
    args: tuple[Any, ...]  # after the source
    kwargs: tuple[tuple[str, Any], ...]
    grad_mode: bool
    inference_mode: bool


@dataclass(frozen=True)
class View(_OfAnOperator):
    """`targets = operator(source, *args, **kwargs)`"""

    targets: tuple[Ref, ...]  # one per result
    several: bool  # the operator returns a list
    value: Ref | None = None  # the result of the graph whose grad_fn it has

    @property
    def made(self) -> tuple[Ref, ...]:
        return self.targets


@dataclass(frozen=True)
class Data(ReplayStep):
    """`target = source.data`, which has a version counter of its own."""

    target: Ref
    grad_mode: bool
    inference_mode: bool
    value: Ref | None = None  # as in View

    @property
    def made(self) -> tuple[Ref, ...]:
        return (self.target,)


@dataclass(frozen=True)
class Move(_OfAnOperator):
    """`operator(source, *args, **kwargs)`, which changes shape or strides in place."""

    counts: bool = True  # in the version counter


class Marking(Enum):
    """How `requires_grad` of a tensor is changed."""

    ON = "requires_grad_()"
    OFF = "requires_grad_(False)"
    DETACHED = "detach_()"


@dataclass(frozen=True)
class Mark(ReplayStep):
    """`source.requires_grad_()` and the like."""

    how: Marking


@dataclass(frozen=True)
class Write(ReplayStep):
    """The new data of an input, or of a detached alias with a `grad_fn` of its own, is written to it."""

    value: Ref
    shape: tuple[int, ...] | None = None  # the input's shape at this point, if it changes later


@dataclass(frozen=True)
class Leave(ReplayStep):
    """`source` is about to get another storage: its current data is written to the old one first."""


@dataclass(frozen=True)
class Look(ReplayStep):
    """`source.grad_fn`: reading it makes autograd regenerate the `grad_fn` of a view."""


@dataclass(frozen=True)
class Hook(ReplayStep):
    """`source.register_hook(...)` or the like; or a hook on several tensors, `source` and `others`."""

    others: tuple[Ref, ...]
    method: str
    args: tuple[Any, ...]


@dataclass(frozen=True)
class Count(ReplayStep):
    """`source`, an alias with a version counter of its own, was written `count` times."""

    count: int


def count_writes(replay: Sequence[ReplayStep], counts_with: Mapping[Ref, Ref] = MappingProxyType({})) -> Counter[Ref]:
    """How often these steps bump the version counter of each tensor, directly or through a view. `counts_with` maps
    members to the base whose counter they share."""
    root = dict(counts_with)
    counts: Counter[Ref] = Counter()
    for step in replay:
        source = root.get(step.source, step.source)
        counted = isinstance(step, Write) or (isinstance(step, Move) and step.counts)
        writes = step.count if isinstance(step, Count) else int(counted)
        if writes:
            counts[source] += writes
        if isinstance(step, View):
            root.update(dict.fromkeys(step.targets, source))
    return counts


@dataclass(frozen=True)
class InputAliasInfo:
    """What a call does to one input, and the input's state before (docs/design/system.md A3)."""

    is_tensor: bool
    is_leaf: bool
    requires_grad: bool  # when the call began
    requires_grad_after: bool
    mutates_data: bool = False
    mutates_metadata: bool = False
    mutations_hidden_from_autograd: bool = False
    mutations_under_no_grad_or_inference_mode: bool = False
    mutates_storage_metadata: bool = False  # by `set_`
    storage_bytes: tuple[int, int] | None = None  # the largest and the last size that `resize_` gives its storage
    read_bytes: int | None = None  # the size of its storage before the call, which the function reads
    keep_input_mutations: bool = False
    version_bumps: int = 0  # in-place operations on it or on a view of it
    layout_after: Layout | None = None  # after a metadata mutation; None if there was none
    written_parts: tuple[tuple[str, int], ...] = ()  # of a subclass: (path, version bumps) of each part that is written
    turned_on: bool = False  # by `requires_grad_()` inside the function; `requires_grad` is then True from the start
    turned_off: bool = False  # by `requires_grad_(False)` or `detach_()`
    leaves_data: bool = False  # it was written and then given another storage; the old storage keeps the written data
    assigns_data: bool = False  # `x.data = ...` gave it another storage, not `set_`
    used_before_moving: bool = False  # a leaf: in eager, what was computed from it remembers its earlier shape
    asks_for_root: bool = False  # its gradients depend on what it is a view of; see Note [Leaves that are views]
    history_ends: bool = False  # a metadata op under no_grad ends its autograd graph; see tracing/argument_state.py
    differentiated: bool = False  # torch.autograd.grad asks for its gradient inside the function
    inference: bool = False  # an inference tensor, though the call does not run in inference mode: it has no version
    only_in_inference_mode: bool = False  # its write raises elsewhere; Dynamo does not tell in which mode the call runs

    @property
    def resizes_storage(self) -> bool:
        return self.storage_bytes is not None

    @property
    def written_back(self) -> bool:
        """Whether its new data has to be computed for it: somebody can read the data, or autograd records the write."""
        is_freed = self.storage_bytes is not None and self.storage_bytes[1] == 0
        return self.mutates_data and not (is_freed and (self.unseen or not self.requires_grad_after))

    @property
    def mutated(self) -> bool:
        return self.mutates_data or self.mutates_metadata or self.mutates_storage_metadata or self.resizes_storage

    @property
    def unseen(self) -> bool:
        """Whether autograd does not see the writes to it."""
        return self.mutations_hidden_from_autograd or self.mutations_under_no_grad_or_inference_mode

    @property
    def keeps_hooks(self) -> bool:
        """Whether hooks from before the call stay on the earlier `grad_fn`: autograd sees at most a metadata op."""
        moves = self.mutates_metadata and not self.mutates_storage_metadata
        return moves and self.requires_grad and not self.is_leaf and (self.unseen or not self.mutates_data)

    @property
    def written_by_parts(self) -> bool:
        """Whether the wrapper writes its parts one by one, so that neither versions nor autograd see a write to the
        whole."""
        return bool(self.written_parts) and (self.unseen or not (self.requires_grad or self.requires_grad_after))

    @property
    def mutation_type(self) -> MutationType:
        """Derived, so that it cannot contradict the facts."""
        if not self.mutated:
            return MutationType.NOT_MUTATED
        moves = self.mutates_metadata or self.mutates_storage_metadata or self.resizes_storage
        stays = not moves and (not self.requires_grad_after or self.unseen)
        if self.keep_input_mutations and self.mutates_data and stays:
            return MutationType.MUTATED_IN_GRAPH
        return MutationType.MUTATED_OUT_GRAPH


@dataclass(frozen=True)
class OutputAliasInfo:
    """What one output is (docs/design/system.md A2).

    `base_index` counts inputs for alias_of_input, custom_function_view and is_input, intermediate bases for
    alias_of_intermediate and alias_of_intermediate_save_as_output, and user outputs for
    alias_of_intermediate_base_is_user_output.
    """

    output_type: OutputType
    base_index: int | None = None
    dynamic_dims: frozenset[int] = frozenset()
    requires_grad: bool = False
    has_tangent: bool = False  # the backward receives a gradient for it directly
    view_chain: tuple[ViewStep, ...] | None = None  # from the base to the output; None if unknown or not needed
    layout: Layout | None = None  # None if it is not a strided tensor
    same_object_as: int | None = None  # an earlier output that is this very object
    made: Ref | None = None  # its variable after the replay; None if the graph returns it, or it needs the fallback
    # It, or its base, was made to require grad inside and depends on no input that does. No other result depends on it.
    new_leaf: bool = False
    constant: Any = None  # the value, for an output that is not a tensor or a symbolic number
    is_constant: bool = False

    @property
    def in_graph(self) -> bool:
        """Whether the compiled graph returns it, because the wrapper cannot rebuild it."""
        if self.is_constant or self.same_object_as is not None or self.output_type is OutputType.is_input:
            return False
        if self.made is not None:
            return False
        aliases = self.output_type in ALIASES_OF_INTERMEDIATES or self.output_type is OutputType.alias_of_input
        return not aliases or not (self.layout is not None and self.layout.concrete)


@dataclass(frozen=True)
class IntermediateBase:
    """An intermediate that the graph returns because an output is a view of it."""

    output: int  # the first such output
    requires_grad: bool  # it can get a gradient through one of its views


@dataclass(frozen=True)
class TensorAlias:
    """Hides a tensor from autograd: `autograd.Function` handles only tensors (docs/design/system.md A7).

    The generated forward returns a metadata-mutated input inside one. Otherwise autograd would take the alias for a
    view of a differentiable input and forbid its mutation.
    """

    alias: Any


@dataclass(frozen=True)
class ViewAndMutationMeta:
    """All facts about one call (docs/design/system.md A4)."""

    input_info: tuple[InputAliasInfo, ...]  # one per flat input
    output_info: tuple[OutputAliasInfo, ...]  # one per flat output
    intermediate_bases: tuple[IntermediateBase, ...]
    grad_enabled: bool  # when the call began
    grad_enabled_after: bool | None  # the grad mode that the call leaves behind, if it differs
    static_input_indices: tuple[int, ...]  # inputs that have the same memory in every call
    deterministic: bool  # torch.are_deterministic_algorithms_enabled() at compile time
    autocast: bool  # some autocast was on at compile time
    replay: tuple[ReplayStep, ...] = ()  # the user's statements about aliases that the wrapper repeats
    counts_with: Mapping[Ref, Ref] = field(default_factory=dict)  # member -> the base whose version counter it shares

    @functools.cached_property
    def replayed_writes(self) -> Counter[Ref]:
        return count_writes(self.replay, self.counts_with)

    @property
    def mutated_input_indices(self) -> tuple[int, ...]:
        """Inputs whose new value is an output of the graph, in order."""
        out = MutationType.MUTATED_OUT_GRAPH
        return tuple(i for i, info in enumerate(self.input_info) if info.mutation_type is out)

    @property
    def in_graph_mutated_indices(self) -> tuple[int, ...]:
        inside = MutationType.MUTATED_IN_GRAPH
        return tuple(i for i, info in enumerate(self.input_info) if info.mutation_type is inside)
