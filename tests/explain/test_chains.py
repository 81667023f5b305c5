"""A cause stands with all that came of it, and costs what all of it cost."""

from __future__ import annotations

import contextlib
import logging
import re
from pathlib import Path

import pytest
import torch
from torch import nn

import aotviz
from aotviz.explain import answers, chains
from aotviz.explain.rows import Facts
from aotviz.reading.recording import Recording
from aotviz.recording.sources import user_frames
from tests import corpus
from tests.explain.logs import logged, recording

LOG = logging.getLogger(__name__)


def spent(read: Recording, *ids: str) -> float:
    """What torch timed for these compilations, from the records of the log."""
    data, _ = read.rows
    found = 0.0
    for record in data.metrics:
        if record.origin.compilation >= 0 and data.compilations[record.origin.compilation].id in ids:
            took = max(
                record.numbers["duration_us"] / 1e6, record.end_unix_s - record.start_unix_s
            )  # they differ under load
            found += 0.0 if record.kind == "runtime" else took
    events = data.events
    for row, place in enumerate(events.compilation):
        if place >= 0 and data.compilations[place].id in ids and data.compilations[place].id.count("/") == 0:
            found += events.duration_us[row] / 1e6 if events.parent[row] < 0 else 0.0
    return found


def test_a_backward_that_is_captured_again_follows_from_the_recompile_of_its_forward() -> None:
    read = recording("compiled_autograd")
    first = read.explain().points[0]
    assert "dimension 0 of `x` had size 2 and now has size 3" in first.text
    assert first.ids == ("0/1", "!2", "!2/3/0")
    assert any("`backward` was compiled again because the forward ran another" in text for text in first.followed)
    assert first.seconds == pytest.approx(spent(read, *first.ids), rel=0.02)
    assert first.seconds > 2 * spent(read, "0/1")
    assert not any("the forward ran another" in point.text for point in read.explain().points)


def test_a_capture_costs_what_compiling_the_captured_program_cost() -> None:
    read = recording("compiled_autograd")
    (gradient,) = (point for point in read.explain().points if ".grad` was None" in point.text and point.kind)
    assert gradient.ids == ("!1", "!1/2/0")
    assert gradient.seconds == pytest.approx(spent(read, "!1", "!1/2/0"), rel=0.02)
    assert any("Dynamo compiled what was captured (!1/2/0)" in text for text in gradient.followed)


def test_a_recompile_leads_to_misses_and_kernels() -> None:
    read = recording("training")
    data, texts = read.rows
    cause = next(point for point in read.explain().points if point.kind == "recompile")
    places = [place for place, one in enumerate(data.compilations) if one.id in cause.ids]
    misses = sum(one.outcome == "miss" and one.origin.compilation in places for one in data.cache_lookups)
    code = [
        texts[one.text]
        for one in data.artifacts
        if texts[one.type] == "inductor_output_code" and one.origin.compilation in places
    ]
    kernels = sum(len(re.findall(r"^\w+ = async_compile\.", text, re.M)) for text in code)
    told = " ".join(cause.followed)
    assert misses
    assert kernels
    assert f"{misses} cache look-ups (AOTAutograd and FX graph) found nothing" in told
    assert f"Inductor built {kernels} kernel" in told


def test_a_recompile_leads_to_a_backward_that_costs_as_well(tmp_path: Path) -> None:
    def scaled(x, factor):
        return (x * factor).sin()

    def program() -> None:
        torch._dynamo.reset()
        compiled = torch.compile(scaled, backend="aot_eager", dynamic=False)
        for factor in (1, 2):
            compiled(torch.ones(3, requires_grad=True), factor).sum().backward()

    read = logged(program, tmp_path)
    (cause,) = (point for point in read.explain().points if point.kind == "recompile")
    backward = [one for one in read.rows[0].metrics if one.kind == "backward" and one.origin.compilation == 1]
    assert len(backward) == 1
    assert any(text.startswith("1 backward had to be compiled as well: ") for text in cause.followed)
    assert cause.seconds == pytest.approx(spent(read, *cause.ids), rel=0.02)


@pytest.mark.parametrize("name", corpus.names())
def test_no_chain_costs_more_than_the_whole(name: str) -> None:
    read = recording(name)
    facts = Facts(*read.rows)
    total = sum(map(facts.seconds, range(len(read))))
    for point in read.explain().points:
        places = [facts.find(id) for id in point.ids]
        if point.kind == "recompile" and not point.failed:
            assert point.seconds == pytest.approx(sum(map(facts.seconds, dict.fromkeys(places))))
        assert point.seconds <= total * (1 + 1e-9)


def test_a_cold_start_is_one_remark_after_all_causes() -> None:
    """Two models whose methods have one name: their programs are new, and neither is a miss to be mended."""
    read = recording("training")
    points = read.explain().points
    (cold,) = (n for n, point in enumerate(points) if "found nothing in the caches" in point.text)
    assert not any(point.kind for point in points[cold:])
    assert points[cold].text.startswith("1 compilation found nothing in the caches")  # 0/1 and 0/2 are recompiles


def test_another_function_of_the_same_name_is_a_cold_start(tmp_path: Path) -> None:
    (log,) = corpus.folder("cache_detailed_first").iterdir()
    renamed = re.sub(r'("(?:co_)?name": )"(?:scale|code_differs)"', r'\1"forward"', log.read_text())
    (tmp_path / "trace.log").write_text(renamed)
    read = aotviz.read_trace(tmp_path, index=False)
    table = read.cache_misses()
    assert list(table[(table.function == "forward") & (table.cache == "aotautograd")].compilation) == ["0/0", "5/0"]
    others = [point for point in read.explain().points if "found nothing in the caches" not in point.text]
    assert "5/0" not in {id for point in others for id in point.ids}
    told = [text for one in (read, recording("cache_detailed_first")) for text in one.explain().sentences]
    assert len([text for text in told if text.startswith("8 compilations found nothing in the caches")]) == 2


def test_a_compilation_inside_another_one_is_no_cost_of_that_one(tmp_path: Path) -> None:
    inner = torch.compile(lambda x: (x.sin() * 2).cos(), backend="aot_eager")

    def backend(graph, inputs):
        inner(torch.ones(len(inputs)))
        return graph

    def program() -> None:
        torch._dynamo.reset()
        with contextlib.suppress(RuntimeError):
            torch.compile(lambda x: x * 3, backend=backend)(torch.ones(2))

    made = logged(program, tmp_path)
    facts = Facts(*made.rows)
    outer, within = facts.seconds(0), facts.seconds(1)
    assert within > 0
    assert outer == pytest.approx(spent(made, made.compilations[0].id) - within, rel=0.02)


def test_what_is_built_is_counted_in_the_code_that_inductor_writes() -> None:
    code = "add = async_compile.triton('add', '''x''')\nb = async_compile.cpp_pybinding([''])\n"
    code += "async_compile.wait(globals())"
    assert len(chains.KERNEL.findall(code)) == 2


def long(x: torch.Tensor) -> torch.Tensor:
    for _ in range(400):
        x = x.sin() + 1
    return x


def short(x: torch.Tensor) -> torch.Tensor:
    return x.cos()


@pytest.mark.parametrize(("changed", "is_little"), [(short, True), (long, False)])
def test_where_little_is_said_to_gain_the_cure_gains_little_and_elsewhere_more(
    changed: object, is_little: bool
) -> None:
    """The cure of a dtype that changes is followed: the second call passes what the first one did."""

    def recorded(cured: bool) -> Recording:
        torch._dynamo.reset()
        functions = [torch.compile(long, backend="aot_eager"), torch.compile(short, backend="eager")]
        with aotviz.watch() as watched:
            for function in functions:
                function(torch.ones(3))
            x = torch.ones(3, dtype=torch.float64)
            functions[(long, short).index(changed)](x.to(torch.float32) if cured else x)
        return watched

    before, after = recorded(False), recorded(True)
    (point,) = (point for point in before.explain().points if point.kind == "recompile")
    assert "use one dtype" in point.fix or "float32" in point.fix
    assert ("so there is little to gain" in point.text) == is_little
    assert len(after) == len(before) - 1
    total = before.overview().seconds

    def spent(read: Recording) -> float:  # on this function: the time of the other one varies by more than the gain
        return sum(row.seconds for row in read.overview().functions.itertuples() if row.name == changed.__name__)

    cured = min(spent(after), *(spent(recorded(True)) for _ in range(2)))  # other processes run beside it
    gained = min(spent(before), *(spent(recorded(False)) for _ in range(2))) - cured
    assert (gained < chains.SMALL * total) == is_little


def printing(x: torch.Tensor) -> torch.Tensor:
    print("between")
    return x * 2


def calling(x: torch.Tensor) -> torch.Tensor:
    return printing(x) + 1


def called_with(*sizes: int) -> list[torch.Tensor]:
    return [torch.ones(size) for size in sizes]


def test_a_function_that_is_recompiled_for_a_size_of_its_callers_follows_from_that(tmp_path: Path) -> None:
    def program() -> None:
        torch._dynamo.reset()
        step = torch.compile(calling, backend="eager")
        list(map(step, called_with(4, 6)))

    points = logged(program, tmp_path).explain().points
    (cause,) = (point for point in points if point.kind == "recompile")
    assert cause.text.startswith(
        "`calling` was compiled again because dimension 0 of `x` had size 4 and now has size 6."
    )
    assert any(text.startswith("The rest of `printing` after line") for text in cause.followed)


def test_a_function_that_is_recompiled_for_another_size_than_its_callers_does_not(tmp_path: Path) -> None:
    def program() -> None:
        torch._dynamo.reset()
        step, inner = torch.compile(calling, backend="eager"), torch.compile(printing, backend="eager")
        step(torch.ones(4))
        list(map(inner, called_with(5, 7)))
        step(torch.ones(6))

    told = [point.cause for point in logged(program, tmp_path).explain().points if point.kind == "recompile"]
    assert len(told) > 1, told


def logging_inside(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        LOG.warning("between")
    return x


def resumed_early(x: torch.Tensor) -> torch.Tensor:
    return logging_inside(x * 2) + 1


def test_our_own_recording_knows_who_called_and_why_a_graph_ended_early() -> None:
    torch._dynamo.reset()
    step = aotviz.compile(resumed_early, backend="eager", cache=False)
    step(torch.ones(3))
    facts = answers.facts_of(step.recording)
    called = user_frames(facts.text(facts.data.compilations[0].stack))
    here = test_our_own_recording_knows_who_called_and_why_a_graph_ended_early.__name__
    assert [frame.function for frame in called][-2:] == [here, "resumed_early"]
    assert not any("/site-packages/torch/" in frame.file for frame in called)
    broken = next(point for point in step.recording.explain().points if point.kind == "graph break")
    assert "because a log message cannot be part of a graph" in broken.text
    assert f"logging.getLogger({__name__!r}).warning" in broken.fix


class Scaled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sin() * 2


@pytest.mark.parametrize("loops", [True, False])
def test_a_layer_that_a_graph_break_left_to_itself_recompiles_because_of_it(tmp_path: Path, loops: bool) -> None:
    scaled = Scaled()

    def step(x: torch.Tensor) -> torch.Tensor:
        made = x
        for _ in range(2):
            torch._dynamo.graph_break()  # in a loop: all of the function runs in eager
            made = scaled(made).double() if loops else scaled(x)  # in a loop, from one line
            if not loops:
                made = scaled(made.double())
        return made

    def program() -> None:
        torch._dynamo.reset()
        torch.compile(step, backend="eager")(torch.ones(3))

    told = [point for point in logged(program, tmp_path).explain().points if point.kind in ("graph break", "recompile")]
    assert "`torch._dynamo.graph_break()`" in told[0].text
    recompiled = [text for text in told[0].followed if "`forward` was compiled again because `x.dtype`" in text]
    assert (len(told), len(recompiled)) == ((2, 0) if loops else (1, 1))
