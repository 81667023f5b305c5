"""Copies the backward of a compiled forward into the graph of the whole backward, so that one compiler sees both.

The node of a compiled forward runs Python: it unpacks what was saved, brings the gradients into the layout that its
graph was traced with, and runs that graph. The graph and the layouts are known, so they can be written down as steps,
under names that lead back: `aot0_mul_1` is the node `mul_1` of the first compiled backward. Where the Python does more
(draw random numbers, write to a gradient, call an effect), nothing is copied, and the node is called as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
import torch.fx as fx
from torch.autograd.function import BackwardCFunction

from aotviz.ir import graphs
from aotviz.runtime.captured_backward import Capturable, CapturedBackward
from aotviz.runtime.partial_backward import Pattern, is_dynamic
from aotviz.torch_private import autograd_nodes as torchs
from aotviz.torch_private import backward_capture
from aotviz.torch_private.dispatch import without_modes
from aotviz.whole_backward import steps


def captured_forward(node: Any) -> CapturedBackward | None:
    """How the backward of an autograd node is captured, if aotviz compiled its forward."""
    function: Any = torchs.function_of(node) if isinstance(node, BackwardCFunction) else object
    return function.captured if issubclass(function, Capturable) else None


class Writer(Protocol):
    """The graph into which a backward is copied."""

    def step(self, target: Callable[..., Any], args: tuple[Any, ...], name: str | None = None) -> Any:
        """Write a step; its stand-in is returned."""
        ...

    def copied(self, node: fx.Node, root: torch.nn.Module, known: dict[fx.Node, Any], name: str) -> Any:
        """Write a copy of `node`, with what is `known` for its arguments."""
        ...

    def are_there(self, values: Sequence[Any]) -> bool:
        """Whether the graph has these from the beginning: they are no results of a step."""
        ...

    def before_all(self, target: Callable[..., Any], position: int, args: tuple[Any, ...]) -> None:
        """Have Python called before anything else runs, with the autograd node at `position` in front of `args`."""
        ...


class Inliner:
    """Copies backwards into one capture, and says which."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._numbers: dict[Any, int] = {}  # what is copied -> which one, in the order in which they come
        self._times: dict[Any, int] = {}
        self.unreached: set[Any] = set()  # autograd's nodes that get no gradient, and that eager would not run
        self.told: list[tuple[str, str]] = []  # (prefix of the nodes' names, where they come from), or (name, why not)

    def only_looks(self, node: Any, position: int) -> bool:
        """Whether the hooks on a result of a compiled forward need not be called, if its backward is copied."""
        ours = captured_forward(node)
        with without_modes():
            return ours is not None and ours.only_looks(node, position) and not ours.why_as_it_is(node)

    def inlined(
        self, node: Any, position: int, saved: Sequence[Any], gradients: Sequence[Any], special: bool
    ) -> list[Any] | None:
        """The results of the backward of `node`, one per input of its forward, each a stand-in or None.

        None if it must be called as it is. `special` is whether it takes more than saved tensors and sizes.
        """
        ours = captured_forward(node)
        if ours is None:
            theirs = None if special else backward_capture.torchs_backward(node)
            return None if theirs is None else self._torchs(theirs, node, saved, gradients)
        came = [gradient is not None for gradient in gradients]
        with without_modes():
            ours.refuse_parts(node, came)
            pattern = ours.pattern(came)
            why = ours.why_not_copied(node, pattern)
            if not why and not all(came) and not self._writer.are_there(saved):  # `hold` is called before all
                why = "hooks unpack what it saved, and only some of its results have a gradient"
            module = None if why else ours.module(pattern)
        if module is not None:
            return self._ours(ours, module, pattern, node, position, saved, gradients)
        self.told.append((f"backward of {ours.name}", f"is called as it is: {why}"))
        return None

    def _ours(
        self,
        ours: CapturedBackward,
        module: fx.GraphModule,
        pattern: Pattern,
        node: Any,
        position: int,
        saved: Sequence[Any],
        gradients: Sequence[Any],
    ) -> list[Any]:
        partial, step = ours.partial, self._writer.step
        prefix = self._prefix(ours, ours.name)
        if not all(pattern):
            self._writer.before_all(steps.hold(functools.partial(partial.hold, pattern)), position, tuple(saved))
        sizes = list(torchs.sizes_of(node))
        kept, shapes = [*saved, *sizes[: ours.symbols]], iter(sizes[ours.symbols :])
        laid_out: list[Any] = []
        for tangent in partial.tangents:
            shape = tuple(next(shapes) for _ in tangent.size) if is_dynamic(tangent) else tuple(tangent.size)
            laid_out.append((steps.laid_out(tangent), gradients[tangent.slot], shape))
        given: list[Any] = []
        for kind, i in partial.part(pattern).sources:
            if kind == "tangent":
                target, gradient, shape = laid_out[i]
                given.append(step(target, (gradient, shape), f"{prefix}_tangent_{i}"))
            else:
                given.append(kept[i])
        results = self._copied(module, given, prefix)
        following = (one for one, _ in node.next_functions)
        self.unreached |= {one for i, one in zip(ours.tensors, following, strict=True) if results[i] is None}
        return results

    def _torchs(
        self, part: backward_capture.TorchsBackward, node: Any, saved: Sequence[Any], gradients: Any
    ) -> list[Any]:
        prefix = self._prefix(torchs.function_of(node), f"graph {part.number} of torch's AOTAutograd")
        sizes = list(torchs.sizes_of(node))
        args = (list(saved), sizes, list(gradients))
        whole = self._writer.step(_prologue(part), args, f"{prefix}_arguments")
        count = len(graphs.placeholders(part.module.graph))
        given = [*sizes, *(self._writer.step(steps.item, (whole, i)) for i in range(len(sizes), count))]
        return list(part.epilogue(self._copied(part.module, given, prefix)))

    def _copied(self, module: fx.GraphModule, given: Sequence[Any], prefix: str) -> list[Any]:
        known: dict[fx.Node, Any] = dict(zip(graphs.placeholders(module.graph), given, strict=True))
        for node in module.graph.nodes:
            if node.op not in ("placeholder", "output"):
                known[node] = self._writer.copied(node, module, known, f"{prefix}_{node.name}")
        return [known[one] if isinstance(one, fx.Node) else one for one in graphs.outputs(module.graph)]

    def _prefix(self, copied: Any, name: str) -> str:
        number = self._numbers.setdefault(copied, len(self._numbers))
        times = self._times[copied] = self._times.get(copied, -1) + 1
        prefix = f"aot{number}_{times}" if times else f"aot{number}"
        self.told.append((prefix, f"copied from the backward of {name}"))
        return prefix


def _prologue(part: backward_capture.TorchsBackward) -> steps.Computed:
    """(saved tensors, sizes, gradients) -> the inputs of the graph."""

    def run(saved: Sequence[Any], sizes: Sequence[Any], gradients: Sequence[Any]) -> Any:
        return part.prologue([*saved], [*sizes], [], [*gradients])

    return steps.Computed(run, "prologue")
