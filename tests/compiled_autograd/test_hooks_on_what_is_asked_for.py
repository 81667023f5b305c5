"""The gradient that is asked for of a tensor with hooks: before them or after them, as autograd's engine has it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.compiled_autograd.programs import leaf
from tests.compiled_autograd.test_backwards import Captures

HOOKS: dict[str, Callable[[Any], Any]] = {
    "returns another": lambda tensor: tensor.register_hook(lambda g: g * 10),
    "writes": lambda tensor: tensor.register_hook(lambda g: g.mul_(10) is None or None),
    "several": lambda tensor: [tensor.register_hook(lambda g, k=k: g * 10 + k) for k in range(2)],
    "pre-hook": lambda tensor: tensor.grad_fn.register_prehook(lambda g: (g[0] * 10,)),
    "post-hook": lambda tensor: tensor.grad_fn.register_hook(
        lambda i, o: tuple(one if one is None else one * 3 for one in i)
    ),
    "retained": lambda tensor: [tensor.retain_grad(), tensor.register_hook(lambda g: g * 10)],
    "pre-hook and hook": lambda tensor: [
        tensor.grad_fn.register_prehook(lambda g: (g[0] * 10,)),
        tensor.register_hook(lambda g: g + 1),
    ],
}
ASKED = ("h", "xh", "hh", "hk", "yx", "ex")  # e: the gradient edge of h


def gradients(hook: str, hooked: str, asked: str, by: str, block: Any) -> list[Any]:
    torch.manual_seed(0)
    x = leaf(3)
    h = x * 2
    k = h.sin()
    y = ((k.exp() * h[0]).sum() + (k * k).sum() * 2).clone()
    tensors = {"x": x, "h": h, "k": k, "y": y, "e": torch.autograd.graph.get_gradient_edge(h)}
    for name in hooked:
        HOOKS[hook](tensors[name])
    wanted = [tensors[name] for name in asked]
    found: Any = ()
    with block:
        if by == "backward":
            torch.autograd.backward(y, inputs=wanted)
        else:
            found = torch.autograd.grad(y, wanted)
    return [*found, *(tensor.grad for tensor in (x, h, k, y) if tensor.is_leaf or tensor.retains_grad)]


def raises_or(function: Callable[..., Any], *given: Any) -> Any:
    try:
        return [None if one is None else one.tolist() for one in function(*given)]
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("hook", HOOKS)
def test_the_gradient_that_is_asked_for_is_eagers(hook: str) -> None:
    captures = Captures()
    for asked in ASKED:
        for by in ("grad", "backward"):
            given = hook, "hk", asked, by
            expected = raises_or(gradients, *given, contextlib.nullcontext())
            assert raises_or(gradients, *given, captures.on()) == expected, given
    assert captures.calls
    assert not captures.told
