"""aotviz.compile's own recompiles are explained like those of torch.compile."""

from __future__ import annotations

import pytest
import torch

import aotviz

X = torch.ones(3)

pytestmark = pytest.mark.usefixtures("clean_dynamo")


def recompiles_of(*calls):
    @aotviz.compile(backend="eager")
    def scaled(x, n):
        return x * n

    for call in calls:
        scaled(*call)
    return scaled.recording


@pytest.mark.parametrize(
    ("second", "subject", "before", "after"),
    [
        ((X.double(), 2), "x.dtype", "float32", "float64"),
        ((torch.ones(4), 2), "x.shape[0]", "3", "4"),
        ((X[None], 2), "x.ndim", "1", "2"),
        ((torch.ones(3, requires_grad=True), 2), "x.requires_grad", "False", "True"),
        ((torch.ones(6)[::2], 2), "x.stride(0)", "1", "2"),
        ((X, 3), "n", "2", "3"),
        ((X, X), "n", "2", ""),
    ],
)
def test_what_changed_is_named_as_the_user_knows_it(second, subject, before, after) -> None:
    table = recompiles_of((X, 2), second).recompiles()
    assert len(table) == 1
    found = table.iloc[0]
    assert (found.subject, found.before, found.after) == (subject, before, after)
    assert (found.compilation, found.earlier) == ("1", "0")
    assert found.why.startswith("`scaled` was compiled again because ")
    assert found.fix


def test_the_program_that_came_nearest_is_the_one_compared_with() -> None:
    table = recompiles_of((X, 2), (X.double(), 2), (torch.ones(4), 2)).recompiles()
    assert table.iloc[1].subject == "x.shape[0]", "the first program differs in the size alone"
    assert table.iloc[1].earlier == "0"


def test_a_changed_mode_of_a_module_and_of_autograd_is_told() -> None:
    module = torch.nn.Dropout()
    compiled = aotviz.compile(module, backend="eager")
    compiled(X)
    module.eval()
    compiled(X)
    with torch.no_grad():
        compiled(X)
    first, second = compiled.recording.recompiles().itertuples()
    assert "`train()` and `eval()`" in first.fix
    assert "gradient mode" in second.why


def test_a_saved_recording_explains_itself_as_well(tmp_path) -> None:
    recording = recompiles_of((X, 2), (X.double(), 2))
    recording.save(tmp_path / "kept.aotviz")
    assert str(aotviz.load(tmp_path / "kept.aotviz").explain()) == str(recording.explain())
    assert "float64[3]" in aotviz.load(tmp_path / "kept.aotviz").explain("1").sentences[1]


def test_calls_that_fit_are_no_recompiles() -> None:
    recording = recompiles_of((X, 2), (X + 1, 2))
    assert len(recording.recompiles()) == 0
    assert recording.explain("0").sentences[0].startswith("This is the first compilation of `scaled [")


def tripled(x, n):
    return x.sin() * n


@pytest.mark.parametrize("listen", [aotviz.record, aotviz.watch])
def test_a_program_that_dynamo_asked_for_again_tells_the_guard_that_failed(listen) -> None:
    torch._dynamo.reset()
    with listen() as recorded:
        compiled = torch.compile(tripled, backend="aotviz_eager", dynamic=False)
        for call in ((X, 2), (torch.ones(4), 2), (torch.ones(4), 3)):
            compiled(*call)
    ours = [compilation for compilation in recorded.compilations if not compilation.compile_id]
    size = "guard of 0/0 failed: x.shape[0] changed from 3 to 4"
    assert [compilation.data.because for compilation in ours] == [
        [], [size], ["guard of 0/1 failed: n == 2 (now 3)", f"{size}; also n == 2 (now 3)"],
    ]  # fmt: skip
    table = recorded.recompiles()
    assert list(table.function) == ["tripled", "tripled"], "told once, though two compilations of a watch are of it"
    assert list(table.subject) == ["x.shape[0]", "n"]
    assert list(table.earlier) == (["0/0", "0/1"] if listen is aotviz.watch else ["0", "1"])
    assert "of 1 function, 2 of them recompiles" in str(recorded.explain())


def test_every_difference_is_named_and_first_the_one_that_comes_again() -> None:
    table = recompiles_of(
        (X, 2), (torch.ones(4, dtype=torch.float64), 3), (torch.ones(4, dtype=torch.float64), 4)
    ).recompiles()
    assert list(table.subject) == ["x.dtype"], "the others are symbolic from then on"
    assert set(table.also[0]) == {"n", "x.shape[0]"}


def test_a_size_that_changed_and_then_left_its_range_is_told_with_both_reasons() -> None:
    torch._dynamo.reset()

    def by_size(x):
        return x.sin() if x.shape[0] < 5 else x.cos()

    with aotviz.record() as recording:
        compiled = torch.compile(by_size, backend="aotviz_eager")
        for size in (4, 3, 7):
            compiled(torch.ones(size))
    (said,) = [text for text in recording.explain().sentences if "caused both recompiles" in text]
    assert (
        "because dimension 0 of `x` had size 4 and now has size 3, and later because the program was compiled for"
        in said
    )
    assert "each time" not in said


def test_two_modules_of_torchs_own_class_are_told_though_dynamo_gives_their_compilations_no_id() -> None:
    """The line that calls them is looked up among the compilations that have an id."""
    for _ in range(2):
        module = torch.nn.Sequential(torch.nn.Linear(3, 3))
        compiled = aotviz.compile(module, backend="eager")
        compiled(X)
    module[0].requires_grad_(False)
    compiled(X)
    assert "was compiled again" in compiled.recording.recompiles().iloc[-1].why
    assert "`Sequential` was recompiled" in str(compiled.recording.overview())
