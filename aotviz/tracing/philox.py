"""Random numbers as a function of a seed and an offset, as the generator of a GPU (Philox) makes them (SYSTEM.md C6).

With `torch._functorch.config.functionalize_rng_ops`, random operators of a forward are decomposed to
`rngprims.philox_rand(size, seed, offset)`. It is pure, so the backward can recompute it with the same result. The
decompositions and the counting of the offset are torch's. Operators on devices without such a generator, such as a CPU,
or with a generator of the user's, stay as they are, and torch refuses them.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import torch
import torch.fx as fx

from aotviz.torch_private import operators, random_numbers
from aotviz.torch_private.random_numbers import rng_decompositions
from aotviz.tracing import functional
from aotviz.tracing.user_calls import placed

KINDS = {"cuda"}  # device types with a Philox generator


def devices(graph: fx.Graph) -> set[torch.device]:
    """The devices on which a graph draws random numbers by a Philox generator."""
    drawn = [node for node in graph.nodes if operators.is_random(node.target) and not node.kwargs.get("generator")]
    values = [value for node in drawn for value in _values(node.meta.get("val"))]
    return {value.device for value in values if isinstance(value, torch.Tensor) and value.device.type in KINDS}


def _values(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def fake_state(fake_mode: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """A fake seed and offset."""
    with fake_mode:
        return torch.zeros((), dtype=torch.int64), torch.zeros((), dtype=torch.int64)


@contextlib.contextmanager
def counting(seed: Any, offset: Any) -> Iterator[Callable[[], Any]]:
    """Draw what is traced inside from `seed` and `offset`. Yields a function that returns the offset after that."""
    with (
        random_numbers.counting(functional.inner(seed), functional.inner(offset)) as reached,
        placed(_tracing, is_on=True),
    ):
        yield reached


_tracing = SimpleNamespace(is_on=False)  # whether such a forward is being traced; a backward draws as eager does


def decompositions(others: Mapping[Any, Any]) -> dict[Any, Any]:
    """`others`, and decompositions that make random operators functions of seed and offset; `others` win."""
    return {**{operator: _counted(function) for operator, function in rng_decompositions.items()}, **others}


def _counted(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def decomposed(*args: Any, **kwargs: Any) -> Any:
        first = next((value for value in args if isinstance(value, torch.Tensor)), None)
        device = kwargs.get("device") or (torch.device("cpu") if first is None else first.device)
        if not _tracing.is_on or kwargs.get("generator") is not None or torch.device(device).type not in KINDS:
            return NotImplemented
        kwargs.pop("generator", None)
        return function(*args, **kwargs)

    return decomposed


def generators_of(graph: fx.Graph) -> list[Callable[[int], Any]]:
    """For each generator that is an input of a partitioned graph, a function that creates one from a seed."""

    def maker(like: Any) -> Callable[[int], Any]:
        return lambda seed: like.clone_state().manual_seed(seed)

    return [maker(node.meta["val"]) for node in graph.nodes if is_generator(node)]


def is_generator(node: fx.Node) -> bool:
    """Whether a node is an input that a partitioner created for a generator."""
    return node.op == "placeholder" and str(node.target).startswith(("fwd_rng_state_", "bwd_rng_state_"))
