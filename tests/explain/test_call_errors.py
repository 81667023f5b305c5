"""Errors that stop a call of a compiled function: memory that ran out, and recompiles that are errors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import aotviz
from aotviz.reading.recording import Recording

GPU_SAID = "CUDA out of memory. Tried to allocate 20.00 GiB. "
GPU_SAID += "GPU 0 has a total capacity of 79.15 GiB of which 3.12 GiB is free."
TOO_MUCH = 1 << 46  # elements: 256 TiB


@torch.library.custom_op("call_errors::allocates", mutates_args=())
def allocates(x: torch.Tensor) -> torch.Tensor:
    raise torch.OutOfMemoryError(GPU_SAID)


allocates.register_fake(torch.empty_like)
allocates.register_autograd(lambda ctx, gradient: gradient)


@torch.library.custom_op("call_errors::allocates_later", mutates_args=())
def allocates_later(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


allocates_later.register_fake(torch.empty_like)
allocates_later.register_autograd(lambda ctx, gradient: allocates(gradient))


def forward(x: torch.Tensor) -> torch.Tensor:
    return allocates(x.sin().cos().exp())


def on_a_cpu(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(TOO_MUCH) + x.sin().sum()


def backward(x: torch.Tensor) -> torch.Tensor:
    return allocates_later(x.sin().cos()).sum()


@contextlib.contextmanager
def raises(what: str, kind: type[Exception] | tuple[type[Exception], ...] = RuntimeError) -> Iterator[None]:
    torch._dynamo.reset()
    with pytest.raises(kind, match=what):
        yield


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "aotviz_eager"])
def test_a_watch_says_how_much_memory_was_asked_for_and_where(backend: str) -> None:
    watch = aotviz.watch()
    with raises("out of memory"), watch:
        torch.compile(forward, backend=backend)(torch.ones(3))
    overview = watch.recording.overview()
    free = "20.00 GiB were needed at once, and 3.12 GiB of 79.15 GiB were free"
    assert overview.headline == f"Memory ran out while `allocates` ran: {free}."
    assert not overview.healthy
    assert overview.causes.code[0].startswith("raise torch.OutOfMemoryError")
    assert __file__ in overview.causes.place[0]


def test_a_cpu_that_has_too_little_memory_is_told_too() -> None:
    watch = aotviz.watch()
    with raises("can't allocate"), watch:
        torch.compile(on_a_cpu, backend="aot_eager")(torch.ones(3))
    assert watch.recording.overview().headline == (
        "Memory ran out while `on_a_cpu` ran: 256.0 TiB were needed at once."
    )


def needs_one_line_too_much(x: torch.Tensor) -> torch.Tensor:
    wide = x.exp()
    scores = torch.zeros(1 << 23, 1 << 23)  # 256 TiB
    return wide.sum() + scores.sum()


@pytest.mark.parametrize(("compiler", "backend"), [(torch.compile, "aot_eager"), (aotviz.compile, "eager")])
def test_the_line_that_asked_for_the_memory_is_named(compiler: Any, backend: str) -> None:
    watch = aotviz.watch()
    with raises("can't allocate"), watch:
        compiler(needs_one_line_too_much, backend=backend)(torch.ones(3))
    explained = watch.recording.explain()
    assert "This line makes a tensor of that size" in explained.sentences[0]
    assert "scores = torch.zeros(1 << 23, 1 << 23)" in explained.source


def test_a_function_of_ours_says_what_is_kept_for_the_backward() -> None:
    compiled = aotviz.compile(forward, backend="eager", cache=False)
    with raises("out of memory"):
        compiled(torch.ones(1000, requires_grad=True))
    kept = sum(one.held_bytes or 0 for one in compiled.recording.data.compilations[0].saved_tensors)
    assert kept >= 4000
    told = compiled.recording.explain().sentences[0]
    assert f"The compiled programs keep {kept / 1024:.2f} KiB for the backward: that is `forward [0/0]`" in told


def test_a_backward_that_needs_too_much_ends_the_block() -> None:
    watch = aotviz.watch()
    with raises("out of memory"), watch:
        torch.compile(backward, backend="aotviz_eager")(torch.ones(3, requires_grad=True)).backward()
    assert watch.recording.explain().sentences[0].startswith("Memory ran out while `allocates` ran: 20.00 GiB")


def test_an_error_that_passes_several_recordings_is_in_each_of_them_once(tmp_path: Path) -> None:
    watch = aotviz.watch()
    with raises("out of memory"), watch, aotviz.record() as block:
        compiled = aotviz.compile(forward, backend="eager", cache=False)
        compiled(torch.ones(3))
    for recording in (watch.recording, block, compiled.recording):
        assert len(recording.data.call_errors) == 1
    watch.recording.save(tmp_path / "kept.aotviz")
    assert str(aotviz.load(tmp_path / "kept.aotviz").explain()) == str(watch.recording.explain())


def refused(calls: int) -> Recording:
    watch = aotviz.watch()
    with raises("fail_on_recompile"), watch:
        compiled = torch.compile(lambda x: x * 2, backend="eager")
        for _ in range(calls):
            compiled(torch.ones(3))
        with torch.compiler.set_stance("fail_on_recompile"):
            compiled(torch.ones(3, 3))
    return watch.recording


def test_a_recompile_that_a_stance_forbids_is_told_by_its_guard() -> None:
    recording = refused(1)
    assert recording.overview().headline == (
        "`<lambda>` raised an error in place of a recompile: `x` had 1 dimension and now has 2."
    )
    explained = recording.explain()
    assert "The stance `fail_on_recompile` allows no further program." in explained.sentences[0]
    assert explained.fix.startswith("Give `x` the same number of dimensions in each call")
    assert "lambda x: x * 2" in explained.source


def test_a_function_without_a_program_is_told_where_a_stance_forbids_to_make_one() -> None:
    told = refused(0).explain()
    assert "it had no program yet, and the stance `fail_on_recompile` allows none to be made" in told.sentences[0]
    assert told.fix.startswith("If such inputs are meant, call the function with them before")


def test_a_recompile_that_a_setting_forbids_is_told_by_its_guard() -> None:
    watch = aotviz.watch()
    with torch._dynamo.config.patch(error_on_recompile=True), raises("Recompiling function"), watch:
        compiled = torch.compile(lambda x: x * 2, backend="eager")
        for x in (torch.ones(3), torch.ones(3, dtype=torch.float64)):
            compiled(x)
    told = watch.recording.explain()
    assert "`x.dtype` was float32 and is now float64" in told.sentences[0]
    assert "The setting `error_on_recompile` allows no further program" in told.sentences[0]


def rows(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    return x.sin()[at] + 1


def only_small(x: torch.Tensor, n: int) -> torch.Tensor:
    if n > 2:
        raise ValueError("n is too large")
    return x * n


def written_before_its_backward(backend: str) -> None:
    result = torch.compile(torch.exp, backend=backend)(torch.ones(3, requires_grad=True).sin())
    result.mul_(2)
    result.sum().backward()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor", "aotviz_eager", "aotviz"])
def test_an_error_of_a_compiled_program_is_told_first_with_the_line_that_computes_it(backend: str) -> None:
    watch = aotviz.watch()
    with raises(r"out of (range|bounds)", (IndexError, RuntimeError)), watch:
        compiled = torch.compile(rows, backend=backend, dynamic=False)
        for at in (torch.tensor([1]), torch.tensor([0, 7])):
            compiled(torch.ones(3), at)
    told = watch.recording.explain()
    assert told.sentences[0].startswith("`rows` raised ")
    assert "Its compiled program raised it as it ran." in told.sentences[0]
    assert "return x.sin()[at] + 1" in told.source
    assert watch.recording.overview().headline.startswith("`rows` raised ")


def test_an_error_that_the_program_raises_itself_is_told_with_what_it_led_to() -> None:
    watch = aotviz.watch()
    with raises("too large", ValueError), watch:
        torch.compile(only_small, backend="eager")(torch.ones(3), 3)
    point = watch.recording.explain().points[0]
    assert point.text.startswith("`only_small` raised ValueError: n is too large.")
    assert point.code == 'raise ValueError("n is too large")'
    assert point.followed[0].startswith("`only_small` runs entirely in eager because the program raises ValueError")


@pytest.mark.parametrize("backend", ["aot_eager", "aotviz_eager"])
def test_an_error_of_a_backward_is_told_with_the_line_that_called_it(backend: str) -> None:
    watch = aotviz.watch()
    with raises("modified by an inplace operation"), watch:
        written_before_its_backward(backend)
    told = watch.recording.explain()
    assert "modified by an inplace operation" in told.sentences[0]
    kind = (
        "RuntimeError: one of the variables"
        if backend == "aot_eager"
        else "Refused: output[0] was written after the call"
    )
    assert told.sentences[0].startswith(f"The backward raised {kind}")
    assert "result.sum().backward()" in told.source
    assert told.fix.startswith("The backward needs this value as it was.")


def test_an_error_of_compiling_is_told_once() -> None:
    def prints(x: torch.Tensor) -> torch.Tensor:
        print(x)
        return x

    watch = aotviz.watch()
    with raises("print"), watch:
        torch.compile(prints, backend="eager", fullgraph=True)(torch.ones(3))
    assert [error.during for error in watch.recording.data.call_errors] == ["compile"]
    points = [point for point in watch.recording.explain().points if point.failed]
    assert [point.title for point in points] == ["`prints [0/0]` failed: `print` cannot be part of a graph"]


def test_a_size_that_was_marked_and_became_constant_is_told_once() -> None:
    table, x = torch.ones(4), torch.ones(4)
    torch._dynamo.mark_dynamic(x, 0)
    watch = aotviz.watch()
    with raises("Constraints violated", Exception), watch:
        torch.compile(lambda x: x + table, backend="eager")(x)
    failed = [point for point in watch.recording.explain().points if point.failed]
    assert len(failed) == 1, failed
    assert "was marked as dynamic, and this line made it the constant 4" in failed[0].text
    assert "L['" not in str(watch.recording.explain())


def test_an_error_of_an_export_is_told_by_the_line_that_made_it() -> None:
    class Fixed(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.reshape(4, 6) + 1

    watch = aotviz.watch()
    with raises("Constraints violated", Exception), watch:
        shapes = {"x": {0: torch.export.Dim("batch", min=2, max=64)}}
        torch.export.export(Fixed(), (torch.randn(4, 2, 3),), dynamic_shapes=shapes)
    told = watch.recording.explain()
    assert "this line made `x.shape[0]` the constant 4" in told.sentences[0]
    assert "return x.reshape(4, 6) + 1" in told.source


def test_a_function_of_ours_has_the_errors_of_its_calls() -> None:
    compiled = aotviz.compile(rows, backend="eager", cache=False)
    with pytest.raises(IndexError):
        compiled(torch.ones(3), torch.tensor([7]))
    assert compiled.recording.explain().sentences[0].startswith("`rows` raised IndexError: index 7 is out of bounds")
