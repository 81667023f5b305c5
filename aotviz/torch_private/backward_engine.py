"""The one place in torch where every backward that Python starts passes: `_engine_run_backward`.

Also, what Python is told of the backward that runs.
"""

from __future__ import annotations

import contextlib
import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import graph as autograd_graph

from aotviz.torch_private.tracers import swapped

Engine = Callable[..., Any]

_replaced: list[tuple[Engine, Any, Any]] = []  # torch's own function, engine and `current`, while `install` is on


class _WithCallbacks:
    """Autograd's engine, whose `queue_callback` is another."""

    def __init__(self, engine: Any, queue: Callable[[Callable[[Any], None], Any], None]) -> None:
        self._engine, self._queue = engine, queue

    def queue_callback(self, callback: Callable[[], Any]) -> None:
        self._queue(self._engine.queue_callback, callback)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def install(
    wrap: Callable[[Engine], Engine],
    queue: Callable[[Callable[[Any], None], Any], None],
    current: Callable[[Callable[[], Any]], Any],
) -> None:
    """Have backwards run by what `wrap` makes of torch's function, and callbacks queued by `queue`, which is given the
    engine's own `queue_callback` too. `current` tells of the node that runs; it is given torch's own function."""
    original, engine = autograd_graph._engine_run_backward, torch.autograd.Variable._execution_engine
    engines_node: Callable[[], Any] = torch._C._current_autograd_node
    wrapped = functools.wraps(original)(wrap(original))
    _replaced.append((original, engine, engines_node))
    autograd_graph._engine_run_backward = torch.autograd._engine_run_backward = wrapped
    torch.autograd.Variable._execution_engine = _WithCallbacks(engine, queue)  # type: ignore[assignment]
    torch._C._current_autograd_node = torch.compiler.disable(lambda: current(engines_node))


def uninstall() -> None:
    original, torch.autograd.Variable._execution_engine, torch._C._current_autograd_node = _replaced.pop()
    autograd_graph._engine_run_backward = torch.autograd._engine_run_backward = original


def asking(
    before: Callable[[Sequence[Any]], bool], after: Callable[[Sequence[Any], Sequence[Any]], None]
) -> contextlib.AbstractContextManager[None]:
    """Inside, call `before` with the inputs of each backward, and `after` with their gradients, too. `before` returns
    whether the autograd graph must be kept."""
    engine: Engine = torch.autograd._engine_run_backward

    def run(outputs: Any, gradients: Any, retain: bool, create: bool, inputs: Any, *rest: Any, **how: Any) -> Any:
        found = engine(outputs, gradients, before(inputs) or retain, create, inputs, *rest, **how)
        after(inputs or (), found or ())
        return found

    return swapped(torch.autograd, _engine_run_backward=functools.wraps(engine)(run))


@dataclass(frozen=True)
class AutogradNode:
    """A node of autograd's graph; the first of a backward, its root, is none that Python sees."""

    node: Any
    name: str  # as C++ calls it
    sequence: int
    goes_on: bool = True  # the engine runs the node; it does not run one whose gradient is only asked for


def visits(outputs: Sequence[Any], inputs: Sequence[Any]) -> list[AutogradNode]:
    """The nodes of a backward, in the order in which C++ visits them to capture it.

    Args:
        outputs: tensors, or gradient edges, from which the backward starts.
        inputs: the ones whose gradients are asked for; empty for all leaves.
    """
    roots = [edge(output)[0] for output in outputs]
    edges: dict[Any, list[Any]] = {}
    count = Counter(roots)
    stack = list(dict.fromkeys(roots))
    while stack:
        node = stack.pop()
        if node not in edges:
            edges[node] = [following for following, _ in node.next_functions if following is not None]
            count.update(edges[node])
            stack += edges[node]
    wanted = _leading_to(edges, {edge(one)[0] for one in inputs}) if inputs else edges.keys()
    found = [AutogradNode(None, "torch::autograd::GraphRoot", 0)]
    queue: list[Any] = []
    following = roots
    while True:
        for one in following:
            if one in wanted:
                count[one] -= 1
                if count[one] == 0:
                    queue.append(one)
        if not queue:
            return found
        node = queue.pop()
        kind: Any = type(node)  # an attribute of a Function's `ctx` hides the node's own
        goes_on = any(one in wanted for one in edges[node]) or not inputs
        found.append(AutogradNode(node, kind.name(node), kind._sequence_nr(node), goes_on))
        following = edges[node]


def started_at(output: Any) -> Any:
    """The node at which a backward of a tensor, or of a gradient edge, starts; None for a leaf."""
    return output.node if isinstance(output, autograd_graph.GradientEdge) else output.grad_fn


def edge(of: Any) -> tuple[Any, int]:
    """The node of a tensor or of a gradient edge, and which of the node's gradients is the tensor's."""
    found = of if isinstance(of, autograd_graph.GradientEdge) else autograd_graph.get_gradient_edge(of)
    return found.node, found.output_nr


def _leading_to(edges: dict[Any, list[Any]], targets: set[Any]) -> set[Any]:
    """The nodes from which a gradient reaches one of `targets`, these included."""
    above = defaultdict[Any, list[Any]](list)
    for node, following in edges.items():
        for one in following:
            above[one].append(node)
    found, stack = set(targets), list(targets)
    while stack:
        for node in above.get(stack.pop(), ()):
            if node not in found:
                found.add(node)
                stack.append(node)
    return found
