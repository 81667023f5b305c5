"""Logs of exports and of AOTInductor, held against what `tests/corpus/programs` did."""

from __future__ import annotations

import json

import pytest
import torch

import aotviz
from aotviz.explain.explanation import Point
from tests import corpus
from tests.explain.logs import logged, recording


def point(name: str, words: str) -> Point:
    found = [point for point in recording(name).explain().points if words in point.text]
    assert len(found) == 1, [point.text for point in recording(name).explain().points]
    return found[0]


def at(text: str, program: str = "exports") -> str:
    return f"corpus/{program}.py:{corpus.line(program, text)}"


@pytest.mark.parametrize("name", ["exports", "exports_detailed"])
def test_a_condition_on_data_is_told_with_the_line_the_expression_and_where_its_number_is_from(name: str) -> None:
    found = point(name, "has to know whether")
    assert found.text.startswith("Export 2 and 1 other export failed")  # non-strict and strict, one cause
    assert "`n > 3` (`u0 > 3`)" in found.text
    assert f"read out of a tensor by `n = count.item()` ({at('n = count.item()')})" in found.text
    assert (found.place, found.code) == (at("if n > 3"), "if n > 3:")
    assert "torch._check(n > 3)" in found.fix
    assert "torch.cond" in found.fix


@pytest.mark.parametrize("name", ["exports", "exports_detailed"])
def test_an_operator_without_a_fake_kernel_is_named(name: str) -> None:
    found = point(name, "has no fake kernel")
    assert "`corpus::no_fake`" in found.text
    assert found.place == at("torch.ops.corpus.no_fake(x)")
    assert 'register_fake("corpus::no_fake")' in found.fix


@pytest.mark.parametrize("name", ["exports", "exports_detailed"])
def test_an_operator_that_raised_is_named_with_its_inputs(name: str) -> None:
    found = point(name, "aten.add.Tensor")
    assert "f32[2, 4]" in found.text
    assert "f32[3]" in found.text
    assert found.place == at("x + x.reshape(-1)[:3]")


def test_what_stopped_an_export_comes_first_and_what_is_not_logged_is_said() -> None:
    texts = recording("exports").explain().sentences
    failed = [" failed " in text for text in texts]
    assert failed.index(False) == sum(failed) == 3
    assert any("does not say whether" in text for text in texts)
    assert "0 ms in all" not in recording("exports").explain().title


def test_decisions_are_logged_with_torch_dtrace() -> None:
    detailed = recording("exports_detailed")
    assert point("exports_detailed", "did not finish").text.startswith("Export 6")
    assert point("exports_detailed", "succeeded").text == "Export, export 4 succeeded."
    assert len(detailed["export"].graph("export").nodes) > 4
    assert [list(stage.graphs) for stage in detailed["export 2"].data.stages] == [["partial"]]
    assert detailed["export 2"].data.kind == "export"


def test_a_draft_tells_each_decision_that_the_example_inputs_made() -> None:
    texts = " ".join(recording("exports_draft").explain().sentences)
    assert texts.count("succeeded") == 1
    branch = point("exports_draft", "took `n > 3` for True")
    assert branch.place == at("if n > 3")
    assert "torch._check(n > 3)" in branch.fix
    assert point("exports_draft", "has no fake kernel").place == at("torch.ops.corpus.no_fake(x)")
    wrong = point("exports_draft", "fake kernel of `corpus::wrong_fake`")
    assert "fake value 3 and real value 2" in wrong.text
    assert wrong.place == at("torch.ops.corpus.wrong_fake(x)")
    guard = point("exports_draft", "added the guard")
    assert "`x.size()[0]`" in guard.text
    assert guard.place == at("x.shape[0] % 2 == 0")


def test_aotinductor_is_a_compilation_with_its_graphs_code_and_kernels() -> None:
    both = recording("aoti")
    assert [one.id for one in both] == ["export", "AOTInductor"]
    ahead = both["AOTInductor"]
    names = [stage.name for stage in ahead.data.stages]
    assert names[0] == "before pre-grad passes"
    assert names[-1] == "lower"
    lower = ahead.data.stages[-1]
    assert list(lower.code) == ["inductor_aot_wrapper_code", "inductor_aot_kernel_code"]
    nodes = lower.kernels["inductor_aot_wrapper_code"]
    assert {name for names in nodes.values() for name in names} >= {"addmm", "relu"}
    assert len(ahead.graph("inference").nodes) > 4
    assert "not timed" in both.explain().title  # the export
    assert "s in all" in both.explain().title
    assert both.explain("AOTInductor").sentences[0].startswith("It took ")


def test_an_export_of_today_is_read(tmp_path) -> None:
    class Asks(torch.nn.Module):
        def forward(self, x):
            many = x.max().item()
            return x * 2 if many > 5 else x

    def program() -> None:
        with pytest.raises(Exception, match="data-dependent"):
            torch.export.export(Asks(), (torch.ones(3),))

    found = logged(program, tmp_path).explain().points[0]
    assert "`many > 5" in found.text
    assert found.code == "return x * 2 if many > 5 else x"


def test_exports_with_numbers_are_told_as_those_without(tmp_path) -> None:
    """Torch 2.15 numbers them as if they were compilations, and their records have no stacks."""

    class Counts(torch.nn.Module):
        def forward(self, x):
            found = x.nonzero()
            return x * 2 if found.shape[0] > 3 else x

    class Doubles(torch.nn.Module):
        def forward(self, x):
            return x * 2

    def program() -> None:
        torch._dynamo.reset()
        torch.export.export(Doubles(), (torch.ones(3),))
        with pytest.raises(Exception, match="data-dependent"):
            torch.export.export(Counts(), (torch.ones(6),))
        torch.compile(lambda x: x.sin(), backend="eager")(torch.ones(3))

    as_logged = logged(program, tmp_path)
    newer = tmp_path / "newer.log"
    newer.write_text(numbered((tmp_path / "trace.log").read_text()))
    read = aotviz.read_trace(newer, index=False)
    assert [(one.id, one.kind) for one in read] == [("export", "export"), ("export 2", "export"), ("2/0", "")]
    assert [one.id for one in as_logged][:2] == ["export", "export 2"]
    told, before = read.explain().points, as_logged.explain().points
    assert [point.text for point in told[:2]] == [point.text for point in before[:2]]
    assert told[0].code == "return x * 2 if found.shape[0] > 3 else x"


def numbered(log: str) -> str:
    """What torch 2.13 logged of exports, and then of compilations, as torch 2.15 writes it."""
    exports: list[int] = []
    lines = []
    for line in log.splitlines():
        prefix, mark, text = line.partition("] {")
        record = json.loads("{" + text) if mark and line.startswith("V") else {}
        described = next((value for name, value in record.items() if name.startswith("describe_")), {})
        if "frame_id" in record:
            record["frame_id"] += len(exports)
        elif "stack" in record or described:
            if described and described["describer_id"] not in exports:
                exports.append(described["describer_id"])
            record.pop("stack", None)
            record |= {"frame_id": max(len(exports) - 1, 0), "frame_compile_id": 0, "attempt": 0}
        lines.append(f"{prefix}] {json.dumps(record)}" if record else line)
    return "\n".join(lines) + "\n"


def test_one_export_is_explained_alone() -> None:
    told = recording("exports").explain("export 3")
    assert "no fake kernel" in told.points[0].text
    assert not any("first compilation" in text for text in told.sentences)
    assert aotviz.read_trace(corpus.folder("exports"), index=False)["export 3"].data.stack >= 0


def test_a_strict_export_is_one_compilation_and_apart_from_what_dynamo_compiled(tmp_path) -> None:
    """Dynamo numbers what it captures for each of them 0/0, as if it were the function that was compiled first."""

    class Doubles(torch.nn.Module):
        def forward(self, x):
            return x * 2

    def program() -> None:
        torch._dynamo.reset()
        torch.compile(lambda x: x.sin(), backend="eager")(torch.ones(3))
        for size in (3, 4):
            torch.export.export(Doubles(), (torch.ones(size),), strict=True)
        with torch._dynamo.config.patch(enable_aot_compile=True):  # it is not, before torch 2.13
            torch.compile(lambda x: x.cos(), fullgraph=True, backend="eager").aot_compile(((torch.ones(3),), {}))

    read = logged(program, tmp_path)
    assert [one.id for one in read if one.kind == "export"] == ["export", "export 2"]
    assert len(read) == 4
    assert list(next(iter(read)).graph("dynamo").nodes.op) == ["placeholder", "call_method", "output"]
    for name in ("export", "export 2"):
        assert list(read[name].stages.stage) == ["dynamo"]
        assert read[name].compile_id == "0/0"
    assert "not timed" not in read.explain().title


class Strict(torch.nn.Module):
    def branches(self, x):
        return x + 1 if x.sum() > 0 else x

    def breaks(self, x):
        torch._dynamo.graph_break()
        return x

    def fixes(self, x):
        return x.view(4) + 1

    def adds(self, x, y):
        return x + y


ROWS, OTHERS = torch.export.Dim("rows"), torch.export.Dim("others")
STRICT = {
    "branches": ((3,), None, "failed because the program branches on a tensor's value, which is not known while "
        "compiling, and an export allows no graph break.", "return x + 1 if x.sum() > 0 else x"),
    "breaks": ((3,), None, "failed because the program calls `torch._dynamo.graph_break()` here, and an export allows "
        "no graph break.", "torch._dynamo.graph_break()"),
    "fixes": ((4,), ({0: ROWS},), "failed: `rows` was marked as dynamic, and this line made it the constant 4.",
        "return x.view(4) + 1"),
    "adds": ((4, 4), ({0: ROWS}, {0: OTHERS}), "failed because `x.shape[0]` and `y.shape[0]` have to be equal, and "
        "`dynamic_shapes` names them `rows` and `others`.", ""),
}  # fmt: skip


@pytest.mark.parametrize("method", STRICT)
def test_the_error_of_a_strict_export_is_told_in_words_at_the_users_line(method, tmp_path) -> None:
    sizes, shapes, told, code = STRICT[method]

    def program() -> None:
        torch._dynamo.reset()
        module = type("Module", (Strict,), {"forward": getattr(Strict, method)})()
        with pytest.raises(Exception, match=r"."):
            torch.export.export(module, tuple(map(torch.ones, sizes)), dynamic_shapes=shapes, strict=True)

    read = logged(program, tmp_path)
    (found,) = [one for one in read.explain().points if one.kind]
    assert (found.text, found.kind) == (f"Export {told}", "export")
    assert read.overview().causes.title[0].startswith("Export failed: ")
    assert found.code == code or not code
