"""`aotviz.compare_inputs`: one function, several sets of inputs, one sentence for each difference."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import aotviz
from aotviz.comparing.compared_inputs import Comparison


def double(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    a.mul_(2)
    return a + b, b[:2]


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a * b).sin()


@pytest.fixture(scope="module")
def four() -> Comparison:
    m = torch.arange(8.0)
    found = aotviz.compare_inputs(
        double,
        overlapping=(m[:5], m[3:]),
        separate=(torch.ones(5), torch.ones(5)),
        same=(m[:5],) * 2,
        disjoint=(m[:4], m[4:]),
    )
    assert m.tolist() == list(range(8)), "an input was changed"
    return found


def test_the_first_sentence_says_what_each_set_does_with_shared_memory(four: Comparison) -> None:
    assert four.sentences[0] == (
        "With `overlapping`, `a` and `b` share a base of 8 elements: the wrapper passes one synthetic base to the "
        "graph for them; with `separate`, no inputs share memory; with `same`, `a` and `b` are one tensor: the graph "
        "takes it once, and the wrapper checks that they still are; with `disjoint`, `a` and `b` share a storage of 8 "
        "elements and do not overlap: the graph takes each of them."
    )


def test_a_sentence_tells_the_sets_that_behave_alike_together(four: Comparison) -> None:
    (write,) = (sentence for sentence in four.sentences if "`a` is changed" in sentence)
    assert "with `separate`, `same` and `disjoint`, `a` is changed: the wrapper writes it after the graph ran" in write
    assert not any("`output[0]`" in sentence for sentence in four.sentences), "the same in every set"


def test_sources_and_tables_are_those_of_each_set(four: Comparison) -> None:
    assert four.names == ("overlapping", "separate", "same", "disjoint")
    assert "base_of(a)" in four.sources["overlapping"]
    assert "base_of" not in four.sources["separate"]
    assert four.inputs.groupby("set").synthetic_base.first()["overlapping"] == "base of a, b"
    assert four.outputs.query("name == 'output[1]'").base.tolist() == ["base of a, b", "b", "a", "b"]
    assert four["same"].inputs.duplicate_of.tolist() == ["", "a"]
    with pytest.raises(KeyError, match="there is no set 'other'; the sets are 'overlapping', 'separate'"):
        four["other"]


def test_repr_is_a_small_table_and_the_sentences(four: Comparison) -> None:
    lines = repr(four).splitlines()
    assert lines[0] == "double, compiled for 4 sets of inputs"
    assert lines[2].split() == "overlapping a: float32[5], b: float32[5] inference 17 nodes 0 tensors 13 lines".split()
    assert [line for line in lines if line.startswith("- ")] == [f"- {sentence}" for sentence in four.sentences]


def test_a_saved_comparison_opens_without_torch(four: Comparison, tmp_path: Path) -> None:
    four.save(tmp_path / "four.aotviz")
    code = (
        "import sys, aotviz; r = aotviz.load(sys.argv[1]); assert 'torch' not in sys.modules; "
        "print(*[s.name for s in r.compared.sets], len(r.compared.sentences), r['same'].name)"
    )
    told = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "four.aotviz"], check=True, capture_output=True, text=True
    ).stdout
    assert told.split() == [*four.names, str(len(four.sentences)), "double"]


def test_grad_dtype_and_layout_are_told() -> None:
    plain, other = torch.ones(2, 2), torch.ones(2, 2)
    found = aotviz.compare_inputs(
        product,
        plain=(plain, other),
        grad=(torch.ones(2, 2, requires_grad=True), other),
        integers=(torch.ones(2, 2, dtype=torch.int64), other.t()),
        twice=(plain, plain),
    )
    told = "\n".join(found.sentences)
    assert "with `grad`, `output` requires grad" in told
    assert "with `grad`, the program is for training" in told
    assert "with `grad`, the forward saves `primals_1` and `primals_2` for the backward, 0 bytes" in told
    assert "with `integers`, `a` is int64[2, 2]" in told
    assert "`b` is float32[2, 2] with stride [1, 2]" in told
    assert "with `twice`, `a` and `b` are one tensor, which is not written: the graph takes it as 2 inputs" in told
    assert "graph of the backward" not in told, "only one set has one"


def test_equal_sets_have_no_sentence() -> None:
    one, two = ({"b": torch.ones(2), "a": torch.ones(2)} for _ in range(2))
    equal = aotviz.compare_inputs(product, one=one, two=two)
    assert equal.sentences == []
    assert "Nothing differs" in repr(equal)


def test_a_set_that_fails_is_shown_with_its_reason(capfd: pytest.CaptureFixture[str]) -> None:
    def picky(x: torch.Tensor) -> torch.Tensor:
        if x.dtype is torch.int64:
            raise ValueError("no integers")
        return x.sin()

    found = aotviz.compare_inputs(picky, floats=(torch.ones(2),), integers=(torch.ones(2, dtype=torch.int64),))
    assert found.errors == {"integers": "ValueError in the stage `metadata`: no integers"}
    assert found.sentences == [
        "With `floats`, `picky` is compiled; with `integers`, `picky` is not compiled: ValueError in the stage "
        "`metadata`: no integers."
    ]
    assert "integers  ValueError in the stage" in repr(found)
    assert found.sources["integers"] == ""


def test_modules_are_compared_on_copies() -> None:
    norm = nn.BatchNorm1d(3)
    before = {name: value.clone() for name, value in norm.state_dict().items()}
    found = aotviz.compare_inputs(norm, two=(torch.ones(2, 3),), four=(torch.randn(4, 3),))
    assert found.errors == {}
    assert all(torch.equal(value, before[name]) for name, value in norm.state_dict().items())


@pytest.mark.parametrize(
    ("sets", "error", "words"),
    [
        ({}, ValueError, "at least two sets of inputs, and got none; for example"),
        ({"one": (torch.ones(2),)}, ValueError, "and got only 'one'"),
        ({"one": (torch.ones(2),), "two": torch.ones(2)}, TypeError, r"'two' is of type Tensor; .* two=\(x,\)"),
        ({"one": (torch.ones(2),), "two": [torch.ones(2)]}, TypeError, "'two' is of type list"),
        (
            {"one": (torch.ones(2),) * 2, "two": (torch.ones(2),)},
            TypeError,
            "'two' has 1 argument, .* 'one' has 2",
        ),
        ({"one": (torch.ones(2),), "two": (1.0,)}, TypeError, "set 'two' has no tensor"),
    ],
)
def test_bad_sets_are_named(sets: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        aotviz.compare_inputs(torch.sin, **sets)
