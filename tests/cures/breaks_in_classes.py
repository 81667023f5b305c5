"""Graph breaks at classes of the program's own: tensor subclasses, custom autograd.Functions, checkpointed modules."""

from __future__ import annotations

from typing import Any, Self

import torch

from aotviz.explain.cures import break_cures as cures
from tests.cures.programs import compiled, graph_breaks, program


class Scaled(torch.Tensor):
    """A tensor that is kept as another one and a factor, as those of a quantized weight are."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> Self:
        made = torch.Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype)
        made.held = held
        return made

    def __repr__(self) -> str:  # type: ignore[override]
        return "Scaled(...)"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        plain = [one.held * 2 if isinstance(one, Scaled) else one for one in args]
        return func(*plain, **(kwargs or {}))


class TakenApart(Scaled):
    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["held"], None

    @staticmethod
    def __tensor_unflatten__(held: dict[str, torch.Tensor], kept: None, size: Any, stride: Any) -> TakenApart:
        return TakenApart(held["held"])


@program(
    "a tensor subclass that torch cannot take apart",
    cures.SUBCLASS,
    "give it `__tensor_flatten__` and `__tensor_unflatten__`",
    ("pytorch/pytorch#115646",),
    graph_breaks,
)
def a_subclass(cured: bool) -> object:
    weight = (TakenApart if cured else Scaled)(torch.ones(3))
    return compiled(lambda x, weight: x * weight + 1)(torch.ones(3), weight)


HELD: dict[str, torch.Tensor] = {}


class Plain(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 2


class Held(Plain):
    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        HELD["gradient"] = gradient.detach()
        return gradient * 2


@program("a backward that keeps what it sees", cures.WRITES_OUTSIDE, "take it in the caller", (), graph_breaks)
def a_write_in_a_backward(cured: bool) -> object:
    x = torch.ones(3, requires_grad=True)
    doubled = compiled(lambda x: (Plain if cured else Held).apply(x).sin(), backend="aot_eager")
    doubled(x).sum().backward()
    return x.grad


class Measured(torch.nn.Module):
    """Keeps the norm of what it computed; `returns` it instead."""

    def __init__(self, returns: bool) -> None:
        super().__init__()
        self.returns, self.norm = returns, torch.zeros(())

    def forward(self, x: torch.Tensor) -> Any:
        y = x.sin()
        norm = y.detach().norm()
        if self.returns:
            return y * 2, norm
        self.norm = norm
        return y * 2


class Checkpointed(torch.nn.Module):
    def __init__(self, returns: bool) -> None:
        super().__init__()
        self.inner = Measured(returns)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = torch.utils.checkpoint.checkpoint(self.inner, x, use_reentrant=False)
        if self.inner.returns:
            result, self.inner.norm = result
        return result + 1


@program(
    "an attribute that is set in a checkpointed block",
    cures.SIDE_EFFECT,
    "Return the value from what is checkpointed, and assign it outside",
    (),
    graph_breaks,
)
def a_checkpointed_assignment(cured: bool) -> object:
    model = Checkpointed(returns=cured)
    return compiled(model)(torch.ones(3, requires_grad=True)).detach(), model.inner.norm


@program(
    "an attribute that is set in a checkpointed block, with a setting",
    cures.SIDE_EFFECT,
    "skip_fwd_side_effects_in_bwd_under_checkpoint = True",
    (),
    graph_breaks,
)
def a_checkpointed_assignment_once(cured: bool) -> object:
    model = Checkpointed(returns=False)
    with torch._dynamo.config.patch(skip_fwd_side_effects_in_bwd_under_checkpoint=cured):
        return compiled(model)(torch.ones(3, requires_grad=True)).detach(), model.inner.norm
