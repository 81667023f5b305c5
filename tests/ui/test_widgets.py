"""The Python side of the front end, without a browser."""

from __future__ import annotations

import base64
import gzip
import json
import re
import subprocess
import sys
from typing import Any

import msgspec
import pytest
import torch

import aotviz
from aotviz.reading.recording import Recording
from aotviz.recording import files
from aotviz.widgets import bookmarks, packing, parts, replies, summary, workbench
from aotviz.widgets.html import to_html
from aotviz.widgets.workbench import Workbench
from tests import corpus
from tests.ui.fixture import MARKUP, MEMORY, PAGE, PARTS, ROOT, TARGET, packed_parts, planned_memory, recording


def test_the_typescript_types_are_those_of_events_py() -> None:
    generator = ROOT / "extensions" / "core" / "generate_types.py"
    result = subprocess.run([sys.executable, generator, "--check"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_fixture_of_the_typescript_tests_is_current() -> None:
    kept = files.read(TARGET)
    assert kept == msgspec.structs.replace(recording().data, overview=None), "run python -m tests.ui.fixture"


def test_the_page_of_the_typescript_tests_is_current() -> None:
    kept = gzip.decompress(PAGE.read_bytes())
    assert kept == gzip.decompress(packing.pack(recording().data)), "run python -m tests.ui.fixture"
    tree = msgspec.msgpack.decode(kept)  # what the TypeScript tests are to undo is in it
    assert isinstance(tree["strings"], str)
    assert any(isinstance(value, int) for one in tree["compilations"] for value in one["values"])
    assert any(
        isinstance(args, int) for one in tree["compilations"] for graph in one["graphs"] for args in graph["args"]
    )


def test_a_text_with_a_nul_leaves_the_texts_of_a_page_apart() -> None:
    data = recording().data
    odd = msgspec.structs.replace(data, strings=[*data.strings, "a\0b"])
    assert msgspec.msgpack.decode(gzip.decompress(packing.pack(odd)))["strings"] == odd.strings


def test_the_parts_of_the_typescript_tests_are_current() -> None:
    kept = {
        question: gzip.decompress(base64.b64decode(part)) for question, part in json.loads(PARTS.read_text()).items()
    }
    assert kept == {question: gzip.decompress(part) for question, part in packed_parts().items()}, (
        "run python -m tests.ui.fixture"
    )


def test_the_plans_of_memory_of_the_typescript_tests_are_current() -> None:
    kept, made = json.loads(MEMORY.read_text()), json.loads(json.dumps(planned_memory()))
    assert kept == made, "run python -m tests.ui.fixture"


def test_the_widgets_import_no_torch() -> None:
    code = "import sys, aotviz.widgets.html, aotviz.widgets.workbench; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


class Sent:
    """A workbench whose messages are kept instead of sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.messages: list[tuple[dict[str, Any], list[bytes]]] = []
        monkeypatch.setattr(
            Workbench, "send", lambda _, content, buffers=None: self.messages.append((content, buffers or []))
        )


def asked(monkeypatch: pytest.MonkeyPatch, what: object) -> tuple[dict[str, Any], list[bytes]]:
    sent = Sent(monkeypatch)
    widget = Workbench(recording())
    widget._answer(widget, {"ask": what, "question": "q"}, [])
    return sent.messages[-1]


@pytest.mark.parametrize("name", ["core.js", "editor.js", "graphviz.js"])
def test_the_kernel_answers_with_the_bundle_that_the_page_asks_for(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    content, buffers = asked(monkeypatch, name)
    assert content == {"answer": "q"}
    assert buffers[0][:2] == b"\x1f\x8b"


def part(monkeypatch: pytest.MonkeyPatch, kind: type[Any], *what: object) -> Any:
    _, buffers = asked(monkeypatch, list(what))
    return msgspec.msgpack.decode(gzip.decompress(buffers[0]), type=kind)


def test_the_parts_of_a_recording_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    data = recording().data
    index = part(monkeypatch, parts.RecordingIndex, "index")
    assert [head.id for head in index.compilations] == ["0", "1", "2"]
    assert [head.stages for head in index.compilations] == [15, 3, 1]
    whole = data.compilations[0]
    opened = part(monkeypatch, parts.CompilationPart, "compilation", "0")
    assert opened.compilation.saved_tensors == whole.saved_tensors
    assert opened.compilation.graphs == opened.compilation.values == []
    assert opened.graph_values == [graph.value for graph in whole.graphs]
    assert {name for stage in opened.compilation.stages for name in stage.code} == {"wrapper"}
    for number, graph in enumerate(whole.graphs):
        got = part(monkeypatch, parts.GraphPart, "graph", "0", number)
        assert got.graph == graph
        assert dict(zip(got.value_numbers, got.values, strict=True)) == {
            number: whole.values[number] for number in set(graph.value) if number >= 0
        }
        texts = dict(zip(got.text_table.numbers, got.text_table.texts, strict=True))
        assert all(texts[i] == data.strings[i] for i in (*graph.name, *graph.target))
    stage = next(i for i, stage in enumerate(whole.stages) if stage.code)
    assert part(monkeypatch, parts.CodePart, "code", "0", stage).code == whole.stages[stage].code


def test_a_part_brings_the_texts_of_its_arguments_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    got = part(monkeypatch, parts.GraphPart, "graph", "1", 0)
    assert len(got.text_table.texts) < len(recording().data.strings) / 2
    listed = set(got.text_table.numbers)
    assert {arg["r"] for args in got.graph.args for arg in args if isinstance(arg, dict) and "r" in arg} <= listed


@pytest.mark.parametrize(
    ("ask", "problem"),
    [
        ("../html.py", "neither a part of the recording nor a bundle"),
        ("page.js", "neither a part of the recording nor a bundle"),
        (7, "neither a part of the recording nor a bundle"),
        (None, "neither a part of the recording nor a bundle"),
        (["graph", "0", "1"], "neither a part of the recording nor a bundle"),
        (["compilation", "9"], "compilation 9 is no longer in the recording"),
        (["graph", "0", 99], "there is no graph 99"),
        (["code", "0", -1], "there is no stage -1"),
    ],
)
def test_the_kernel_gives_nothing_else(ask: object, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    content, buffers = asked(monkeypatch, ask)
    assert problem in content["error"]
    assert buffers == []


def test_a_page_is_told_once_that_there_is_more_and_again_after_it_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    f = aotviz.compile(lambda x: x.sin(), backend="eager")
    sent = Sent(monkeypatch)
    widget = Workbench(f.recording)
    f(torch.ones(3))
    assert sent.messages == []  # nobody looks at it
    widget._bytes_of(["index"])
    f(torch.ones(3, dtype=torch.float64))
    f(torch.ones(3, dtype=torch.float16))
    assert [content for content, _ in sent.messages] == [{"changed": True}]
    widget._bytes_of(["index"])
    aotviz.compile(lambda x: x.cos(), backend="eager")(torch.ones(3))  # of another recording
    assert len(sent.messages) == 1
    f(torch.ones(3, dtype=torch.int32))
    assert len(sent.messages) == 2
    widget.close()
    widget._told = False
    f(torch.ones(3, dtype=torch.bool))
    assert len(sent.messages) == 2


def test_the_index_tells_a_compilation_that_grew_from_one_that_did_not() -> None:
    f = aotviz.compile(lambda x: (x * x).sum(), backend="eager")
    loss = f(torch.ones(3, requires_grad=True))
    f(torch.ones(3))
    before = parts.index(f.recording).compilations
    assert parts.index(f.recording).compilations == before
    loss.backward()
    after = parts.index(f.recording).compilations
    assert after[0].revision != before[0].revision
    assert after[1:] == before[1:]


def test_what_is_synced_stays_small() -> None:
    state = Workbench(recording()).get_state()
    assert len(state["_esm"]) < 4000
    assert "compilations" not in str(state)


def test_a_recording_is_shown_at_a_view_and_a_stage() -> None:
    shown = Recording(recording().data).show("Saved tensors", stage="partition", graph="backward")
    bundle = shown._repr_mimebundle_()
    assert bundle is not None
    held = bundle[1][workbench.KEPT]["bookmark"]
    assert held == {"view": "saved", "compilation": "0", "stage": "partition", "role": "backward", "paintings": "0"}


def test_a_recording_is_shown_with_graphs_beside_each_other() -> None:
    shown = Recording(recording().data)
    beside = shown.show("graph", stage="trace", beside=["decompose", ("partition", "forward")]).bookmark["beside"]
    assert json.loads(beside) == [{"stage": "decompose"}, {"stage": "partition", "role": "forward"}]
    beside = shown.show("graph", stage="trace", beside=[shown["1"]]).bookmark["beside"]
    assert json.loads(beside) == [{"compilation": "1"}]


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ({"beside": ["cut"]}, "no stage 'cut'. Stages: ["),
        ({"beside": [("partition", "joint")]}, "stage 'partition' has ['backward', 'forward']"),
        ({"beside": ["trace", "trace", "trace"]}, "beside has 3 graphs; at most 2 are drawn"),
        ({"view": "weights"}, "no view 'weights'; the workbench has side by side, code, diff"),
        ({"stage": "cut"}, "no stage 'cut'. Stages: ["),
        ({"stage": "partition", "graph": "joint"}, "stage 'partition' has ['backward', 'forward']"),
        ({"graph": "joint"}, "a graph needs a stage"),
        ({"compilation": "9/9"}, "no compilation '9/9'"),
    ],
)
def test_a_place_that_does_not_exist_is_named(place: dict[str, Any], says: str) -> None:
    with pytest.raises((ValueError, LookupError), match=re.escape(says)):
        Recording(recording().data).show(**place)


def test_the_names_of_views_are_the_texts_of_the_tabs() -> None:
    views = {}
    for path in (ROOT / "extensions/core/src/views").glob("*/index.ts"):
        source = path.read_text(encoding="utf-8")
        if found := re.search(r'^  id: "(\w+)",\n  title: "([^"]+)"', source, re.MULTILINE):
            views[found[2].lower()] = found[1]
    assert views == bookmarks.VIEWS


def test_a_frontend_without_widgets_gets_a_summary() -> None:
    bundle = Workbench(recording())._repr_mimebundle_()
    assert bundle is not None
    data = bundle[0]
    assert re.search(r"(?m)^  partition +9\.12  forward 24, backward 32  Cut into", data["text/plain"])
    assert "<td>partition</td>" in data["text/html"]
    assert MARKUP not in data["text/html"]
    assert "&lt;img src=x" in data["text/html"]


def test_the_page_is_closed_to_the_network_and_holds_no_name_as_markup() -> None:
    page = to_html(recording().data)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy[1].replace("wasm-unsafe-eval", "")
    assert MARKUP not in page
    assert not re.search(r'(?:src|href)="', page)


def test_an_empty_recording_has_a_summary() -> None:
    empty = msgspec.structs.replace(recording().data, compilations=[])
    assert summary.as_text(empty) == "aotviz recording: nothing was compiled"
    assert "nothing was compiled" in summary.as_html(empty)
    assert summary.title(empty) == "empty recording · aotviz"


def test_the_kernel_cuts_a_live_functions_graph_again() -> None:
    f = aotviz.compile(lambda x: x.sin().cos().sum(), backend="eager")
    f(torch.ones(3, requires_grad=True))
    answer = Workbench(f.recording)._bytes_of(["what if", "0", "default_partition", 1])
    part = msgspec.msgpack.decode(gzip.decompress(answer), type=parts.CompilationPart)
    assert len(part.compilation.saved_tensors) == 2
    assert len(f.recording[0].saved_tensors) == 1


def test_a_cut_tells_its_stages_and_ends_before_the_next_when_it_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    f = aotviz.compile(lambda x: x.sin().cos().sum(), backend="eager")
    f(torch.ones(3, requires_grad=True))
    sent = Sent(monkeypatch)
    widget = Workbench(f.recording)
    ask = {"ask": ["what if", "0", "default_partition", 1], "question": "q"}
    widget._answer(widget, ask, [])
    assert [content.get("stage") for content, _ in sent.messages] == [
        "partition",
        "saved hooks",
        "donated buffers",
        None,
    ]
    del sent.messages[:]
    widget._answer(widget, {"cancel": "q"}, [])
    widget._answer(widget, ask, [])
    assert sent.messages == [({"answer": "q", "error": "It was cancelled."}, [])]
    widget._answer(widget, ask, [])  # asked anew, it is done
    assert "error" not in sent.messages[-1][0]


def test_another_cut_waits_for_the_main_shell() -> None:
    routed: dict[str, Any] = {}

    class Comm:
        def __setattr__(self, name: str, value: Any) -> None:
            routed[name] = value

    replies.answer_where_asked(Comm(), workbench._is_what_if)
    route = routed[replies.ROUTE]
    assert route({"method": "custom", "content": {"ask": ["what if", "0", "", 1], "question": "q"}}, "subshell") is None
    assert route({"method": "custom", "content": {"ask": ["index"], "question": "q"}}, "subshell") == "subshell"
    assert route({"method": "custom", "content": {"cancel": "q"}}, "subshell") == "subshell"
    assert route(None, "subshell") == "subshell"


def test_why_a_recording_from_a_file_can_not_be_cut_again_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = Sent(monkeypatch)
    widget = Workbench(recording())
    widget._answer(widget, {"ask": ["what if", "0", "", 0.5], "question": "q"}, [])
    assert "with its own partitioner: name another one" in sent.messages[-1][0]["error"]


def test_a_compilation_of_torchs_brings_what_it_found_in_caches_with_the_texts_for_it() -> None:
    logged = aotviz.read_trace(corpus.folder("cache_second"))
    part = parts.compilation(logged, logged[0].id)
    hit = part.cache_lookups[0]
    assert [(one.cache, one.outcome) for one in part.cache_lookups] == [("fx", "hit"), ("aotautograd", "hit")]
    texts = dict(zip(part.text_table.numbers, part.text_table.texts, strict=True))
    assert int(texts[hit.fields["time_saved_ns"]]) > 1_000_000_000
    assert hit.components == []  # they may be long, and nobody looks at them there
