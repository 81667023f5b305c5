"""What `torch.compile(backend="aotviz")` compiles is recorded from Dynamo's half on: capture, end and guards."""

from __future__ import annotations

import inspect
import threading

import pytest
import torch

import aotviz
import aotviz.frontends.backend
from aotviz.torch_private import dynamo
from tests.doors import alone

HERE = __file__


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(3, 3)
        self.factor = 2
        self.names = ["a"]

    def forward(self, x):
        y = self.fc(x) * self.factor
        torch._dynamo.graph_break()
        return (y + len(self.names)).sum() * x.shape[0]


def line_of(text: str) -> int:
    """The line of this file in `forward` that holds a text."""
    lines, first = inspect.getsourcelines(Scaled.forward)
    return first + next(number for number, line in enumerate(lines) if text in line)


pytestmark = pytest.mark.usefixtures("clean_dynamo")


def calls(backend: str) -> None:
    """First calls, and calls that need new programs: a batch size, an attribute, a length, grad mode."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = Scaled()
    compiled = torch.compile(model, backend=backend)
    compiled(torch.ones(2, 3)).backward()
    compiled(torch.ones(5, 3))
    model.factor = 3
    compiled(torch.ones(5, 3))
    model.names.append("b")
    compiled(torch.ones(5, 3))
    with torch.no_grad():
        compiled(torch.ones(5, 3))


@pytest.fixture(scope="module")
def recording():
    with aotviz.record() as recorded:
        calls("aotviz_eager")
    return recorded


def reasons(compilation, subject: str) -> list[str]:
    table = compilation.evidence
    return list(table[(table.stage == "dynamo") & (table.subject == subject)].reason)


def test_a_graph_break_gives_two_compilations_in_the_order_in_which_they_run(recording) -> None:
    first, rest = recording[0], recording[1]
    for compilation in recording:
        assert compilation.stages.stage[0] == "dynamo"
        assert compilation.stages.started_ms[0] == 0
        assert compilation.stages.started_ms[1] >= compilation.stages.elapsed_ms[0] > 0
    broken = line_of("graph_break")
    assert f"ends at a graph break in line {broken}" in first.stages.summary[0]
    assert f"`forward` at {HERE}:{line_of('def forward')}; Dynamo's number for it is 0/0" in reasons(first, "frame")[0]
    assert f"the rest of `forward` after line {broken}" in reasons(rest, "frame")[0]
    (told,) = reasons(first, "graph break")
    assert told.startswith(f"the graph ends at {HERE}:{broken}, `torch._dynamo.graph_break()`: ")
    (again,) = reasons(first, "restart")
    assert again.endswith("to end its graph before the line that causes the graph break")
    assert not reasons(rest, "graph break")
    assert not reasons(rest, "restart")
    assert "Explanation:" in recording.data.compilations[0].stages[0].code["graph break"]


def test_the_captured_graph_is_a_graph_like_any_other(recording) -> None:
    graph = recording[0].graph("dynamo")
    assert "torch._C._nn.linear" in set(graph.nodes.target)
    product = graph.nodes[graph.nodes.target == "operator.mul"].iloc[0]
    assert product.source_line == f"{HERE}:{line_of('self.factor')}"
    assert product.source_code == "y = self.fc(x) * self.factor"
    assert product["shape"] == (2, 3)
    assert recording[0].stages.nodes_after[0] == len(graph)
    assert not recording[0].diff("dynamo", "metadata").empty


def test_the_guards_say_which_line_made_them(recording) -> None:
    guards = recording.guards[recording.guards.compilation == "0"].set_index("source")
    factor = guards.loc["L['self'].factor"]
    assert (factor.kind, factor.text, factor.code) == (
        "EQUALS_MATCH",
        "L['self'].factor == 2",
        "y = self.fc(x) * self.factor",
    )
    assert factor.place.endswith(f":{line_of('self.factor')} in forward")
    (told,) = [reason for reason in reasons(recording[0], "factor") if "==" in reason]
    assert told.startswith("guard: self.factor == 2 (made by `y = self.fc(x) * self.factor`, ")
    texts = recording.data.compilations[0].stages[0].code["guards"].splitlines()
    assert len(texts) == len(guards)
    assert f"{len(guards)} guards" in recording[0].stages.summary[0]


def test_sizes_that_became_symbolic_are_told(recording) -> None:
    again = recording[2]
    (told,) = reasons(again, "x.size()[0]")
    assert told.startswith("symbolic, as s")
    assert "it was 5 in the call that was compiled" in told
    assert not reasons(recording[0], "x.size()[0]")


def test_recompiles_are_told_in_the_words_of_stock_torch_compile(recording) -> None:
    with aotviz.watch() as watched:
        calls("eager")
    ours, theirs = recording.recompiles(), watched.recompiles()
    assert len(ours) == 6
    for column in (
        "kind",
        "subject",
        "before",
        "after",
        "also",
        "why",
        "code",
        "place",
        "same_cause",
        "outcome",
        "fix",
    ):
        named = [str(value).replace("`Scaled`", "`forward`") for value in ours[column]]  # by its class
        assert named == list(map(str, theirs[column])), column
    assert list(ours.subject) == [
        "x.shape[0]",
        "x.shape[0]",
        "self.factor",
        "len(self.names)",
        "grad_mode",
        "grad_mode",
    ]
    assert ours.place[2] == f"{HERE}:{line_of('self.factor')}"
    ours, theirs = recording.distinct_graph_breaks(), watched.distinct_graph_breaks()
    assert ours.drop(columns="compilations").equals(theirs.drop(columns="compilations"))
    assert ours.place[0] == f"{HERE}:{line_of('graph_break')}"
    points = " ".join(str(recording.explain()).split())
    assert "the program calls `torch._dynamo.graph_break()` here" in points
    assert "`x.shape[0]` is symbolic from now on" in points
    one = str(recording.explain(recording[2].id))
    assert f"({HERE}:{line_of('def forward')})" in " ".join(one.split())


def test_a_saved_recording_has_it_all(recording, tmp_path) -> None:
    recording.save(tmp_path / "a.aotviz")
    found = aotviz.load(tmp_path / "a.aotviz")
    for table in ("guards", "graph_breaks"):
        assert getattr(found, table).drop(columns="time").equals(getattr(recording, table).drop(columns="time")), table
    assert found.recompiles().equals(recording.recompiles())
    assert [c.evidence.equals(r.evidence) for c, r in zip(found, recording, strict=True)] == [True] * len(found)
    assert str(found[0].graph("dynamo")) == str(recording[0].graph("dynamo"))
    ranks = aotviz.load([tmp_path / "a.aotviz", tmp_path / "a.aotviz"])
    assert len(ranks.guards) == 2 * len(found.guards)
    assert set(ranks.guards.compilation) == {f"rank {rank}: {c.id}" for rank in (0, 1) for c in found}
    assert "captured: " in str(found)


def test_it_is_told_when_the_guards_are_not_known(monkeypatch) -> None:
    inside = []

    def told(name, elapsed_ns):
        inside.append(reasons(recording[0], "guards") if name == "link" and elapsed_ns is None else [])

    with aotviz.record() as recording:
        compiled = torch.compile(lambda x: x + 1, backend="aotviz_eager", options={"on_stage": told})
        compiled(torch.ones(3))
    assert max(inside) == ["not known yet: Dynamo creates the guards last, and aotviz reads them at the first call"]
    assert not reasons(recording[0], "guards")
    monkeypatch.setattr(dynamo, "programs_of", lambda code: [])
    with aotviz.record() as recording:
        compiled = torch.compile(lambda x: x + 2, backend="aotviz_eager")
        assert compiled(torch.ones(3)).tolist() == [3, 3, 3]
    assert reasons(recording[0], "guards") == ["Dynamo has deleted this program, so its guards are not known"]
    assert recording.guards.empty


def test_a_compilation_that_fails_says_that_it_has_no_guards() -> None:
    def stops(*args, **kwargs):
        raise RuntimeError("stopped")

    x = torch.ones(3, requires_grad=True)
    with aotviz.record() as recording, pytest.raises(Exception, match="stopped"):
        torch.compile(lambda x: x.sin(), backend="aotviz_eager", options={"partition_fn": stops})(x)
    assert recording[0].stages.stage[0] == "dynamo"
    assert reasons(recording[0], "guards") == ["none, because the compilation failed"]


def test_what_runs_in_eager_has_its_guards_too() -> None:
    def refused(x):
        x.data = x * 2.0
        return x.sum()

    x = torch.ones(3, requires_grad=True)
    with aotviz.record() as recording, pytest.warns(aotviz.RanInEager):
        torch.compile(lambda x, k: (x.mul_(2), refused(x))[1] * k, backend="aotviz_eager")(x * 1, 3)
    assert recording[0].data.error.ran_in_eager
    assert "L['k'] == 3" in set(recording.guards.text)


def test_two_threads_get_the_guards_of_their_own_programs() -> None:
    def double(x):
        return x * 2

    def triple(x):
        return x * 3

    with aotviz.watch() as watched:  # a watch hears of all threads
        # without dynamic=False, a setting that torch puts back at the end of a call: two threads at once leave it
        functions = [torch.compile(function, backend="aotviz_eager") for function in (double, triple)]
        threads = [threading.Thread(target=f, args=(torch.ones(2 + i),)) for i, f in enumerate(functions)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    own = [compilation for compilation in watched if not compilation.compile_id]
    sizes = [[reason for reason in reasons(c, "x") if "check_tensor" in reason] for c in own]
    assert sorted("size=[2]" in found[0] for found in sizes) == [False, True]


def test_other_doors_have_no_half_of_dynamos() -> None:
    f = alone(lambda x: x.sin())
    f(torch.ones(3))
    assert "dynamo" not in set(f.recording[0].stages.stage)
    assert f.recording.guards.empty
