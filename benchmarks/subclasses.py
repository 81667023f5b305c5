"""What one call costs where tensors are made of tensors: TwoTensor, our wrapper beside torch's runtime.

As in `calls.py`: the same function, the same boxed compiler, graphs that do nothing. A result that is a TwoTensor must
be made by its class, in Python, and that takes most of the time on our side and part of it on theirs. So each case has
two rows: the whole, and what remains without making the results, which is timed by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import torch
from torch._functorch.aot_autograd import aot_function as torch_aot_function
from torch.testing._internal.two_tensor import TwoTensor

from aotviz.frontends.functions import aot_function

from .calls import SHAPE, Case, contestant, product, stub, with_counter
from .measure import in_turns, ratio
from .results import Result, Row, result


def pairs(*requires_grad: bool) -> tuple[torch.Tensor, ...]:
    """Tensors made of two tensors."""
    return tuple(TwoTensor(torch.randn(SHAPE), torch.randn(SHAPE)).requires_grad_(wanted) for wanted in requires_grad)


CASES = (  # with how many TwoTensors a call makes: results and gradients
    (Case("inference", lambda: (product, pairs(False, False)), 0.6, scale=0.5), 1),
    (Case("training forward", lambda: (product, pairs(True, True)), 0.4, scale=0.3), 1),
    (Case("forward + backward", lambda: (product, pairs(True, True)), 0.6, backward=True, scale=0.15), 3),
    (Case("one input mutated", lambda: (with_counter, pairs(True, True, False)), 0.4, scale=0.2), 2),
)


def making(count: int) -> Callable[[], object]:
    """A call that makes so many TwoTensors."""
    first, second, stride = torch.randn(SHAPE), torch.randn(SHAPE), torch.empty(SHAPE).stride()

    def make() -> object:
        return [
            TwoTensor.__tensor_unflatten__({"a": first, "b": second}, None, SHAPE, stride)  # type: ignore[no-untyped-call]
            for _ in range(count)
        ]

    return make


def measure(case: Case, count: int, rounds: int, repeats: int) -> list[Row]:
    fn, args = case.make()
    calls = {
        "eager": contestant(fn, args, case),
        "torch": contestant(torch_aot_function(fn, stub), args, case),
        "ours": contestant(aot_function(fn, stub), args, case),
        "making": making(count),
    }
    times = in_turns(calls, rounds, max(1, round(repeats * case.scale)), collecting=False)
    medians = {name: median(found) / 1000 for name, found in times.items()}
    ours, theirs = (
        [whole - made for whole, made in zip(times[name], times["making"], strict=True)] for name in ("ours", "torch")
    )
    return [
        Row(case.name, ratio(times["ours"], times["torch"]), None, medians, "µs"),
        Row(f"{case.name}, beyond making the results", ratio(ours, theirs), case.target, medians, "µs"),
    ]


def run(rounds: int = 21, repeats: int = 300) -> Result:
    rows = [row for case, count in CASES for row in measure(case, count, rounds, repeats)]
    about = "CPU time of one call with TwoTensors, the compiled graphs stubbed (eager computes, for scale)"
    return result("subclasses", about, "ours / torch", rows, {"rounds": rounds, "repeats": repeats})
