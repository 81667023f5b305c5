"""Misses and bypasses of torch's own compile caches: with the advice followed, the second run hits.

A run is a compilation after `torch._dynamo.reset()`, with the cache folder of the program. The functions only multiply
matrices, for which Inductor generates no C++.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
import torch._inductor.config as inductor
from torch._inductor import codecache
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.utils import fresh_cache

from aotviz.explain.cures import cache_cures as cures
from aotviz.explain.cures.registry import Cure
from aotviz.reading.recording import Recording
from tests.cures.programs import Calls, Effect, Measure, program, under, watched


def misses(calls: Calls, cured: bool) -> Effect:
    """Of the last run: how many look-ups found nothing."""
    with fresh_cache():
        return _misses(*watched(calls, cured))


def _misses(recording: Recording, result: object) -> Effect:
    table = recording.cache_misses()
    runs = [id.rpartition(": ")[0] for id in table.compilation]
    missed = [run == runs[-1] and outcome != "hit" for run, outcome in zip(runs, table.outcome, strict=True)]
    return Effect(sum(missed), "cache misses", recording, result)


def misses_the_next_time(calls: Calls, cured: bool) -> Effect:
    """Where nothing is to be done: with the "cure", the same runs were made before."""
    with fresh_cache():
        if cured:
            calls(False)
        return _misses(*watched(calls, False))


def looked_up(fault: str, cure: Cure, says: str, *reports: str, measure: Measure = misses) -> Callable[[Calls], Calls]:
    return program(fault, cure, says, reports, measure, first=False)


def run(fn: Callable[..., Any], *args: Any, **options: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(fn, **options)(*args)


def square(x: torch.Tensor) -> torch.Tensor:
    return x @ x


def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x @ w


def logged_keys() -> Any:
    """As with TORCH_LOGS="+torch._functorch._aot_autograd.autograd_cache", without the text of the log."""
    log = logging.getLogger("torch._functorch._aot_autograd.autograd_cache")
    return mock.patch.object(log, "isEnabledFor", lambda level: level == logging.DEBUG)


class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x @ x

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0] @ gradients[0]


@looked_up(
    "a custom autograd.Function",
    cures.AUTOGRAD_FUNCTION,
    "`torch._functorch.config.autograd_cache_allow_custom_autograd_functions = True`",
    "pytorch/pytorch#151358",
)
def a_custom_autograd_function(cured: bool) -> None:
    with torch._functorch.config.patch(autograd_cache_allow_custom_autograd_functions=cured):
        for _ in range(2):
            run(lambda x: Squared.apply(x), torch.ones(3, 3, requires_grad=True)).backward(torch.ones(3, 3))


@torch._dynamo.allow_in_graph
def opaque(x: torch.Tensor) -> torch.Tensor:
    return x @ x


@torch.library.custom_op("cures::squared", mutates_args=())
def squared(x: torch.Tensor) -> torch.Tensor:
    return x @ x


squared.register_fake(torch.empty_like)


@looked_up(
    "a function that torch's cache does not know",
    cures.UNSAFE_FUNCTION,
    "A custom operator made by `torch.library` can be cached",
    "pytorch/pytorch#191106",
    "pytorch/pytorch#167349",
)
def an_unknown_function(cured: bool) -> object:
    for _ in range(2):
        result = run((lambda x: squared(x)) if cured else (lambda x: opaque(x)), torch.ones(3, 3))
    return result


class Pass(CustomGraphPass):
    def __call__(self, graph: torch.fx.Graph) -> None:
        pass

    def uuid(self) -> str:
        return "1"


@looked_up("a custom pass of Inductor", cures.PASS, "Give the pass a `uuid()`", "pytorch/ao#2907")
def a_custom_pass(cured: bool) -> object:
    with inductor.patch(post_grad_custom_post_pass=Pass() if cured else lambda graph: None):
        return [run(square, torch.ones(3, 3)) for _ in range(2)]


@looked_up(
    "another cache folder in the second run",
    cures.FOLDER,
    "Check that TORCHINDUCTOR_CACHE_DIR is the same in both runs",
    "pytorch/pytorch#178858",
)
def another_folder(cured: bool) -> object:
    run(square, torch.ones(3, 3))
    with under(fresh_cache(), not cured):
        return run(square, torch.ones(3, 3))


@looked_up("other sizes in the second run", cures.SHAPE, "mark the dimension as dynamic")
def other_sizes_in_the_second_run(cured: bool) -> None:
    for rows in (3, 4):
        x = torch.ones(rows, 3)
        if cured:
            torch._dynamo.mark_dynamic(x, 0)
        run(product, x, torch.ones(3, 3))


@looked_up("another dtype in the second run", cures.INPUT, "Pass similar inputs in both runs")
def another_dtype_in_the_second_run(cured: bool) -> None:
    for dtype in (torch.float32, torch.float32 if cured else torch.float64):
        run(square, torch.ones(3, 3, dtype=dtype))


@looked_up("another number in the code of the second run", cures.CONSTANT, "use the same number")
def another_number(cured: bool) -> None:
    for number in (2, 2 if cured else 3):
        exec(f"def scaled(x): return torch.addmm(x, x, x, alpha={number})", names := {"torch": torch})
        run(names["scaled"], torch.ones(3, 3))


@looked_up("other code in the second run", cures.CODE, "this miss is correct", measure=misses_the_next_time)
def other_code(cured: bool) -> None:
    for body in ("x @ x", "x @ x @ x"):
        exec(f"def multiplied(x): return {body}", names := {})  # type: ignore[var-annotated]
        run(names["multiplied"], torch.ones(3, 3))


@looked_up("another setting of Inductor in the second run", cures.SETTINGS, "Use the same settings in both runs")
def another_setting(cured: bool) -> object:
    run(square, torch.ones(3, 3))
    with inductor.patch(max_fusion_size=64 if cured else 32):
        return run(square, torch.ones(3, 3))


class Backends(str):
    """As a library for settings may read it from a file."""


@looked_up("a setting of another type", cures.HIDDEN_SETTING, "Use a value of the same type in both runs")
def a_setting_of_another_type(cured: bool) -> None:
    for kind in (str, str if cured else Backends):
        with logged_keys(), inductor.patch(max_autotune_gemm_backends=kind("ATEN,CPP")):
            run(square, torch.ones(3, 3))


@looked_up("another grad mode in the second run", cures.PART, "If both runs use the same value here")
def another_grad_mode(cured: bool) -> object:
    with logged_keys():
        run(square, torch.ones(3, 3))
        with torch.set_grad_enabled(cured):
            return run(square, torch.ones(3, 3))


@looked_up("another build of torch", cures.VERSION, "warm up each of them once", measure=misses_the_next_time)
def another_build(cured: bool) -> None:
    with logged_keys():
        run(square, torch.ones(3, 3))
        with mock.patch.object(codecache, "torch_key", return_value=b"another build"):
            run(square, torch.ones(3, 3))


def untold(calls: Calls, cured: bool) -> Effect:
    found = misses(calls, cured)
    points = [point for point in found.recording.explain().points if cures.DETAILED in point.fix.cures]
    return Effect(len(points), "misses without a cause", found.recording)


@program(
    "a miss whose cause torch does not log",
    cures.DETAILED,
    'TORCH_LOGS="+torch._functorch._aot_autograd.autograd_cache"',
    ("pytorch/pytorch#152065",),
    untold,
    first=False,
)
def a_miss_without_parts(cured: bool) -> None:
    with under(logged_keys(), cured):
        for kind in (str, Backends):
            with inductor.patch(max_autotune_gemm_backends=kind("ATEN,CPP")):
                run(square, torch.ones(3, 3))


def uncached(calls: Calls, cured: bool) -> Effect:
    with fresh_cache():
        recording, result = watched(calls, cured)
    asked = set(recording.cache_misses().compilation)
    return Effect(sum(one.id not in asked for one in recording), "compilations without a cache", recording, result)


@program("caches that are switched off", cures.OFF, "Remove that setting", (), uncached, first=False)
def caches_that_are_off(cured: bool) -> object:
    with inductor.patch(force_disable_caches=not cured):
        return [run(square, torch.ones(3, 3)) for _ in range(2)]


def graphless(calls: Calls, cured: bool) -> Effect:
    with fresh_cache():
        recording, result = watched(calls, cured)
    hidden = [one for one in recording if "joint passes" not in {stage.name for stage in one.data.stages}]
    return Effect(len(hidden), "compilations without all graphs", recording, result)


@program(
    "a hit that hides the graphs",
    cures.FORCE,
    "run once with TORCHINDUCTOR_FORCE_DISABLE_CACHES=1",
    ("pytorch/pytorch#149061",),
    graphless,
    first=False,
)
def a_hit(cured: bool) -> object:
    run(square, torch.ones(3, 3))
    with inductor.patch(force_disable_caches=cured):
        return run(square, torch.ones(3, 3))
