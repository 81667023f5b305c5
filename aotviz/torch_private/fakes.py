"""Fake tensors: the stand-ins that a program is traced with (SYSTEM.md B2)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._dynamo.source import ConstantSource
from torch._guards import TracingContext, detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv


def fake_mode_for(flat: Sequence[Any], dynamic: bool) -> Any:
    """The mode of the arguments that are fake already, else of Dynamo's context, else a new one."""
    return detect_fake_mode(list(flat)) or FakeTensorMode(shape_env=ShapeEnv() if dynamic else None)


def fakes(flat: Sequence[Any], fake_mode: Any, dynamic: bool, static_count: int, names: Sequence[str]) -> list[Any]:
    """One stand-in per flat argument, alike in shape, stride, aliasing, leaf-ness and requires_grad.

    The first `static_count` arguments (parameters and buffers) keep concrete shapes even if `dynamic`. An argument
    that occurs twice gets two stand-ins over one storage: whether to merge them is a later stage's decision.
    """
    context = TracingContext.try_get()
    made: list[Any] = []
    seen: set[int] = set()
    for index, value in enumerate(flat):
        fake = _fake(value, fake_mode, dynamic and index >= static_count, names[index], context)
        if isinstance(fake, torch.Tensor):
            if id(fake) in seen:
                with fake_mode:
                    fake = fake.detach().requires_grad_(value.requires_grad)
            seen.add(id(fake))
        made.append(fake)
    return made


def _fake(value: Any, fake_mode: Any, dynamic: bool, name: str, context: Any) -> Any:
    shape_env = fake_mode.shape_env
    if dynamic and type(value) is int and shape_env is not None and context is None:
        source = ConstantSource(name)
        symbol = shape_env.create_symbol(value, source, positive=value >= 0)
        return shape_env.create_symintnode(symbol, hint=value, source=source)
    if not isinstance(value, torch.Tensor):
        return value
    if isinstance(value, FakeTensor):
        return value if value.fake_mode is fake_mode else fake_mode.from_tensor(value)
    if context is not None and value in context.tensor_to_context:
        symbolic = context.tensor_to_context[value]
        source = getattr(symbolic, "tensor_source", None)
        return fake_mode.from_tensor(value, static_shapes=False, symbolic_context=symbolic, source=source)
    if shape_env is None or not dynamic:
        return fake_mode.from_tensor(value, static_shapes=True)
    return fake_mode.from_tensor(value, static_shapes=False, source=ConstantSource(name))


def empty_like_layout(fake_mode: Any, size: Any, stride: Any, dtype: Any, device: Any) -> torch.Tensor:
    """A fake tensor of a given layout, made outside all tracing."""
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes(), fake_mode:
        return torch.empty_strided(size, stride, dtype=dtype, device=device)


@contextlib.contextmanager
def rng_preserved() -> Iterator[None]:
    """Tracing runs user code once; the random state must not show it."""
    state = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)


def is_concrete(value: Any) -> bool:
    """Whether a size, stride or offset is a plain int."""
    return isinstance(value, int)


def hint(value: Any) -> int:
    """A size as it is in the call that is being traced. Asks for no guard."""
    return value if isinstance(value, int) else int(value.node.hint)


def all_concrete(values: Sequence[Any]) -> bool:
    return all(map(is_concrete, values))


class SymbolGuards:
    """What a trace with symbolic sizes found out that it depends on, as one expression over the flat inputs."""

    def __init__(self, fake_mode: Any, fakes: Sequence[Any]) -> None:
        self._shape_env = fake_mode.shape_env
        self._positions = [i for i, fake in enumerate(fakes) if isinstance(fake, (torch.Tensor, torch.SymInt))]
        placeholders = [fakes[i] for i in self._positions]
        self.text = self._shape_env.produce_guards_expression(placeholders, ignore_static=False) or "True"

    def hold(self, flat: Sequence[Any]) -> bool:
        """Whether real inputs fulfil the guards."""
        values = [flat[i] for i in self._positions]
        return bool(self._shape_env.evaluate_guards_expression(self.text, values))
