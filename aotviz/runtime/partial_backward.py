"""The backward with some gradients missing, and what it leaves for the others.

Eager walks only the part of the autograd graph that a gradient reaches. A compiled backward is one node, so for each
pattern of incoming gradients it has a separate graph (`ir/absent.py`), compiled on first use.

Note [One output after the other]
`a.backward(); b.backward()` works in eager if the two share no node that has saved something. The engine frees all of
our one node after the first. So the first backward keeps what the other gradients would read, with the version of each
tensor, because autograd no longer checks it. If the two share such a node, the second raises torch's own error, and
nothing is kept for it.

Note [Decided once]
A model that returns logits beside its loss takes this path at every step. What the graph says about a pattern is
computed when the pattern first occurs, and kept in its `_Part`.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aotviz.ir import absent, graphs
from aotviz.ir.forms import Compiled, Split, Tangent
from aotviz.ir.partition_functions import is_generator
from aotviz.ir.symbolic_sizes import all_concrete
from aotviz.runtime.call_differs import WrittenSince
from aotviz.runtime.deferred_stages import LazyBackward
from aotviz.runtime.generators import Generators
from aotviz.runtime.tangents import in_layout
from aotviz.runtime.unreached_inputs import UnreachedInputs
from aotviz.torch_private import autograd_nodes, runtime
from aotviz.torch_private.modules import boxed
from aotviz.torch_private.tensors import write_count

MANY_PATTERNS = 8  # of gradients; the graphs of further patterns run uncompiled
Pattern = tuple[bool, ...]  # one per tangent: whether it is present


def sources(call: Split) -> list[tuple[str, int]]:
    """The source of each input of the backward graph: ("saved" | "tangent" | "generator", position)."""
    place = {saved.name: i for i, saved in enumerate(call.saved)}
    nodes = graphs.placeholders(call.backward_module.graph)
    taken = {node.name for node in nodes}
    renamed = iter([i for i, saved in enumerate(call.saved) if saved.name not in taken])
    found: list[tuple[str, int]] = []
    for node in nodes:
        if is_generator(node):
            found.append(("generator", sum(kind == "generator" for kind, _ in found)))
        elif node.name in place:
            found.append(("saved", place[node.name]))
        elif absent.is_tangent(node):
            found.append(("tangent", absent.tangent_number(node)))
        else:  # an equal node of the forward, by another name
            found.append(("saved", next(renamed)))
    return found


def is_dynamic(tangent: Tangent) -> bool:
    """Whether the layout of a gradient is known only at run time."""
    return not all_concrete((*tangent.size, *tangent.stride))


@dataclass(frozen=True)
class Whole:
    """What is known about a whole backward."""

    tangents: tuple[Tangent, ...]
    sources: tuple[tuple[str, int], ...]  # one per input of its graph, as `sources` returns them
    tensors: int  # how many of the saved values are tensors
    results: int
    autocast: bool  # whether the call was compiled under autocast
    written_since: WrittenSince
    inputs: UnreachedInputs

    @classmethod
    def of(cls, call: Split) -> Whole:
        results = len(graphs.outputs(call.backward_module.graph))
        facts = WrittenSince.of(call), UnreachedInputs.of(call)
        tensors, autocast = call.saved_tensor_count, call.meta.autocast
        return cls(call.tangents, tuple(sources(call)), tensors, results, autocast, *facts)


class Part:
    """The backward for one pattern: a graph as a function, and the sources of its inputs."""

    def __init__(self, plain: Compiled, sources: Sequence[tuple[str, int]]) -> None:
        self.plain, self.sources = plain, sources
        self.read = {position for kind, position in sources if kind == "saved"}


class _CutPart(Part):
    """A part of the graph, and what is known about it before any call. See Note [Decided once]."""

    def __init__(self, whole: PartialBackward, pattern: Pattern) -> None:
        missing = {f"tangents_{i + 1}" for i, there in enumerate(pattern) if not there}
        names = [node.name for node in graphs.placeholders(whole.module.graph)]
        self.module = absent.without(whole.module, missing)
        self.inputs = [names.index(node.name) for node in graphs.placeholders(self.module.graph)]  # of the whole's
        super().__init__(boxed(self.module), [whole.known.sources[i] for i in self.inputs])
        self.compiled: LazyBackward | None = None
        self.only_plain = all(result is None for result in graphs.outputs(self.module.graph))


Compile = Callable[[Any, tuple[int, ...], tuple[int, ...], str, str], Compiled]


class Parts:
    """The backward of one program, for any pattern of gradients."""

    def __init__(self, known: Whole, generators: Generators | None) -> None:
        self.known, self._generators = known, generators
        self.tangents, self.inputs = known.tangents, known.inputs
        self._tensors = known.tensors
        read = {position for kind, position in known.sources if kind == "saved"}
        self._for_a_second_derivative = frozenset(range(self._tensors)) - read  # no gradient reads these
        self._held: dict[frozenset[int], frozenset[int]] = {}  # tangents that can no longer come -> saved values

    def part(self, pattern: Pattern) -> Part:
        raise NotImplementedError

    @functools.cached_property
    def sharing(self) -> Sequence[frozenset[int]]:
        """For each tangent, those that share saved values with it."""
        raise NotImplementedError

    def read_alone(self, tangent: int) -> set[int]:
        """The saved values that are read if no other gradient comes."""
        return self.part(tuple(i == tangent for i in range(len(self.tangents)))).read

    def __call__(self, ctx: Any, tangents: list[Any]) -> list[Any]:
        """The results of the backward graph. `tangents`, which this empties, contains None for missing gradients."""
        pattern = tuple(tangent is not None for tangent in tangents)
        if not any(pattern):
            return [None] * self.known.results
        keep = runtime.keeps_graph()
        part = self.part(pattern)
        run = self._runner(pattern, keep or hasattr(ctx, "parted"))
        arguments = self._arguments(ctx, pattern, part, tangents, keep)
        if not keep:
            ctx.maybe_clear_saved_tensors()  # the list now holds the last references
            if hasattr(ctx, "kept"):
                ctx.kept.free()
        with runtime.AutocastDisabled() if self.known.autocast else contextlib.nullcontext():
            result = [*run(arguments)]
        self.inputs.after_a_part(ctx, result)
        return result

    def _arguments(self, ctx: Any, pattern: Pattern, part: Part, tangents: list[Any], keep: bool) -> list[Any]:
        saved = self.saved(ctx, pattern)
        self.refuse_lost(ctx, saved, part.read.__contains__)
        random = () if self._generators is None else self._generators.backward(ctx.random, True)
        if not keep:
            self.hold(pattern, ctx, saved)
        values = [*saved[: self._tensors], *getattr(ctx, "symbols", ())]
        return self.arguments(part, values, tangents, getattr(ctx, "shapes", ()), random)

    def saved(self, ctx: Any, pattern: Sequence[bool]) -> list[Any]:
        """The saved tensors, and the subclasses that they are parts of; None for one that is freed, or was written
        since."""
        if not self._tensors:
            return []
        parted = getattr(ctx, "parted", None)
        if parted is None:
            try:
                return list(ctx.saved_tensors)
            except RuntimeError as error:
                return self.known.written_since.others(ctx, error)
        gone, held = parted
        if any(there and i in gone for i, there in enumerate(pattern)):
            _ = ctx.saved_tensors  # raises
        return [None if entry is None or write_count(entry[0]) != entry[1] else entry[0] for entry in held]

    def refuse_lost(self, ctx: Any, saved: Sequence[Any], reads: Callable[[int], bool]) -> None:
        """Raise if a saved tensor that is None is read, or is a subclass that others are parts of and any is read."""
        any_is_read = any(map(reads, range(self._tensors)))
        for position, tensor in enumerate(saved):
            if tensor is None and (reads(position) if position < self._tensors else any_is_read):
                if hasattr(ctx, "parted") and ctx.parted[1][position] is None:
                    _ = ctx.saved_tensors  # raises: a backward of other results freed it
                raise self.known.written_since.at(position)

    def unread(self, ctx: Any, position: int) -> Any:
        """What stands for such a tensor where it is not read."""
        if hasattr(ctx, "parted"):
            entry = ctx.parted[1][position]
            return None if entry is None else entry[0]
        return autograd_nodes.saved_with_hooks(ctx)[position].data

    def hold(self, pattern: Pattern, ctx: Any, saved: Sequence[Any]) -> None:
        """See Note [One output after the other]."""
        gone = self._gone(pattern)
        if hasattr(ctx, "parted"):
            gone |= ctx.parted[0]
        needed = self._needed(gone)
        if needed:  # also the subclasses that the tensors are parts of
            needed |= self._for_a_second_derivative | frozenset(range(self._tensors, len(saved)))
        held = [(t, write_count(t)) if i in needed and t is not None else None for i, t in enumerate(saved)]
        ctx.parted = (gone, held)

    def _gone(self, pattern: Pattern) -> frozenset[int]:
        """The tangents that can no longer come after those of a pattern."""
        found = frozenset[int]()
        return found.union(*(group for group, there in zip(self.sharing, pattern, strict=True) if there))

    def _needed(self, gone: frozenset[int]) -> frozenset[int]:
        """The saved values that gradients which may still come would read."""
        needed = self._held.get(gone)
        if needed is None:
            count = len(self.tangents)
            alone = (self.read_alone(position) for position in range(count) if position not in gone)
            needed = self._held[gone] = frozenset[int]().union(*alone)
        return needed

    def _runner(self, pattern: Pattern, keep: bool) -> Compiled:
        return self.part(pattern).plain

    def arguments(
        self, part: Part, saved: Sequence[Any], tangents: list[Any], varying: Iterable[Any], random: Sequence[Any] = ()
    ) -> list[Any]:
        """The inputs of the graph of a part, tangents in its layout. Empties `tangents`. `saved` are the saved tensors
        and numbers, `varying` the shapes of the dynamic tangents."""
        shapes = iter(varying)
        sizes = [next(shapes) if is_dynamic(known) else known.size for known in self.tangents]

        def tangent(position: int) -> torch.Tensor:
            known, came = self.tangents[position], tangents[position]
            if came is None:
                came = torch.zeros(sizes[position], dtype=known.dtype, device=known.device)
            return in_layout(came, known)

        given: dict[str, Callable[[int], Any]]
        given = {"saved": saved.__getitem__, "tangent": tangent, "generator": random.__getitem__}
        found = [given[kind](position) for kind, position in part.sources]
        tangents.clear()
        return found


class PartialBackward(Parts):
    """The parts of a graph. `compile` is given one, the inputs of the whole backward that it takes, the positions of
    its donated inputs, the reason, and the name of the part."""

    def __init__(self, call: Split, compile: Compile, generators: Generators | None) -> None:
        super().__init__(Whole.of(call), generators)
        self._compile, self._donated = compile, call.donated
        self.module = call.backward_module
        self._names = [str(call.slots[tangent.slot].descriptor) for tangent in call.tangents]
        self._parts: dict[Pattern, _CutPart] = {}
        self._lock = threading.RLock()

    def part(self, pattern: Pattern) -> _CutPart:
        with self._lock:
            part = self._parts.get(pattern)
            if part is None:
                part = self._parts[pattern] = _CutPart(self, pattern)
            return part

    @functools.cached_property
    def sharing(self) -> Sequence[frozenset[int]]:
        shared = absent.sharing(self.module)
        numbers = {f"tangents_{i + 1}": i for i in range(len(self.tangents))}
        return [frozenset(numbers[other] for other in shared.get(name, ())) for name in numbers]

    def _runner(self, pattern: Pattern, keep: bool) -> Compiled:
        part = self.part(pattern)
        if runtime.batched() or part.only_plain:
            return part.plain
        with self._lock:
            if part.compiled is None:
                if sum(one.compiled is not None for one in self._parts.values()) >= MANY_PATTERNS:
                    return part.plain
                part.compiled = self._lazy(pattern, part)
        compiled = part.compiled
        return (compiled.keeping if keep else compiled.discarding) or compiled(keep)

    def _lazy(self, pattern: Pattern, part: _CutPart) -> LazyBackward:
        needed = self._needed(self._gone(pattern))
        free = {i for i in self._donated if self.known.sources[i][1] not in needed}
        donated = tuple(new for new, old in enumerate(part.inputs) if old in free)
        came = ", ".join(name for name, there in zip(self._names, pattern, strict=True) if there)
        why = f"the backward was first called with the gradients of {came} only"

        def compile(keeps: bool) -> Compiled:
            given = () if keeps else donated
            name = f"backward {''.join(map(str, map(int, pattern)))} donating {absent.short(given)}"
            return self._compile(part.module, tuple(part.inputs), given, why, name)

        return LazyBackward(compile, bool(donated), part.plain)
