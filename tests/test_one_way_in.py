"""However a program comes in, and wherever its compilation ends: torch and the user's objects are as they were."""

from __future__ import annotations

import contextlib
import gc
import random
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.utils._python_dispatch as dispatch

import aotviz
from aotviz import pipeline
from aotviz.lowerings import run_graph
from aotviz.torch_private.functional_tensors import FunctionalTensor
from tests.releases import takes_generators


class Boom(Exception):
    """Raised by the tests."""


class Net(torch.nn.Module):
    """Has of everything that a trace switches or touches: state in Python, a buffer, dropout, a hook."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.register_buffer("calls", torch.zeros(()))
        self.seen: list[int] = []
        self.count = 0
        self.at: Callable[[], None] = lambda: None  # called in the middle of the forward

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
        self.calls.add_(1)
        self.count += 1
        with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
            scale = (x @ x.t()).float().sum()
            self.at()
        y = torch.nn.functional.dropout(self.linear(x) * scale, 0.5)
        return (y.sum(),)


def switched() -> dict[str, Any]:
    """Torch's modes and settings, as this thread has them, and Python's random state."""
    configs = [torch._functorch.config, torch._dynamo.config, torch._inductor.config]
    return {
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "autocast": [torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda")],
        "autocast dtype": torch.get_autocast_dtype("cpu"),
        "autocast cache": torch.is_autocast_cache_enabled(),
        "anomaly": torch.is_anomaly_enabled(),
        "multithreading": torch.autograd.is_multithreading_enabled(),
        "view replay": torch._C._is_view_replay_enabled(),
        "dispatch modes": dispatch._get_current_dispatch_mode_stack(),
        "function modes": torch.overrides._get_current_function_mode_stack(),
        "functional mode": torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FUNCTIONAL),
        "proxy mode": torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY),
        "fake mode": torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE),
        "transforms": torch._C._functorch.peek_interpreter_stack(),
        "included": str(torch._C._dispatch_tls_local_include_set()),
        "excluded": str(torch._C._dispatch_tls_local_exclude_set()),
        "saved tensor hooks": torch._C._autograd._top_saved_tensors_default_hooks(True),
        "compiling": (bool(torch.compiler.is_compiling()), type(torch.compiler._is_compiling_flag)),
        "fx tracing": torch.fx._symbolic_trace.is_fx_tracing(),
        "validation": type(torch.distributions.Distribution._validate_args),
        "dtype": torch.get_default_dtype(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "tracing context": torch._guards.TracingContext.try_get(),
        "compile context": torch._guards.CompileContext.try_get(),
        "generator": (id(torch.random.default_generator), id(torch.default_generator)),
        "weakref": torch.utils.weakref,
        "compiled autograd": torch._dynamo.compiled_autograd.compiled_autograd_enabled,
        "configs": [{name: repr(value) for name, value in c.get_config_copy().items()} for c in configs],
        "torch's state": torch.get_rng_state().tolist(),
        "random state": random.getstate(),
        "threads": threading.active_count(),
        "checkpointing": torch.utils.checkpoint.checkpoint,
        "lock": _is_free(pipeline.lock),
    }


def _is_free(lock: Any) -> bool:
    """Whether another thread may take a lock."""
    taken: list[bool] = []

    def take() -> None:
        taken.append(lock.acquire(blocking=False))
        if taken[0]:
            lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return taken[0]


def owned(net: Net, x: torch.Tensor) -> dict[str, Any]:
    """The user's objects: who they are, what they hold, and that no tensor of a trace is among them."""
    state = {**dict(net.named_parameters()), **dict(net.named_buffers()), "x": x}
    assert not any(isinstance(one, FunctionalTensor) for one in state.values())
    return {
        "tensors": {name: (id(one), one._version, one.detach().clone().tolist()) for name, one in state.items()},
        "hooks": {name: (len(one._backward_hooks or ()), one.grad) for name, one in state.items()},
        "python": (list(net.seen), net.count, net.training),
        "attributes": sorted(vars(net).keys() - {"_is_torch_compile"}),  # a mark that Dynamo leaves
    }


def by_function(net: Net, x: torch.Tensor, **compilers: Any) -> Any:
    options = {"fw_compiler": run_graph, **compilers}
    return aotviz.aot_function(net, **options)(x)


def by_stages(net: Net, x: torch.Tensor, **_: Any) -> Any:
    return aotviz.trace_stages(net, x).resume()


def by_export(net: Net, x: torch.Tensor, **_: Any) -> Any:
    return aotviz.aot_export_module(net, (x,), trace_joint=True, output_loss_index=0)


def by_descriptors(net: Net, x: torch.Tensor, **compilers: Any) -> Any:
    joint = aotviz.aot_export_joint_with_descriptors(None, net, (x,))
    return aotviz.aot_compile_joint_with_descriptors(joint, **{"fw_compiler": run_graph, **compilers})


def by_compile(net: Net, x: torch.Tensor, **_: Any) -> Any:
    options = {"on_refusal": "raise"}
    return aotviz.compile(net, backend="eager", options=options)(x)


WAYS = {
    "aot_function": by_function,
    "trace_stages": by_stages,
    "aot_export_module": by_export,
    "joint_with_descriptors": by_descriptors,
    "compile": by_compile,
}


def same(state: tuple[dict[str, Any], dict[str, Any]], net: Net, x: torch.Tensor) -> None:
    """Assert that all is as it was in `state`, once what only cycles hold is gone."""
    before, mine = state

    def changed() -> set[str]:
        after = switched()
        return {name for name in before if before[name] != after[name]}

    if owned(net, x) != mine or changed():  # a collection takes longer than a compilation
        gc.collect()
    assert owned(net, x) == mine
    assert changed() == set()


@pytest.fixture
def given(clean_dynamo: None) -> tuple[Net, torch.Tensor]:
    for way in WAYS.values():  # what is imported and registered once is there
        if not _WARM:
            with contextlib.suppress(Boom):
                way(Net(), torch.ones(2, 3))
    _WARM.append(True)
    return Net(), torch.ones(2, 3)


_WARM: list[bool] = []
STAGES = tuple(dict.fromkeys(s.name for s in (*pipeline.TRAINING, *pipeline.EXPORT) if s.needed is None))


@pytest.mark.every(4)
@pytest.mark.parametrize("stage", STAGES)
def test_an_error_in_a_stage_leaves_nothing_behind(
    given: tuple[Net, torch.Tensor], monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    """In each stage, by each way that passes through it: once its work is done, it raises."""
    ended: list[str] = []
    errors: list[type[BaseException]] = [Boom, KeyboardInterrupt]
    start = STAGES.index(stage)

    def ending(one: pipeline.Stage) -> pipeline.Stage:
        def run(*form: Any) -> Any:
            one.run(*form)
            ended.append(one.name)
            raise errors[(start + len(ended)) % 2]("in the middle")

        return replace(one, run=run) if one.name == stage else one

    for name in ("TRAINING", "EXPORT"):
        monkeypatch.setattr(pipeline, name, tuple(map(ending, getattr(pipeline, name))))
    for name, way in WAYS.items():
        if name == "compile" and start % 4:
            continue  # the way of aot_function, behind Dynamo, which takes long
        net, x = Net(), given[1]
        count = len(ended)
        state = (switched(), owned(net, x))
        try:
            way(net, x)
        except tuple(errors):
            same(state, net, x)
        else:
            assert len(ended) == count, "the error was lost"
    assert ended


@pytest.mark.parametrize("error", [Boom, KeyboardInterrupt])
@pytest.mark.parametrize("call", [1, 2])
@pytest.mark.parametrize(
    "way", sorted(WAYS.keys() - {"compile"})
)  # whose function runs for real where it is not traced
def test_an_error_in_the_function_leaves_nothing_behind(
    given: tuple[Net, torch.Tensor], way: str, call: int, error: type[BaseException]
) -> None:
    """In the midst of each run of the function that a compilation makes."""
    net, x = given
    left = [call]

    def at() -> None:
        left[0] -= 1
        if left[0] == 0:
            raise error("in the middle")

    net.at = at
    state = (switched(), owned(net, x))
    try:
        WAYS[way](net, x)
    except error:
        same(state, net, x)
    else:
        assert left[0] > 0, "the error was lost"


def stages_of(fn: Any, x: torch.Tensor) -> Any:
    return aotviz.trace_stages(fn, x).resume()


def graph_of(fn: Any, x: torch.Tensor) -> Any:
    return aotviz.aot_export_joint_simple(fn, (x,), trace_joint=False)


def module_of(fn: Any, x: torch.Tensor) -> Any:
    return aotviz.aot_export_module(as_module(fn), (x,), trace_joint=False)


def joint_of(fn: Any, x: torch.Tensor) -> Any:
    return aotviz.aot_export_joint_with_descriptors(None, as_module(fn), (x,))


def function_of(fn: Any, x: torch.Tensor) -> Any:
    return aotviz.aot_function(fn, run_graph)(x)


def as_module(fn: Any) -> torch.nn.Module:
    class Calls(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return fn(x)

    return fn if isinstance(fn, torch.nn.Module) else Calls()


OPEN = [stages_of, graph_of, module_of, joint_of, function_of]
elsewhere = torch.ones(3)
last: Any = None


@pytest.mark.parametrize("way", OPEN)
def test_a_tensor_that_is_no_argument_is_refused_by_name(way: Any) -> None:
    with pytest.raises(NotImplementedError, match="elsewhere"):
        way(lambda x: (x + elsewhere,), torch.ones(3))


@pytest.mark.parametrize("way", OPEN)
def test_no_variable_keeps_a_tensor_of_the_trace(way: Any) -> None:
    def keeps(x: torch.Tensor) -> tuple[torch.Tensor]:
        global last
        last = x.sin()
        return (last + 1,)

    with pytest.raises(NotImplementedError, match="last"):
        way(keeps, torch.ones(3))
    assert last is None


@pytest.mark.filterwarnings("ignore:the call assigns")
@pytest.mark.parametrize("way", [stages_of, module_of, joint_of, function_of])
@pytest.mark.parametrize("until", ["flatten", "metadata", "joint", "link"])
def test_no_attribute_keeps_a_tensor_of_the_trace(way: Any, until: str) -> None:
    class Remembers(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = torch.nn.Linear(3, 3)
            self.last: Any = None

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
            self.last = self.fc(x)
            return (self.last.sum(),)

    net = Remembers()
    with contextlib.suppress(NotImplementedError):
        if way is stages_of:
            aotviz.trace_stages(net, torch.ones(3), until=until)
        else:
            way(net, torch.ones(3))
    assert net.last is None


@pytest.mark.parametrize("way", OPEN)
def test_a_generator_made_inside_is_refused(way: Any) -> None:
    with pytest.raises(NotImplementedError, match="Generator"):
        way(lambda x: (x + torch.rand(3, generator=torch.Generator().manual_seed(1)),), torch.ones(3))


@takes_generators
@pytest.mark.parametrize("way", [stages_of, graph_of, function_of])
def test_a_generator_from_outside_draws_on(way: Any) -> None:
    generator, x = torch.Generator().manual_seed(1), torch.ones(3)

    def draws(x: torch.Tensor) -> tuple[torch.Tensor]:
        return (x + torch.rand(3, generator=generator),)

    expected = [draws(x)[0] for _ in range(2)]
    generator.manual_seed(1)
    made = aotviz.aot_function(draws, run_graph) if way is function_of else way(draws, x)
    assert torch.equal(made(x)[0], expected[0])
    assert torch.equal(made(x)[0], expected[1])


def test_a_warning_points_to_the_users_line() -> None:
    class Counts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.count = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count += 1
            return x + 1

    for way in (stages_of, function_of):
        with pytest.warns(UserWarning, match="self.count") as found:
            way(Counts(), torch.ones(3))
        assert {one.filename for one in found} == {__file__}


def test_another_thread_is_told_of_no_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that asks for values is told that it is compiled; who runs beside it is not."""
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", True)  # Dynamo turns it off for good
    told: list[Any] = []

    def beside() -> None:
        flag = torch.compiler.is_compiling()
        told.append((False | flag) and bool(flag & True))
        try:
            torch.distributions.Normal(0.0, -1.0)
        except ValueError:
            told.append("looked at")

    def asks(x: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_compiling() and bool((x > 0).all()):
            return x
        assert (False | torch.compiler.is_compiling()) is True  # as transformers asks
        thread = threading.Thread(target=beside)
        thread.start()
        thread.join()
        return torch.distributions.Normal(x, 1.0).log_prob(x)

    x = torch.ones(2)
    aotviz.aot_function(asks, run_graph)(x)
    assert told.count("looked at") == len(told) / 2 > 0
    assert True not in told
    assert torch.compiler.is_compiling() is False
