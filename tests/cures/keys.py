"""Misses of aotviz's cache: what differs between two runs is made the same, and the second run hits."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch._functorch.partitioners import default_partition

import aotviz
from aotviz.cache import key as keys
from aotviz.explain.cures import cache_cures, key_cures
from aotviz.explain.cures.registry import Cure
from aotviz.reading.recording import Recording
from tests.cures.programs import Calls, Effect, program, under

RECORDINGS: list[Recording] = []
FOLDERS: list[str] = []


def misses(calls: Calls, cured: bool) -> Effect:
    """Of the last run: how many of its look-ups found nothing."""
    with tempfile.TemporaryDirectory() as folder:
        FOLDERS.append(folder)
        calls(cured)
    recording = RECORDINGS.pop()
    missed = [outcome for outcome in recording.cache_misses().outcome if outcome != "hit"]
    return Effect(len(missed), "cache misses", recording)


def run(fn: Callable[..., Any], *args: Any, **options: Any) -> None:
    """What one process does: compile and call once, with the cache in the folder of this program."""
    torch._dynamo.reset()
    step = aotviz.compile(fn, **{"backend": "eager", "cache": FOLDERS[-1]} | options)
    step(*args)
    RECORDINGS.append(step.recording)


def step(x: torch.Tensor) -> torch.Tensor:
    y = x.sin() * 3
    return y + 1


def pair(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.mul_(2) + y


def key(fault: str, cure: Cure, says: str, *reports: str) -> Callable[[Calls], Calls]:
    return program(fault, cure, says, reports, misses)


def of_inputs(fact: str, says: str, before: Callable[[], Any], after: Callable[[], Any], *reports: str) -> None:
    def calls(cured: bool) -> None:
        run(step, before())
        run(step, before() if cured else after())

    calls.__name__ = f"an_input_of_another_{fact}"
    key(f"an input of another {fact} than in the run before", key_cures.OF_INPUT[fact], says, *reports)(calls)


of_inputs("dtype", "Pass `x` with the same dtype", lambda: torch.ones(3), lambda: torch.ones(3, dtype=torch.float64))
of_inputs("shape", "Pass `x` with the same sizes", lambda: torch.ones(3), lambda: torch.ones(4))
of_inputs("stride", "Pass `x` with the same strides", lambda: torch.ones(3, 4), lambda: torch.ones(4, 3).t())
of_inputs(
    "device",
    "Pass `x` on the same device",
    lambda: torch.ones(3),
    lambda: torch.ones(3, device="meta"),
    "pytorch/pytorch#175944",
)
of_inputs(
    "requires_grad",
    "Pass `x` with the same `requires_grad`",
    lambda: torch.ones(3),
    lambda: torch.ones(3, requires_grad=True),
)


@key("edited code", key_cures.CHANGED, "Nothing to do if you changed the code")
def edited_code(cured: bool) -> None:
    def before(x: torch.Tensor) -> torch.Tensor:
        y = x.sin() * 3
        return y + 1

    def after(x: torch.Tensor) -> torch.Tensor:
        y = x.cos() * 3
        return y + 1

    run(before, torch.ones(3))
    run(after, torch.ones(3))
    if cured:  # the next run with the edited code
        run(after, torch.ones(3))


@key("another option of the compilation", key_cures.OPTIONS, "Pass the same `options` in both runs")
def options(cured: bool) -> None:
    run(step, torch.ones(3))
    run(step, torch.ones(3), **({} if cured else {"options": {"donate_buffers": False}}))


@key("another grad mode", key_cures.GRAD_MODE, "Call it in the same grad mode in both runs")
def grad_mode(cured: bool) -> None:
    run(step, torch.ones(3))
    with torch.set_grad_enabled(cured):
        run(step, torch.ones(3))


@key("autocast in one run", key_cures.AUTOCAST, "under the same `torch.autocast`")
def autocast(cured: bool) -> None:
    run(step, torch.ones(3))
    with torch.autocast("cpu", enabled=not cured):
        run(step, torch.ones(3))


@key("deterministic algorithms in one run", key_cures.DETERMINISM, "before both runs")
def determinism(cured: bool) -> None:
    run(step, torch.ones(3))
    try:
        torch.use_deterministic_algorithms(not cured)
        run(step, torch.ones(3))
    finally:
        torch.use_deterministic_algorithms(False)


@key("another default dtype", key_cures.DEFAULTS, "Set the same default dtype")
def defaults(cured: bool) -> None:
    run(step, torch.ones(3))
    try:
        torch.set_default_dtype(torch.float32 if cured else torch.float64)
        run(step, torch.ones(3, dtype=torch.float32))
    finally:
        torch.set_default_dtype(torch.float32)


@key("another precision of matrix products", key_cures.PRECISION, "`torch.set_float32_matmul_precision`")
def precision(cured: bool) -> None:
    before = torch.get_float32_matmul_precision()
    run(step, torch.ones(3))
    try:
        torch.set_float32_matmul_precision(before if cured else "medium")
        run(step, torch.ones(3))
    finally:
        torch.set_float32_matmul_precision(before)


@key("another number of threads", key_cures.THREADS, "Set the same number of threads in both runs")
def threads(cured: bool) -> None:
    before = torch.get_num_threads()
    run(step, torch.ones(3))
    try:
        torch.set_num_threads(before + (0 if cured else 1))
        run(step, torch.ones(3))
    finally:
        torch.set_num_threads(before)


@key("an environment variable of torch's in one run", key_cures.SAME_VALUE, "to the same value before both runs")
def environment(cured: bool) -> None:
    run(step, torch.ones(3))
    with mock.patch.dict(os.environ, {} if cured else {"TORCHINDUCTOR_CURES": "1"}):
        run(step, torch.ones(3))


@key("a setting of Dynamo's in one run", key_cures.SAME_VALUE, "to the same value before both runs")
def a_setting(cured: bool) -> None:
    run(step, torch.ones(3))
    with torch._functorch.config.patch(activation_memory_budget=1.0 if cured else 0.5):
        run(step, torch.ones(3))


@key("inputs that share memory in one run", key_cures.MEMORY, "clone the one that may overlap")
def memory(cured: bool) -> None:
    base = torch.ones(6)
    run(pair, torch.ones(6)[:4], torch.ones(6)[2:])
    run(pair, base[:4], (base.clone() if cured else base)[2:])


@key("a mark of a dimension in one run", key_cures.OF_INPUT["shape"], "mark the dimension as dynamic")
def a_marked_dimension(cured: bool) -> None:
    for rows in (3, 4):
        x = torch.ones(rows)
        if cured:
            torch._dynamo.mark_dynamic(x, 0)
        run(step, x)


def surroundings(**changed: str) -> Any:
    """As on another machine or with another version: the key's description of its surroundings is another."""
    real = keys._surroundings
    other = {name.replace("_", " ").replace("s settings", "'s settings"): text for name, text in changed.items()}
    return mock.patch.object(keys, "_surroundings", lambda values: dict(real(values)) | other)


def there(fault: str, cure: Cure, says: str, **changed: str) -> None:
    """Somewhere else the first run misses, and the next one hits."""

    def calls(cured: bool) -> None:
        run(step, torch.ones(3))
        with surroundings(**changed):
            run(step, torch.ones(3))
            if cured:
                run(step, torch.ones(3))

    calls.__name__ = f"another_{next(iter(changed))}"
    key(fault, cure, says)(calls)


def alike(fault: str, cure: Cure, says: str, *reports: str, **changed: str) -> None:
    """The second run hits once the surroundings are the same."""

    def calls(cured: bool) -> None:
        run(step, torch.ones(3))
        with under(surroundings(**changed), not cured):
            run(step, torch.ones(3))

    calls.__name__ = f"different_{next(iter(changed))}"
    key(fault, cure, says, *reports)(calls)


there("an upgrade of torch", key_cures.UPGRADED, "the first run with another version fills", torch="3.0")
there("another kind of processor", key_cures.MACHINE, "Let each kind of machine fill", processor="other")
there("the first call under DistributedDataParallel", key_cures.FIRST_CALL, "Nothing to do", first_call="fake")
alike("an ingredient that a newer aotviz adds", key_cures.SAME_PART, "Make `news` the same", news="1")
alike("ranks in one run only", key_cures.PROCESSES, "Start the same number of processes", processes="4")
alike("settings of which only a digest is known", key_cures.SAME_SETTINGS, "in the same way", Dynamos_settings="b")
alike("another partitioner", key_cures.BACKEND, "the same backend and the same partitioner", backend="b")
alike(
    "an environment of which only a digest is known",
    key_cures.ENVIRONMENT,
    "the same environment",
    "vllm-project/vllm#47573",
    environment="b",
)
alike("a method that was added to torch.Tensor", key_cures.METHODS, "the same methods", methods_of_tensors="b")


@key("bounds of a dimension in one run", key_cures.SYMBOLS, "with the same bounds, before the first call")
def bounds(cured: bool) -> None:
    for most in (64, 64 if cured else 32):
        x = torch.ones(8)
        torch._dynamo.mark_dynamic(x, 0, min=2, max=most)
        run(step, x)


@key("hooks on saved tensors in one run", key_cures.HOOKS, "Use the same hooks")
def hooks(cured: bool) -> None:
    pack, unpack = map(torch.fx.symbolic_trace, (doubled, doubled))
    for on in (cured, True):
        with under(torch.autograd.graph.saved_tensors_hooks(pack, unpack), on):
            run(step, torch.ones(3, requires_grad=True))


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


of_inputs("offset", "`.clone()`", lambda: torch.ones(8)[0:3], lambda: torch.ones(8)[2:5])
of_inputs("kind", "as the same kind of tensor", lambda: torch.ones(3), lambda: torch.ones(6)[:3])


class Partition:
    def __init__(self) -> None:
        self.held = object()  # whose content no key can have

    def __call__(self, joint: Any, inputs: Any, **arguments: Any) -> Any:
        return default_partition(joint, inputs, **arguments)


class Known(Partition):
    def uuid(self) -> str:
        return "1"


@key("an option whose content is not known", cache_cures.FROM_CACHE, "Give it a method uuid()")
def an_unknown_option(cured: bool) -> None:
    for _ in range(2):
        run(step, torch.ones(3, requires_grad=True), options={"partition_fn": Known() if cured else Partition()})
