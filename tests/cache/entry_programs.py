"""Small programs whose entries differ in kind: each has facts, rewrites or values that the others lack.

`run` is a user's call: the program, its backward, and the program again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils import _pytree as pytree

from tests.cache import steps


@dataclass(frozen=True)
class Program:
    f: Callable[..., Any]
    inputs: Callable[[], list[Any]]
    dynamic: bool = False
    grad: bool = True
    config: dict[str, Any] = field(default_factory=dict)  # of Dynamo
    door: str = "graph"  # "graph": Dynamo's graph as a later process gets it; "dynamo"; "aot_function"
    lowerings: tuple[str, ...] = ("eager", "inductor")
    use: Callable[[list[Any], list[Any]], None] = lambda results, leaves: _loss(results).backward()


def square() -> list[Any]:
    return steps.leaves((4, 4), (4, 4))


def plain() -> list[Any]:
    return [one.detach().clone() for one in square()]


def written() -> list[Any]:
    x, w = square()
    return [x.detach().clone(), w]


def overlapping() -> list[Any]:
    base = torch.arange(8.0)
    return [base[:6], base[2:], torch.ones(6, requires_grad=True)]


def pair() -> list[Any]:
    x, w = square()
    return [TwoTensor(x.detach().clone(), x.detach() * 2).requires_grad_(), w]


def complexes() -> list[Any]:
    x, w = square()
    return [torch.complex(x.detach(), w.detach()).requires_grad_(), w.detach().requires_grad_()]


def five() -> list[Any]:
    return steps.leaves((5, 4), (4, 4))


def bases(a: Any, b: Any, w: Any) -> Any:
    a.mul_(2)
    b.add_(1)
    return a * w, b[1:]


def views(x: Any, w: Any) -> Any:
    y = x @ w
    return y.view(-1)[2:10], y.t(), x.t(), y.sum(), x


def constants(x: Any, w: Any) -> Any:
    chosen = torch.tensor([3, 1, 0])
    scale = torch.tensor([1.0, 2.0, 3.0, 4.0])
    return (x[chosen] * scale).sum(), x.index_select(0, chosen) @ w


def conjugates(x: Any, w: Any) -> Any:
    y = x.conj() * w
    return torch.view_as_real(y).sum(), y.conj()


def reduced(x: Any, w: Any) -> Any:
    y = (x @ w).reshape(-1)
    return y.mean() * x.shape[0], y.expand(2, y.shape[0]).sum(0)


def moved(x: Any, w: Any) -> Any:
    x.t_()
    x.unsqueeze_(0)
    return (x * w).sum()


def joined(x: Any, w: Any) -> Any:
    return {"sum": (x @ w).sin().sum(), "rest": [torch.cat([x, w]), None, 3]}


def bought(x: Any, w: Any) -> Any:
    x.requires_grad_()
    y = (x * w).exp()
    x.detach_()
    return y


def several(x: Any, w: Any) -> Any:
    y = (x @ w).sin()
    return y, (y * w).sum(), x.exp()


def _loss(results: list[Any]) -> Any:
    total: Any = sum(one.abs().sum() for one in results)
    return total.sum()


def twice(results: list[Any], leaves: list[Any]) -> None:
    """The gradients are differentiated again."""
    first = torch.autograd.grad(_loss(results), leaves, create_graph=True)
    _loss([one for one in first if one.requires_grad]).backward()


def hooked(results: list[Any], leaves: list[Any]) -> None:
    """A hook on a result changes the gradient of another."""
    results[0].register_hook(lambda gradient: gradient * 2)
    _loss(results[1:]).backward()


def first_alone(results: list[Any], leaves: list[Any]) -> None:
    """Most results have no gradient; then a second backward of the same graph has others."""
    _loss(results[:1]).backward(retain_graph=True)
    _loss(results[1:2]).backward()


DATA = {"capture_dynamic_output_shape_ops": True, "capture_scalar_outputs": True}

PROGRAMS: dict[str, Program] = {
    "training": Program(steps.loss_and_logits, square),
    "inference": Program(steps.loss_and_logits, plain, grad=False),
    "symbolic": Program(steps.loss_and_logits, five, dynamic=True),
    "saved symbols": Program(reduced, five, dynamic=True),
    "written": Program(steps.writes, written),
    "moved": Program(moved, written, door="aot_function", lowerings=("eager",)),
    "synthetic bases": Program(bases, overlapping),
    "subclass": Program(steps.loss_and_logits, pair),
    "regions": Program(steps.regions, square, door="dynamo"),
    "condition": Program(steps.condition, square),
    "dropout": Program(steps.dropout, square),
    "constants": Program(constants, square),
    "views": Program(views, square),
    "conjugates": Program(conjugates, complexes, lowerings=("eager",)),
    "custom": Program(steps.custom_function, square),
    "checkpoint": Program(steps.checkpointed, square),
    "autocast": Program(steps.under_autocast, square, door="dynamo"),
    "effects": Program(steps.with_effects, plain, grad=False),
    "picked": Program(steps.picked, square, config=DATA, door="dynamo", lowerings=("eager",)),
    "counted": Program(steps.counted, square, config=DATA, door="dynamo", lowerings=("eager",)),
    "of Dynamo": Program(steps.loss_and_logits, square, door="dynamo"),
    "second derivative": Program(several, square, use=twice),
    "hooks": Program(several, square, use=hooked),
    "missing gradients": Program(several, square, use=first_alone),
    "structure": Program(joined, square, door="aot_function", lowerings=("eager",)),
}


def run(program: Program, compiled: Callable[..., Any], make: Callable[[], list[Any]]) -> list[Any]:
    """What a user sees of two calls and a backward: results, gradients, and what was written."""
    found: list[Any] = []
    with contextlib.nullcontext() if program.grad else torch.no_grad():
        for turn in range(2):
            inputs = make()
            torch.manual_seed(turn)
            results = compiled(*inputs)
            tensors = [one for one in pytree.tree_leaves(results) if isinstance(one, torch.Tensor)]
            wanted = [one for one in tensors if one.requires_grad]
            if turn == 0 and program.grad and wanted:
                given = [one for one in inputs if isinstance(one, torch.Tensor)]
                program.use(wanted, [one for one in given if one.requires_grad and one.is_leaf])
            found += [*pytree.tree_leaves(results), *inputs, *(getattr(one, "grad", None) for one in inputs)]
    return [told(one) for one in found]


def told(value: Any) -> Any:
    """A value as data that can be compared."""
    if isinstance(value, TwoTensor):
        return ["pair", told(value.a), told(value.b)]
    if not isinstance(value, torch.Tensor):
        return repr(value)
    plain = value.detach()
    if plain.is_complex():
        plain = torch.view_as_real(plain.resolve_conj())
    return [str(value.dtype), list(value.shape), list(value.stride()), value.requires_grad, plain.double().tolist()]


def alike(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return one == other or abs(one - other) <= 1e-4 * max(1.0, abs(one)) or (one != one and other != other)
    return bool(one == other)
