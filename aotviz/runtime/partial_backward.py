"""The backward where not all gradients come in, and what it leaves for the others.

Eager walks only the part of its graph that a gradient reaches. A compiled backward is one node, so for each pattern of
gradients that come in it has a graph of its own (`ir/absent.py`), compiled on first use.

Note [One output after the other]
`a.backward(); b.backward()` is fine in eager where the two share no node that has saved something. The engine frees all
of our one node after the first. So the first backward holds on to what the other gradients would read, with the version
of each tensor, since autograd watches them no longer. Where the two share such a node, the second is refused in torch's
own words.

Note [Hooks without a gradient]
An input that no gradient reaches gets None from our node, and the engine goes on with that: it calls the hooks on that
input, and on all that the input was computed from, with None. In eager it never comes there. So these hooks are held
back until the backward has ended. Found are those on the inputs themselves, on what they are views of, and on leaves.
Hooks on an input that the call writes remain with the history that it had before, so they are noted before that.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from aotviz.ir import absent, graphs
from aotviz.ir.forms import Split
from aotviz.runtime.lazy_backward import LazyBackward
from aotviz.runtime.refusals import WrittenSince
from aotviz.runtime.tangents import in_layout
from aotviz.torch_private import gradient_hooks, runtime
from aotviz.torch_private.fakes import all_concrete
from aotviz.torch_private.modules import forward_of
from aotviz.torch_private.philox import is_generator

MANY_PATTERNS = 8  # of gradients; the graphs of further ones are run as they are
MANY_NODES = 1000  # of autograd's graph before the call; further ones are not looked at for leaves with hooks
Pattern = tuple[bool, ...]  # one per tangent: does it come in


def sources(call: Split) -> list[tuple[str, int]]:
    """Where each input of the backward graph is found: ("saved" | "tangent" | "generator", position)."""
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
            found.append(("tangent", int(node.name.removeprefix("tangents_")) - 1))
        else:  # the state of a random generator, which partitioners name anew in the backward
            found.append(("saved", next(renamed)))
    return found


def partly_reached(call: Split) -> list[int]:
    """The inputs that gradients of some of the results reach, and those of others do not."""
    graph = call.backward_module.graph
    tangents = [node for node in graphs.placeholders(graph) if absent.is_tangent(node)]
    reached = graphs.dependencies(graph, tangents)
    gradients = enumerate(graphs.outputs(graph)) if call.wrapping is None else ()
    return [i for i, gradient in gradients if gradient is not None and len(reached(gradient)) < len(tangents)]


class _Part:
    """The backward for one pattern."""

    def __init__(self, module: Any, inputs: list[int]) -> None:
        self.module, self.inputs = module, inputs  # of the whole backward's inputs, those that it takes
        self.compiled: LazyBackward | None = None


Request = Callable[[Any, tuple[int, ...], tuple[int, ...], str], Any]


class PartialBackward:
    """The backward of one program, for any pattern of gradients. `request` makes what the pipeline compiles: of a
    graph, the inputs of the whole backward that it takes, which of its own are donated, and why."""

    def __init__(self, call: Split, request: Request, compile: Callable[[Any], Any]) -> None:
        self._call, self._request, self.compile = call, request, compile
        self._sources = sources(call)
        self._written_since = WrittenSince(call)
        self._tensors = call.saved_tensor_count
        self._parts: dict[Pattern, _Part] = {}
        self._lock = threading.RLock()
        self._count = len(graphs.outputs(call.backward_module.graph))
        self.generators: Any = None
        tensors = [i for i, info in enumerate(call.meta.input_info) if info.is_tensor]
        self._partly = {i: tensors.index(i) for i in partly_reached(call)}

    def __call__(self, ctx: Any, tangents: Sequence[Any]) -> list[Any]:
        """What the backward graph returns, a list. `tangents` are None where none came in."""
        pattern = tuple(tangent is not None for tangent in tangents)
        if not any(pattern):
            return [None] * self._count
        keep = runtime.keeps_graph()
        part = self._part(pattern)
        run = self._runner(pattern, part, keep or hasattr(ctx, "parted"))
        arguments = self._arguments(ctx, pattern, part, tangents, keep)
        if not keep and runtime.HAS_BOXED_GRADIENTS:
            ctx.maybe_clear_saved_tensors()  # the list now holds the last references
        with runtime.AutocastDisabled() if self._call.meta.autocast else contextlib.nullcontext():
            result = [*run(arguments)]
        self.spare_hooks(ctx, result)
        return result

    def spare_hooks(self, ctx: Any, result: Sequence[Any]) -> None:
        """See Note [Hooks without a gradient]."""
        unreached = [place for i, place in self._partly.items() if result[i] is None]
        if not unreached:
            return
        following = ctx.next_functions
        tensors = runtime.leaves_behind([following[place][0] for place in unreached], MANY_NODES)
        inputs = [tensor for reference in getattr(ctx, "partly", ()) if (tensor := reference()) is not None]
        tensors += [*inputs, *(tensor._base for tensor in inputs if tensor._base is not None)]
        gradient_hooks.spare_hooks(tensors, getattr(ctx, "hooks", ()))

    def _arguments(self, ctx: Any, pattern: Pattern, part: _Part, tangents: Sequence[Any], keep: bool) -> list[Any]:
        saved = self._saved(ctx, pattern)
        given = {
            "saved": [*saved[: self._tensors], *getattr(ctx, "symbols", ())],
            "tangent": self._laid_out(ctx, part, tangents),
        }
        if self.generators is not None:
            given["generator"] = self.generators.backward(ctx.random, True)
        if not keep:
            self._hold(ctx, pattern, saved)
        return [given[kind][position] for kind, position in (self._sources[i] for i in part.inputs)]

    def _saved(self, ctx: Any, pattern: Pattern) -> list[Any]:
        """The saved tensors; None for one that is gone and that this pattern does not read."""
        parted = getattr(ctx, "parted", None)
        if parted is None:
            try:
                return list(ctx.saved_tensors)
            except RuntimeError as error:
                raise self._written_since(ctx, error) from None
        done, held = parted
        names = _names(pattern)
        module = self._call.backward_module
        if any(absent.shares_saved(module, _names(before), names) for before in done):
            _ = ctx.saved_tensors  # raises
        for position, entry in enumerate(held):
            if entry is not None and entry[0]._version != entry[1]:
                raise self._written_since.at(position)
        return [None if entry is None else entry[0] for entry in held]

    def _hold(self, ctx: Any, pattern: Pattern, saved: list[Any]) -> None:
        """See Note [One output after the other]."""
        parted = getattr(ctx, "parted", None)
        done = (*(parted[0] if parted is not None else ()), pattern)
        needed = self._needed(done)
        if needed:  # behind the tensors that the graph takes, the wholes that they are parts of
            needed.update(range(self._tensors, len(saved)))
        held = [(t, t._version) if i in needed and t is not None else None for i, t in enumerate(saved)]
        ctx.parted = (done, held)

    def _needed(self, done: tuple[Pattern, ...]) -> set[int]:
        """The saved values that gradients which may still come in would read."""
        module, count = self._call.backward_module, len(self._call.tangents)
        needed: set[int] = set()
        for position in range(count):
            alone = tuple(i == position for i in range(count))
            if not any(absent.shares_saved(module, _names(before), _names(alone)) for before in done):
                read = (self._sources[i] for i in self._part(alone).inputs)
                needed |= {place for kind, place in read if kind == "saved"}
        return needed

    def _part(self, pattern: Pattern) -> _Part:
        with self._lock:
            part = self._parts.get(pattern)
            if part is None:
                missing = {f"tangents_{i + 1}" for i, there in enumerate(pattern) if not there}
                whole = [node.name for node in graphs.placeholders(self._call.backward_module.graph)]
                module = absent.without(self._call.backward_module, missing)
                inputs = [whole.index(node.name) for node in graphs.placeholders(module.graph)]
                part = self._parts[pattern] = _Part(module, inputs)
            return part

    def _runner(self, pattern: Pattern, part: _Part, keep: bool) -> Callable[[list[Any]], Any]:
        plain = _as_it_is(part.module)
        if runtime.batched() or all(result is None for result in graphs.outputs(part.module.graph)):
            return plain
        with self._lock:
            if part.compiled is None:
                if sum(one.compiled is not None for one in self._parts.values()) >= MANY_PATTERNS:
                    return plain
                needed = self._needed((pattern,))
                free = {i for i in self._call.donated if self._sources[i][1] not in needed}
                donated = tuple(new for new, old in enumerate(part.inputs) if old in free)
                slots = [self._call.slots[tangent.slot].descriptor for tangent in self._call.tangents]
                came = ", ".join(str(slot) for slot, there in zip(slots, pattern, strict=True) if there)
                why = f"the backward was first called with gradients of {came} only"

                def request(keeps: bool) -> Any:
                    return self._request(part.module, tuple(part.inputs), () if keeps else donated, why)

                part.compiled = LazyBackward(request, self.compile, bool(donated), plain)
        return part.compiled(keep)

    def _laid_out(self, ctx: Any, part: _Part, tangents: Sequence[Any]) -> list[Any]:
        read = {place for kind, place in (self._sources[i] for i in part.inputs) if kind == "tangent"}
        made: list[Any] = []
        shapes = iter(getattr(ctx, "shapes", ()))
        for position, (tangent, known) in enumerate(zip(tangents, self._call.tangents, strict=True)):
            shape = known.size if all_concrete((*known.size, *known.stride)) else next(shapes)
            if position not in read:
                made.append(None)
            else:
                if tangent is None:
                    tangent = torch.zeros(shape, dtype=known.dtype, device=known.device)
                made.append(in_layout(tangent, known))
        return made


def _names(pattern: Pattern) -> frozenset[str]:
    return frozenset(f"tangents_{i + 1}" for i, there in enumerate(pattern) if there)


def _as_it_is(module: Any) -> Callable[[list[Any]], Any]:
    return lambda arguments: forward_of(module)(*arguments)
