"""What torch's own cache does with the programs that aotviz's cache does not keep: small programs, compiled by both.

The table in docs/cache.md says "the same" where torch bypasses too.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.utils import counters
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import aotviz
from aotviz.cache import bypasses
from aotviz.cache.bypasses import Bypass

NUMBER = 2.0
UNKNOWN = {"file": iter(())}


@torch._dynamo.allow_in_graph
def by_name(x: torch.Tensor) -> Any:
    return x * globals()["NUMBER"]


@torch._dynamo.allow_in_graph
def of_the_time(x: torch.Tensor) -> Any:
    return x * time.time()


@torch._dynamo.allow_in_graph
def of_unknown(x: torch.Tensor) -> Any:
    return x * len(UNKNOWN)


@torch._dynamo.nonstrict_trace
def not_strict(x: torch.Tensor) -> Any:
    return x * 2


@torch.library.custom_op("tests_torchs_bypasses::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@doubled.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x, dtype=torch.float32 if UNKNOWN else None)


doubled.register_autograd(lambda ctx, gradient: gradient * 2)


def selective() -> Any:
    return create_selective_checkpoint_contexts(
        lambda *_, **__: CheckpointPolicy.PREFER_RECOMPUTE if UNKNOWN else CheckpointPolicy.MUST_SAVE
    )


def with_policy(x: torch.Tensor) -> Any:
    return checkpoint(lambda y: y.sin().exp(), x, use_reentrant=False, context_fn=selective)


def plain(x: torch.Tensor) -> Any:
    return x.sin() * 3


def solver(*_: Any) -> Any:
    return float(len(UNKNOWN)), [], []


def chosen_memory() -> Any:
    return torch._functorch.config.patch(activation_memory_budget=0.5, activation_memory_budget_solver=solver)


def passes() -> Any:
    return torch._inductor.config.patch(post_grad_custom_post_pass=lambda graph: UNKNOWN and None)


Setting = Callable[[], contextlib.AbstractContextManager[Any]]
BYPASSED: dict[str, tuple[Bypass, Callable[..., Any], Setting]] = {
    "a solver without a version": (bypasses.NO_VERSION, plain, chosen_memory),
    "a function that is called by name": (bypasses.BY_NAME, lambda x: by_name(x) + 1, contextlib.nullcontext),
    "a function of the time": (bypasses.OUTSIDE, lambda x: of_the_time(x) + 1, contextlib.nullcontext),
    "a function of an unknown object": (bypasses.CODE, lambda x: of_unknown(x) + 1, contextlib.nullcontext),
    "a policy without a version": (bypasses.POLICY, with_policy, contextlib.nullcontext),
    "a function of nonstrict_trace": (bypasses.OBJECT, lambda x: not_strict(x) + 1, contextlib.nullcontext),
}


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setenv("AOTVIZ_CACHE_DIR", str(tmp_path / "aotviz"))
    yield
    torch._dynamo.reset()


def of_torch(f: Callable[..., Any], backend: Any = "inductor") -> set[str]:
    """What torch's cache counted while a function was compiled."""
    torch._dynamo.reset()
    counters.clear()
    torch.compile(f, backend=backend)(torch.ones(4, requires_grad=True)).sum().backward()
    return {name.removeprefix("autograd_cache_") for name in counters["aot_autograd"] if "autograd_cache" in name}


def of_ours(f: Callable[..., Any], backend: str = "eager") -> list[tuple[str, str]]:
    """What aotviz's cache answered, and why."""
    torch._dynamo.reset()
    with aotviz.record() as recording:
        aotviz.compile(f, backend=backend)(torch.ones(4, requires_grad=True))
    rows = recording.cache_lookups
    return list(zip(rows["outcome"], map(str, rows["reason"]), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", BYPASSED)
def test_what_we_do_not_keep_torch_does_not_keep(name: str) -> None:
    bypass, f, setting = BYPASSED[name]
    with setting():
        ((outcome, reason),) = of_ours(f)
        assert outcome == "bypass"
        assert bypass.cure in reason
        assert of_torch(f) == {"bypass"}


@pytest.mark.slow
def test_neither_keeps_a_program_with_a_pass_of_inductor_without_a_version() -> None:
    with passes():
        ((outcome, reason),) = of_ours(plain, "inductor")
        assert (outcome, bypasses.NO_VERSION.cure in reason) == ("bypass", True)
        assert of_torch(plain) == {"bypass"}


def test_torch_does_not_ask_its_cache_for_a_compiler_of_your_own() -> None:
    assert of_torch(plain, aot_autograd(fw_compiler=lambda graph, _: graph)) == set()


@pytest.mark.slow
def test_torch_finds_an_operator_whose_function_reads_what_no_key_has() -> None:
    """So the table says that torch has no such bypass for the functions of operators."""
    ((outcome, _),) = of_ours(lambda x: doubled(x) + 1)
    assert outcome == "bypass"
    assert of_torch(lambda x: doubled(x) + 1) == {"miss", "saved"}
    for bypass in (bypasses.CODE, bypasses.BY_NAME, bypasses.OUTSIDE):
        assert "operator" in bypass.beyond
