"""What a program in a file of its own calls, beside what every generated wrapper calls (`aotviz/standalone/`).

Such a file has the graphs of a program, and no trace of the user's function. So these classes stand for the objects of
a compiled program that hold the trace. Each says what it cannot do when that is needed, and does the rest.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aotviz.ir.view_and_mutation import Ref
from aotviz.runtime import edges
from aotviz.runtime.partial_backward import Part, Parts, Pattern, Whole
from aotviz.torch_private import autograd_nodes, runtime
from aotviz.torch_private.tensors import set_write_counts, write_count

Graph = Callable[..., tuple[Any, ...]]


class NotInTheFile(RuntimeError):
    """A call needs something that a program in a file of its own does not have. The compiled function can do it."""


class Function(torch.autograd.Function):
    """The base of the file's `autograd.Function`."""

    @staticmethod
    def _compiled_autograd_key(ctx: Any) -> tuple[int, ...]:
        name = autograd_nodes.function_of(ctx).__name__
        raise NotInTheFile(f"{name} is in a file of its own, and compiled autograd cannot capture its backward")


@dataclass(frozen=True)
class Incoming:
    """One incoming gradient."""

    name: str  # of its result
    sharing: frozenset[int]  # the gradients that share saved values with it
    reads: frozenset[int]  # the saved values that are read if it comes alone


class PartsOfFile(Parts):
    """The backward with some gradients missing. `written` has the functions of the file, and the sources of their
    arguments, by the pattern of gradients that come in."""

    def __init__(
        self,
        known: Whole,
        incoming: tuple[Incoming, ...],
        written: Mapping[Pattern, tuple[Graph, tuple[tuple[str, int], ...]]],
    ) -> None:
        super().__init__(known, None)
        self._incoming = incoming
        self._written = {pattern: Part(taking_a_list(run), given) for pattern, (run, given) in written.items()}

    def part(self, pattern: Pattern) -> Part:
        found = self._written.get(pattern)
        if found is None:
            came = ", ".join(one.name for one, there in zip(self._incoming, pattern, strict=True) if there)
            raise NotInTheFile(
                f"{self.known.written_since.call}: the file has no backward for the gradients of {came} without the "
                "others. It has one for all gradients, and one for each of them alone."
            )
        return found

    @functools.cached_property
    def sharing(self) -> Sequence[frozenset[int]]:
        return [one.sharing for one in self._incoming]

    def read_alone(self, tangent: int) -> set[int]:
        return set(self._incoming[tangent].reads)


def taking_a_list(function: Graph) -> Callable[[list[Any]], tuple[Any, ...]]:
    """The same function, called as the wrapper calls a compiled graph."""
    return lambda args: function(*args)


def counting_no_writes(function: Graph, written: tuple[int, ...]) -> Callable[[list[Any]], tuple[Any, ...]]:
    """The same function of a list, which leaves the version counters of the inputs that it writes as they are, like
    the code that Inductor makes of it. The wrapper counts these writes."""

    def run(args: list[Any]) -> tuple[Any, ...]:
        tensors = tuple(args[i] for i in written)
        before = tuple(map(write_count, tensors))
        result = function(*args)
        set_write_counts(tensors, before)
        return result

    return run


class PlainGradients:
    """The backward under `create_graph=True`. The gradients are computed as they are without it; an error is raised
    only if they are differentiated, since the second derivative is made of the trace. `slots` are the results that
    receive a gradient, of `count`."""

    def __init__(self, call: str, slots: tuple[int, ...], count: int) -> None:
        self.call, self.slots, self.count = call, slots, count

    def __call__(self, ctx: Any, symbols: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, ...]:
        incoming: list[Any] = [None] * self.count
        for slot, tangent in zip(self.slots, tangents, strict=True):
            incoming[slot] = tangent
        plain = runtime.backward_without_history(ctx, incoming)
        ends = [edge() for edge in getattr(ctx, "edges", ()) if edge is not None]
        ends += [node.variable for node, _ in ctx.next_functions if hasattr(node, "variable")]
        history = [one for one in (*tangents, *ends) if one is not None and one.requires_grad]
        why = f"{self.call}: the gradients were computed by a file, which has no trace to differentiate them again"
        return edges.delayed_error(plain, history, NotInTheFile(f"{why} (create_graph=True)"))

    def without_history(
        self,
        ctx: Any,
        symbols: Sequence[Any],
        tangents: Sequence[Any],
        wholes: Mapping[Ref, Any] | None = None,
        wanted: Ref | None = None,
        hooked: str = "",
    ) -> tuple[Any, ...]:
        about = f"a hook on {hooked} changes a gradient inside the graph"
        if not hooked:
            about = "only some results of a custom autograd.Function receive a gradient"
        raise NotInTheFile(f"{self.call}: {about}, and the file has no trace from which that is computed")


def tensor_of(text: str, dtype: torch.dtype, size: tuple[int, ...], stride: tuple[int, ...], device: str) -> Any:
    """A constant of a graph, from the text that `text_of` made of it.

    >>> one = torch.tensor([[1.5, -0.0], [2.0, float("inf")]]).t()
    >>> again = tensor_of(text_of(one), one.dtype, (2, 2), (1, 2), "cpu")
    >>> again.tolist(), again.stride()
    ([[1.5, 2.0], [-0.0, inf]], (1, 2))
    """
    content = bytearray(base64.b85decode(text))
    flat = torch.frombuffer(content, dtype=torch.uint8) if content else torch.empty(0, dtype=torch.uint8)
    made = torch.empty_strided(size, stride, dtype=dtype, device=device)
    return made.copy_(flat.view(dtype).reshape(size))


def text_of(tensor: torch.Tensor) -> str:
    """The elements of a dense tensor as text, bit for bit."""
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return base64.b85encode(flat.numpy().tobytes()).decode()
