"""A recording says without any logging why aotviz's own cache was of no use: what differs, where, and what to do."""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import aotviz
import aotviz.frontends.backend
from aotviz.cache.key import Key, of_graph
from aotviz.explain import ingredients
from aotviz.ir.lookup import LookUp, Outcome
from aotviz.lowerings import lowering_named, run_graph
from aotviz.reading.recording import Recording
from aotviz.recording import own_lookups
from tests.from_cache import HIT, answering

INPUTS = (
    "torch.float32 (2, 3) strides (3, 1) on cpu requires grad\ntorch.float32 (3,) strides (1,) on cpu",
    "torch.float32 (2, 3) strides (3, 1) on cpu requires grad\ntorch.float64 (3,) strides (1,) on cpu",
)
PROGRAM = "input\ninput\n%2 = .sin(%0)\n%3 = operator.mul(%2, {})\n%4 = operator.add(%3, %1)\noutput((%4,))"


pytestmark = pytest.mark.usefixtures("clean_dynamo")


def step(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    y = x.sin() * 3
    return y + bias


def line_of(text: str) -> str:
    lines, first = inspect.getsourcelines(step)
    return f"{__file__}:{first + next(i for i, line in enumerate(lines) if text in line)}"


def recorded(lookup: LookUp, *functions: Callable[..., Any]) -> Recording:
    with answering(lambda request: (lookup, b"")), aotviz.record() as recording:
        for fn in functions or (step,):
            torch.compile(fn, backend="aotviz_eager")(torch.ones(2, 3), torch.ones(3))
    return recording


def missed(**differs: tuple[str, str]) -> LookUp:
    return named({name.replace("_", " "): texts for name, texts in differs.items()})


def named(differs: Mapping[str, tuple[str, str]]) -> LookUp:
    now = {"program": PROGRAM.format(3)} | {name: after for name, (_, after) in differs.items()}
    return LookUp(Outcome.MISS, key="b" * 32, ingredients=now, nearest="a" * 32, differs=differs)


def test_a_setting_is_named_with_both_values_and_the_fix() -> None:
    recording = recorded(named({"Inductor's settings": ("all 200: 1f", "max_autotune = True\nall 200: 2e")}))
    (row,) = recording.cache_misses().itertuples()
    assert row.cache == "aotviz"
    assert row.why == (
        "`step` was compiled again although it was cached before: its 'Inductor's settings' differ: "
        "`torch._inductor.config.max_autotune` was `the default`, now `True`."
    )
    assert row.fix == "Set `torch._inductor.config.max_autotune` to the same value before both runs."
    assert (row.before, row.after) == (("the default",), ("True",))
    assert row.seconds > 0
    explanation = recording.explain()
    assert explanation.sentences[0].startswith(row.why.rstrip("."))
    assert explanation.source.startswith(__file__)
    assert explanation.fix == row.fix


def test_an_input_is_named_as_the_user_does_and_the_line_is_the_first_that_reads_it() -> None:
    recording = recorded(missed(inputs=INPUTS))
    (point,) = recording.explain().points[:1]
    assert "the dtype of `bias` was `float32`, now `float64`" in point.text
    assert (point.place, point.code) == (line_of("return y + bias"), "return y + bias")
    assert point.fix == "Pass `bias` with the same dtype in both runs."


def test_other_code_shows_the_first_line_that_differs_and_the_users_line() -> None:
    recording = recorded(missed(program=(PROGRAM.format(2), PROGRAM.format(3))))
    (point,) = recording.explain().points[:1]
    assert "`%3 = operator.mul(%2, 2)` before, now `%3 = operator.mul(%2, 3)`" in point.text
    assert (point.place, point.code) == (line_of("y = x.sin()"), "y = x.sin() * 3")
    assert point.fix == ingredients.FIXES["program"]


def test_another_program_is_not_told_as_a_miss() -> None:
    other = "input\n%1 = .cos(%0)\noutput((%1,))"
    recording = recorded(missed(program=(other, PROGRAM.format(3)), inputs=INPUTS))
    assert not [point for point in recording.explain().points if point.kind == "cache"]
    (row,) = recording.cache_misses().itertuples()
    assert row.why == "`step` was not in aotviz's cache, which has only other programs."


def test_a_cold_cache_is_not_a_problem() -> None:
    recording = recorded(LookUp(Outcome.MISS, key="b" * 32, ingredients={"program": PROGRAM}))
    assert not [point for point in recording.explain().points if point.kind == "cache"]


def test_several_programs_with_one_cause_are_one_point() -> None:
    def other(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.cos() + y

    def third(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.tan() + y

    recording = recorded(missed(torch=("2.12.1", "2.13.0")), step, other, third)
    (point,) = [point for point in recording.explain().points if point.kind == "cache"]
    assert point.text.startswith(
        "`step`, `other` and `third` were compiled again although they were cached before: their 'torch' differs: "
        "`2.12.1` before, now `2.13.0`. It cost "
    )
    assert point.fix.startswith("Nothing to do after an upgrade")
    assert len(recording.cache_misses()) == 3


def test_a_guard_miss_says_which_guard_failed() -> None:
    lookup = LookUp(Outcome.GUARD_MISS, key="a" * 32, reason="`x.shape[0]` must be at least 4, and it is 2")
    (point,) = recorded(lookup).explain().points[:1]
    assert point.text.startswith(
        "`step` was compiled again although aotviz's cache has it: its programs are for other sizes: "
        "`x.shape[0]` must be at least 4, and it is 2."
    )
    assert "dynamic" in point.fix


def test_a_bypass_says_why_and_where_and_its_advice_is_the_fix() -> None:
    where = f"{line_of('y = x.sin()')} in step"
    reason = "option 'partition_fn': the content of a partial is not known; give it a method uuid()"
    lookup = LookUp(Outcome.BYPASS, reason=reason, where=where)
    (point,) = recorded(lookup).explain().points[:1]
    because = "`step` cannot be cached: option 'partition_fn': the content of a partial is not known."
    assert point.text.partition(" Compiling it took")[0] == because
    assert (point.place, point.code) == (line_of("y = x.sin()"), "y = x.sin() * 3")
    assert point.fix == "Give it a method uuid()."


def test_a_hit_says_what_it_saved() -> None:
    recording = recorded(HIT)
    assert "1 program came from aotviz's cache, which saved 2.0 s." in recording.explain().sentences
    (row,) = recording.cache_misses().itertuples()
    assert (row.outcome, row.seconds) == ("hit", 2.0)
    assert recording.explain("0").sentences[1] == "`step` came from aotviz's cache, which saved 2.0 s."


def test_the_miss_of_a_recompile_is_not_told_twice() -> None:
    lookup = missed(inputs=INPUTS)
    with answering(lambda request: (lookup, b"")), aotviz.record() as recording:
        compiled = torch.compile(step, backend="aotviz_eager")
        compiled(torch.ones(2, 3), torch.ones(3))
        compiled(torch.ones(2, 3), torch.ones(3, dtype=torch.float64))
    told = [text for text in recording.explain().sentences if "cached before" in text]
    assert len(told) == 1
    assert len(recording.cache_misses()) == 2


def test_a_look_up_that_names_no_nearest_key_is_compared_with_those_of_this_recording() -> None:
    first = replace(missed(torch=("", "2.12")), outcome=Outcome.MISS, differs={}, nearest="")
    second = replace(first, key="c" * 32, ingredients={**first.ingredients, "torch": "2.13"})
    answers = iter((first, second))
    with answering(lambda request: (next(answers), b"")), aotviz.record() as recording:
        for _ in range(2):
            torch.compile(step, backend="aotviz_eager")(torch.ones(2, 3), torch.ones(3))
            torch._dynamo.reset()
    row = recording.cache_misses().iloc[1]
    assert (row.nearest, row.differs, row.before, row.after) == ("0", ("torch",), ("2.12",), ("2.13",))


@pytest.mark.parametrize(
    ("name", "before", "after", "words", "fix"),
    [
        (
            "environment",
            "",
            "TORCHINDUCTOR_X=1",
            "`TORCHINDUCTOR_X` was `not set` and is now `1`",
            "Set `TORCHINDUCTOR_X`",
        ),
        ("grad mode", "on", "off", "grad mode was `on` and is now `off`", "Call it in the same grad mode"),
        ("memory layout", "", "inputs [0, 1] have one base", "memory layout was absent", "Pass tensors that share"),
        ("a new one", "1", "2", "a new one was `1` and is now `2`", "Make `a new one` the same"),
        (
            "options",
            "debug = False",
            "debug = True",
            "`debug` was `False` and is now `True`",
            "Pass the same `options`",
        ),
    ],
)
def test_each_ingredient_has_its_words_and_its_fix(name: str, before: str, after: str, words: str, fix: str) -> None:
    found = ingredients.differences(name, before, after)
    assert found[0].words.startswith(words)
    assert ingredients.fix(found).startswith(fix)


@pytest.mark.parametrize(
    ("before", "after", "subject", "values"),
    [
        ("(2, 3) strides (3, 1) on cpu", "(4, 3) strides (3, 1) on cpu", "shape", ("(2, 3)", "(4, 3)")),
        ("(2, 3) strides (3, 1) on cpu", "(2, 3) strides (1, 2) on cpu", "stride", ("(3, 1)", "(1, 2)")),
        ("(2,) strides (1,) on cpu", "(2,) strides (1,) from 5 on cpu", "offset", ("0", "5")),
        ("(2,) strides (1,) on cpu", "(2,) strides (1,) on cuda:0", "device", ("cpu", "cuda:0")),
        ("(2,) strides (1,) on cpu", "(2,) strides (1,) on cpu requires grad", "requires_grad", ("False", "True")),
        ("(2,) strides (1,) on cpu", "(2,) strides (1,) on cpu view", "kind", ("plain tensor", "view")),
    ],
)
def test_each_fact_of_an_input_has_its_words(before: str, after: str, subject: str, values: tuple[str, str]) -> None:
    texts = (f"torch.float32 {where}" for where in (before, after))
    (found,) = ingredients.differences("inputs", *texts, ["w"])
    assert found.subject == f"the {subject} of `w`"
    assert (found.before, found.after) == values
    assert "`w`" in ingredients.fix([found])


def test_two_versions_of_a_program_are_similar_and_two_programs_are_not() -> None:
    lines = [f"%{i} = .sin(%{i - 1})" for i in range(1, 40)]
    longer = [*lines[:20], "%21 = .cos(%20)", *(f"%{i} = .sin(%{i - 1})" for i in range(22, 41))]
    assert own_lookups.similar("\n".join(lines), "\n".join(longer))
    assert not own_lookups.similar("\n".join(lines), "\n".join(f"%{i} = .tan(%{i - 1})" for i in range(1, 40)))


SMALL = (
    lambda x: x.sin(),
    lambda x: x.cos(),
    lambda x: x * 2,
    lambda x: x * 3,
    lambda x: x.sin() + 1,
    lambda x: x.sin() - 1,
    lambda x: (x, x.tan()),
)


def test_small_programs_of_a_cold_cache_are_not_told_to_have_been_cached_before(tmp_path: Path) -> None:
    for number, program in enumerate(SMALL):
        torch._dynamo.reset()
        compiled = aotviz.compile(program, backend="eager", cache=tmp_path)
        compiled(torch.ones(3))
        assert "cached before" not in str(compiled.recording.explain())
        (row,) = compiled.recording.cache_misses().itertuples()
        other = "which has only other programs" if number else "nothing like it"
        assert other in row.why
    again = aotviz.compile(SMALL[0], backend="eager", cache=tmp_path)
    torch._dynamo.reset()
    again(torch.ones(3))
    assert again.recording.cache_lookups.outcome.tolist() == ["hit"]


def test_a_line_that_was_edited_in_a_small_program_is_told(tmp_path: Path) -> None:
    for program in (lambda x: (x.sin() * 2).exp(), lambda x: (x.sin() * 3).exp()):
        torch._dynamo.reset()
        compiled = aotviz.compile(program, backend="eager", cache=tmp_path)
        compiled(torch.ones(3))
    assert (
        "`%2 = _operator.mul(%1, 2)` before, now `%2 = _operator.mul(%1, 3)`"
        in compiled.recording.explain().sentences[0]
    )


def test_each_ingredient_of_a_key_has_a_fix() -> None:
    keys: list[Key] = []

    def keep(module: Any, inputs: Any) -> Any:
        keys.append(of_graph(module, inputs, {}, lowering_named("inductor", {}, None)))
        return module

    torch.compile(step, backend=keep)(torch.ones(2, 3), torch.ones(3))
    assert keys[0].ingredients.keys() <= ingredients.FIXES.keys()


SHORT, LONG = "g * x.cos()", "(" * 40 + "g * x.exp()" + " * 2).sin()" * 40


def with_backward(body: str) -> Callable[..., Any]:
    """A function with a custom backward, as in a module of the user's that was edited."""
    source = f"""
class Loud(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return {body}

def f(x):
    return Loud.apply(x) * 2
"""
    name = f"<a module {body[:20]}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    space: dict[str, Any] = {"torch": torch, "__name__": "edited"}
    exec(compile(source, name, "exec"), space)
    return space["f"]


@pytest.mark.parametrize(
    ("compiled_by", "words"),
    [
        (lambda f, cache: aotviz.compile(f, backend="eager", cache=cache), "its 'program' differs: `%15 = .cos(%13)`"),
        (
            lambda f, cache: aotviz.aot_function(f, run_graph, cache=cache),
            "its 'autograd' differs: the code of a class that it uses changed",
        ),
    ],
)
def test_a_custom_backward_that_was_edited_is_told(compiled_by, words, tmp_path) -> None:
    for body in (SHORT, LONG):
        torch._dynamo.reset()
        compiled = compiled_by(with_backward(body), tmp_path)
        compiled(torch.ones(3, requires_grad=True)).sum().backward()
    (point,) = [point for point in compiled.recording.explain().points if point.kind]
    assert words in point.text
    assert point.fix == "Nothing to do if you changed the code: other code needs another program."


def test_two_texts_that_begin_alike_are_told_by_where_they_differ() -> None:
    long = "x" * 200
    recording = recorded(missed(threads=(f"{long} 1", f"{long} 2")))
    (point,) = recording.explain().points[:1]
    assert "x 1` before, now `...xxx" in point.text
    assert "x 2`" in point.text
