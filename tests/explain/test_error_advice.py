"""What an error's own message advises is told, and in one point; what quoting did to a message is not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import aotviz
from aotviz.explain import error_texts, exports, graph_breaks
from aotviz.explain.cures import backward_cures, break_cures
from aotviz.recorder.call_errors import noted
from aotviz.torch_private import versions
from tests.cures.raised import RAISES
from tests.explain.logs import logged

NO_ADVICE_IN_IT = [
    "index 7 is out of bounds for dimension 0 with size 3",
    "CUDA error: device-side assert triggered\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1",
    "Not supported. Please report a bug to PyTorch. For more information, run with TORCH_LOGS='dynamic'",
]


@pytest.mark.parametrize("message", NO_ADVICE_IN_IT)
def test_how_to_debug_or_report_is_no_advice(message: str) -> None:
    assert not error_texts.cure_of(message)


def test_what_a_message_advises_is_the_cure_where_none_is_known() -> None:
    said = "It has no such layout. Use `.reshape(...)` instead.\nTo fix this, set torch.x.y = 1"
    advice = error_texts.cure_of(said)
    assert advice == "Use `.reshape(...)` instead. To fix this, set torch.x.y = 1."
    assert advice.cures == (break_cures.TORCHS_HINT,)
    donated = error_texts.cure_of("This was compiled with non-empty donated buffers. Please keep backward() as it is.")
    assert donated.cures == (backward_cures.DONATED,)


def test_a_quoted_message_is_told_by_its_first_sentence() -> None:
    quoted = r"Dynamo failed to run FX node: call_function <function norm at 0x7f>(*(x,), **{}): got RuntimeError("
    quoted += r"'The mean was not batched.\nIf you need it, set it to False.If you do not, leave it.')"
    assert graph_breaks.of_operator(quoted) == "`norm` raised RuntimeError: The mean was not batched"
    assert (
        graph_breaks.hinted("Hint: Look in eager.", quoted)
        == "If you need it, set it to False. If you do not, leave it."
    )


def test_a_condition_is_written_in_python() -> None:
    reason = "Could not guard on data-dependent expression Eq(u0, 0) (unhinted: Eq(u0, 0))."
    assert exports.brief(reason) == "it is not known while tracing whether `u0 == 0`"


class Entries(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        counts = torch.bincount(x, minlength=4).tolist()
        return x * counts[0]


class Halves(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = x.sum().item()
        if n % 2 == 0:
            return x
        return -x


@pytest.mark.parametrize(
    ("module", "said"), [(Entries(), "the length of `bincount`"), (Halves(), "whether `n % 2 == 0`")]
)
def test_an_export_that_failed_in_a_watch_is_one_point_with_its_error(module: torch.nn.Module, said: str) -> None:
    watch = aotviz.watch()
    with pytest.raises(Exception, match="data-dependent"), watch:
        torch.export.export(module, (torch.tensor([1, 3, 3]),))
    told = watch.recording.explain()
    (failed,) = [point for point in told.points if point.failed]
    assert said in failed.text
    assert "ran" not in failed.text
    assert "Eq(" not in str(told)
    assert "does not log" not in str(told)


class Table(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(2, 2)
        with torch.inference_mode():
            self.inner.table = torch.ones(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * self.inner.table


def test_the_inference_tensor_is_named_as_the_function_names_it() -> None:
    model = torch.compile(Table(), backend="aot_eager")
    with pytest.raises(RuntimeError, match="Inference tensors") as caught:
        model(torch.ones(1, 2))
    found = noted(caught.value)
    assert found is not None
    assert found.about == ["self.inner.table"]


def doubled(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([x, x])


PAIRED = torch.library.custom_op("error_advice::paired", doubled, mutates_args=())


@PAIRED.register_fake
def _fake_of_paired(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_a_wrong_fake_kernel_is_told_with_its_line_also_with_a_cache_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    watch = aotviz.watch()
    with pytest.raises(AssertionError, match="paired"), watch:
        torch.compile(lambda x: PAIRED(x))(torch.ones(3, 2))
    told = watch.recording.explain()
    kernel = _fake_of_paired.__code__
    assert told.sentences[0].startswith("`error_advice::paired` returned a tensor of another shape or layout than ")
    assert f"{__file__}:{kernel.co_firstlineno}" in told.sentences[0]
    assert "torch.compile(lambda x: PAIRED(x))" in told.source
    assert str(tmp_path) not in told.source


def test_a_log_says_once_and_last_that_it_has_no_errors_of_calls(tmp_path: Path) -> None:
    def calls() -> None:
        step = torch.compile(lambda x: x * 2, backend="eager")
        step(torch.ones(3))
        step(torch.ones(3, dtype=torch.float64))

    sentences = logged(calls, tmp_path).explain().sentences
    assert [number for number, one in enumerate(sentences) if "nothing about errors that came later" in one] == [
        len(sentences) - 1
    ]


def test_a_suppressed_error_is_told_to_have_run_in_eager(tmp_path: Path) -> None:
    def program() -> None:
        torch._dynamo.reset()
        with torch._dynamo.config.patch(suppress_errors=True):
            torch.compile(lambda x: RAISES(x) * 2, backend="eager")(torch.ones(4, 3))

    (first,) = [point for point in logged(program, tmp_path).explain().points if point.failed]
    assert "It ran in eager, because `torch._dynamo.config.suppress_errors` is set" in first.text
    if versions.has("an error of a fake kernel is not wrapped"):  # else the log has no line of the kernel
        assert "a fake kernel raised IndexError" in first.text
        assert "x.new_empty(x.shape[0], x.shape[5])" in first.code
    else:
        assert "`cures.fake_that_raises.default` raised IndexError: tuple index out of range" in first.text
        assert "RAISES(x) * 2" in first.code


def test_a_transform_inside_of_the_compiled_function_is_not_told_to_be_outside_of_it(clean_dynamo: None) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.vmap(lambda row: row.sum().item() * row)(x)

    watch = aotviz.watch()
    with pytest.raises(RuntimeError), watch:
        torch.compile(f, backend="aot_eager")(torch.ones(3, 3))
    told = str(watch.recording.explain())
    assert "calls the compiled function from outside" not in told
    assert "asks for a tensor's value as a Python number" in " ".join(told.split())


def test_an_operator_that_lacks_a_fake_kernel_is_told_to_register_one_at_a_graph_break_as_well(
    clean_dynamo: None,
) -> None:
    library = torch.library.Library("aotviz_told", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CPU")
    for registered in (False, True):
        if registered:
            torch.library.register_fake("aotviz_told::twice", torch.empty_like, lib=library)
        torch._dynamo.reset()
        with aotviz.watch() as recording:
            torch.compile(lambda x: torch.ops.aotviz_told.twice(x) + 1, backend="eager")(torch.ones(3))
        told = [str(point.fix) for point in recording.explain().points]
        assert any('`@torch.library.register_fake("aotviz_told::twice")`' in fix for fix in told) == (not registered)
        assert len(recording.graph_breaks) == (0 if registered else 1)
