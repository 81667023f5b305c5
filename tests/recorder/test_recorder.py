"""The recorder sees what the loop shows it, and never stands in its way."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from aotviz.ir.forms import Form, Reason
from aotviz.options import Options
from aotviz.reading.recording import Compilation, Recording
from aotviz.recorder import recorder as module
from aotviz.recorder.recorder import Recorder
from aotviz.recorder.snapshot import Parts
from aotviz.recording.store import Store


def options(**changes: Any) -> Options:
    nothing: Callable[..., Any] = len
    return Options(
        fw_compiler=nothing, bw_compiler=nothing, inference_compiler=nothing, partition_fn=nothing, **changes
    )


@dataclass(frozen=True)
class Traced(Form):
    """A form of nobody's but this test's."""

    name: str
    graph: Any
    role: str = "joint"
    note: str = ""

    @property
    def graphs(self) -> Mapping[str, Any]:
        return {self.role: self.graph} if self.graph is not None else {}

    @property
    def texts(self) -> Mapping[str, str]:
        return {"note": self.note} if self.note else {}


def trace(fn: Any = lambda x: x.cos().sin()) -> fx.Graph:
    return make_fx(fn, tracing_mode="fake")(torch.randn(3)).graph


def watch(store: Store, *stages: tuple[str, Callable[[Form], Form]], start: Form, **how: Any) -> Recorder:
    """Run stages as the pipeline's loop does."""
    recorder = Recorder(store, strict=True, **how)
    form = start
    for name, stage in stages:
        recorder.before(name, form)
        result = stage(form)
        recorder.after(name, form, result, 1_000)
        form = result
    return recorder


def only(store: Store) -> Compilation:
    (compilation,) = Recording(store).compilations
    return compilation


def test_each_stage_is_recorded_with_its_graph_reasons_and_texts() -> None:
    store = Store()
    given = Traced(options(backend="eager"), "f", None)
    watch(
        store,
        ("trace", lambda form: replace(form, graph=trace(), evidence=(Reason("x", "it is read"),))),
        ("rename", lambda form: replace(form, note="text", evidence=())),
        start=given,
    )
    compilation = only(store)
    assert compilation.name == "f"
    assert compilation.data.options["backend"] == "eager"
    first, second = compilation.data.stages
    assert (first.name, first.form, first.changed, first.elapsed_ns) == ("trace", "Traced", True, 1_000)
    assert first.summary == "graph: joint 4 nodes"
    assert [(e.subject, e.reason) for e in first.evidence] == [("x", "it is read")]
    assert second.code == {"note": "text"}
    assert second.graphs == first.graphs == {"joint": 0}
    assert len(compilation.data.graphs) == 1
    assert len(compilation.graph("joint")) == 4


def test_a_stage_that_changes_nothing_says_so() -> None:
    store = Store()
    given = Traced(options(), "f", trace())
    watch(store, ("dedupe", lambda form: replace(form, evidence=(Reason("a", "b"),))), start=given)
    stage = only(store).data.stages[-1]
    assert (stage.changed, stage.summary) == (False, "nothing to do")


def test_a_graph_edited_in_place_is_seen_in_both_states() -> None:
    store = Store()
    graph = trace()

    def edit(form: Form) -> Form:
        node = next(node for node in graph.nodes if node.name == "sin")
        node.replace_all_uses_with(node.args[0])
        graph.erase_node(node)
        return replace(form, note="edited")

    watch(store, ("edit", edit), ("again", lambda form: replace(form, note="")), start=Traced(options(), "f", graph))
    compilation = only(store)
    assert [stage.name for stage in compilation.data.stages] == ["given", "edit", "again"]
    assert [len(g.op) for g in compilation.data.graphs] == [4, 3]
    assert compilation.stages.summary[1] == "joint: 4 to 3 nodes"
    removed = compilation.diff("given", "edit").query("change == 'removed'")
    assert removed.name_before.tolist() == ["sin"]


def test_a_graph_that_a_user_put_in_between_two_stages_is_recorded() -> None:
    store = Store()
    recorder = Recorder(store, strict=True)
    first = Traced(options(), "f", trace())
    recorder.before("a", first)
    recorder.after("a", first, first, 1)
    other = replace(first, graph=trace(lambda x: x.tan()))
    recorder.before("b", other)
    recorder.after("b", other, other, 1)
    assert [(s.name, s.summary) for s in only(store).data.stages if s.name == "given"] == [
        ("given", "what the run starts from"),
        ("given", "replaced by the user"),
    ]


def test_a_copied_graph_costs_no_second_place() -> None:
    store = Store()

    def copied(form: Any) -> Form:
        graph = fx.Graph()
        graph.output(graph.graph_copy(form.graph, {}))
        return replace(form, graph=graph)

    def twice(form: Any) -> Form:
        return copied(copied(form))

    watch(store, ("copy", copied), ("copy again", twice), start=Traced(options(), "f", trace()))
    stages = only(store).data.stages
    assert stages[1].graphs == stages[2].graphs


@pytest.mark.parametrize("edit", ["erase", "insert", "argument", "constant", "value", "descriptor", "order"])
def test_an_edit_of_a_graph_is_noticed(edit: str) -> None:
    graph = trace()
    before = Parts.of(graph)
    assert before.same_as(Parts.of(graph))
    x, cos, sin, output = graph.nodes
    if edit == "erase":
        output.args = (cos,)
        graph.erase_node(sin)
    elif edit == "insert":
        with graph.inserting_before(output):
            graph.call_function(torch.tan, (x,))
    elif edit == "argument":
        sin.args = (x,)
    elif edit == "constant":
        sin.args = (cos, 2)
        before = Parts.of(graph)
        sin.args = (cos, 3)
    elif edit == "value":
        cos.meta["val"] = torch.empty(3, device="meta")
    elif edit == "descriptor":
        x.meta["desc"] = "x"
    else:
        sin.prepend(output)
    assert not before.same_as(Parts.of(graph))


def test_late_work_is_flagged_and_joins_the_compilation() -> None:
    store = Store()
    recorder = watch(store, ("trace", lambda form: replace(form, graph=trace())), start=Traced(options(), "f", None))
    recorder.close()
    form: Any = Traced(options(), "", trace(lambda x: x.exp()), role="backward")
    late = recorder.late(form)
    late.before("lower backward", form)
    late.after("lower backward", form, replace(form, note="compiled"), 5)
    stages = [(stage.name, stage.late) for stage in only(store).data.stages]
    assert stages == [("trace", False), ("given", True), ("lower backward", True)]
    assert late.late(form) is late


def test_a_failed_stage_is_recorded_with_its_error() -> None:
    store = Store()
    recorder = Recorder(store, strict=True)
    form = Traced(options(), "f", None)
    recorder.before("trace", form)
    recorder.failed("trace", form, NotImplementedError("input 'x' is sparse \ud800"))
    error = only(store).data.error
    assert error is not None
    assert (error.stage, error.type, error.message) == ("trace", "NotImplementedError", "input 'x' is sparse \\ud800")
    assert "failed in 'trace': NotImplementedError" in str(Recording(store))
    assert Recording(store).to_bytes()


class Unprintable(Traced):
    @property
    def graphs(self) -> Mapping[str, Any]:
        raise RuntimeError("no graph for you")


def test_a_failing_recorder_warns_once_and_lets_the_compilation_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_warned", False)
    bad: Any = Unprintable(options(), "f", None)
    for _ in range(2):
        recorder = Recorder(Store())
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            recorder.before("a", bad)
            recorder.after("a", bad, bad, 1)
            recorder.failed("b", bad, ValueError())
            recorder.late(bad).before("c", bad)
            recorder.close()
        if _ == 0:
            assert ["could not record this compilation" in str(w.message) for w in caught] == [True]
        else:
            assert caught == []


@pytest.mark.parametrize("recorder", [Recorder(Store(), strict=True), Recorder(Store())], ids=["strict", "debug"])
def test_a_failing_recorder_raises_under_debugging(recorder: Recorder) -> None:
    bad = Unprintable(options(debug=not recorder.strict), "f", None)
    with pytest.raises(RuntimeError, match="no graph for you"):
        recorder.before("a", bad)


def test_names_of_any_kind_can_be_saved() -> None:
    store = Store()
    name = '<b>\ud800"\n'
    given = replace(Traced(options(), name, trace()), note=name, evidence=(Reason(name, name),))
    watch(store, (name, lambda form: replace(form, evidence=(Reason(name, name),))), start=given)
    loaded = Recording(Recording(store).data)
    assert loaded[0].name == '<b>\\ud800"\n'
    assert Recording(store).to_bytes()


def test_one_recorder_fills_several_stores() -> None:
    first, second = Store(), Store()
    recorder = Recorder(first, second, strict=True)
    form = Traced(options(), "f", None)
    recorder.before("a", form)
    recorder.after("a", form, form, 1)
    assert only(first).data.stages == only(second).data.stages
