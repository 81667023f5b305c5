"""What is traced: a function with its arguments, and what is known before it runs.

Some of this only a run can find out: that the function changes the shape of a view, or that it asks for the value of a
tensor. Such a run is given up, and its result is a `Known` with which the function runs again.

Note [Values asked for]
A trace has no values. A function that asks for one (`if x.sum() > 0`, `x.item()`) often does so only to check its
arguments or to save work, and not under a compiler. So it runs again with `torch.compiler.is_compiling()` True.

Note [Differentiated inside]
`torch.autograd.grad` inside the function frees the autograd graph that it went through, which the trace may need once
more for its own backward. Then the function runs again, and keeps that graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.autograd.graph import GradientEdge

from aotviz.torch_private.fake_tensors import FakeTensorMode
from aotviz.tracing.functional import Before
from aotviz.tracing.views_of_no_grad_bases import ViewOfNoGradBase


@dataclass(frozen=True)
class Known:
    """What an earlier run of a function, or a stage, found out, and the next run must know before it starts."""

    # Inputs that the function gets as a view; see Note [Inputs changed in place].
    as_views: frozenset[int] = frozenset()
    # Input -> the other inputs whose writes bump its version counter; see tracing/views_of_no_grad_bases.py.
    no_grad_views: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    logs_views: bool = False  # record views of subclasses, which the graph does not show
    turns_grad_on: bool = False  # it calls requires_grad_() on an input, and none required grad before
    is_compiling: bool = False  # `torch.compiler.is_compiling()` is True; see Note [Values asked for]
    retains_graph: bool = False  # in inner autograd.grad; see Note [Differentiated inside]
    deferred_hooks: frozenset[int] = frozenset()  # numbers of the hooks on results; see tracing/registered_hooks.py

    def placed(self, place: Mapping[int, int], as_views: frozenset[int] | None = None) -> Known:
        """The same for another calling convention. `place` maps the old positions to the new ones; `as_views` are the
        new positions of those inputs, if they are not simply the old ones moved."""
        if as_views is None:
            as_views = frozenset(place[i] for i in self.as_views if i in place)
        moved = {place[i]: {place[j] for j in others} for i, others in self.no_grad_views.items() if i in place}
        no_grad_views = {i: tuple(others - {i}) for i, others in moved.items()}
        return replace(self, as_views=as_views, no_grad_views=no_grad_views)


@dataclass(frozen=True)
class Program:
    """The function to run: `fn(*args)` returns any pytree. `args` are fakes, one per graph input."""

    fn: Callable[..., Any]
    args: Sequence[Any]
    fake_mode: FakeTensorMode
    decompositions: Mapping[Any, Any] | None
    root_module: torch.nn.Module | None  # whose module paths the nodes carry
    is_graph: bool  # `fn` interprets a graph whose nodes bring their own stacks
    keep_input_mutations: bool
    names: Sequence[str] = ()  # the user's names of the inputs
    made_no_grad_views: list[ViewOfNoGradBase] | None = None  # `fn` appends those that it creates itself
    known: Known = Known()

    @property
    def with_gradients(self) -> bool:
        """Whether an input requires grad, or comes to."""
        requiring = (isinstance(value, torch.Tensor) and value.requires_grad for value in self.args)
        return self.known.turns_grad_on or any(requiring)

    def name(self, position: int) -> str:
        """The user's name of an input, for a message."""
        return repr(self.names[position]) if position < len(self.names) else "an input"


@dataclass(frozen=True)
class StandIn:
    """A tensor that a rewrite created inside the function to replace a graph input, and its initial state."""

    tensor: torch.Tensor
    before: Before
    edge: GradientEdge | None  # where its gradient goes


@dataclass(frozen=True)
class WithMembers:
    """What a traced function returns if a rewrite created some of the user's inputs inside it."""

    result: Any
    members: Mapping[int, Any]  # position among the user's inputs -> the tensor that replaced it
    shared: Mapping[int, int]  # member -> the graph input whose version counter it shares
    # Graph input whose elements are never read -> the tensor that has its gradient edge.
    stand_ins: Mapping[int, StandIn] = field(default_factory=dict)
    hidden_counters: frozenset[int] = frozenset()  # graph inputs whose version counter the caller cannot see
    members_with_grad_fn: frozenset[int] = frozenset()  # members whose current grad_fn is known to autograd
