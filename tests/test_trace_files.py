"""The traces that a recording writes for other viewers: what is in them is what the recording says, times too."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as perfetto

import aotviz
from aotviz.__main__ import main
from aotviz.recording.spans import SLACK_US, Span, nested
from tests import corpus

ROUNDED_US = SLACK_US + 0.5  # what moves, and what a float of a unix time can't hold


def chrome(recording: aotviz.Recording, folder: Path, memory: bool = False) -> list[dict[str, Any]]:
    path = folder / "trace.json"
    recording.to_chrome_trace(path, memory=memory)
    events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return events


@pytest.mark.parametrize("program", ["training", "ranks", "dynamic_shapes"])
def test_the_counters_are_the_live_bytes_of_each_plan(program: str, tmp_path: Path) -> None:
    recording = aotviz.read_trace(corpus.folder(program), index=False)
    events = chrome(recording, tmp_path, memory=True)
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    planned = 0
    for pid, name in names.items():
        if not name.startswith("planned memory of "):
            continue
        planned += 1
        memory = recording[re.findall(r" \[(.*)\]", name)[0]].memory()
        counters = [event for event in events if event["ph"] == "C" and event["pid"] == pid]
        assert [sum(event["args"].values()) for event in counters] == memory.moments.alive.tolist()
        nodes = [event["name"] for event in events if event["ph"] == "X" and event["pid"] == pid]
        assert nodes == memory.moments.node.tolist()
    assert planned > 0
    assert not any(event["ph"] == "C" for event in chrome(recording, tmp_path))


def crossing(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Spans of one thread that neither contain each other nor are apart; viewers draw these wrong."""
    found = []
    for thread in {(event["pid"], event["tid"]) for event in events}:
        spans = [event for event in events if event["ph"] == "X" and (event["pid"], event["tid"]) == thread]
        around: list[dict[str, Any]] = []
        for span in sorted(spans, key=lambda span: (span["ts"], -span["dur"])):
            while around and around[-1]["ts"] + around[-1]["dur"] <= span["ts"] + 0.3:  # of a float
                around.pop()
            if around and span["ts"] + span["dur"] > around[-1]["ts"] + around[-1]["dur"] + 0.3:
                found.append((around[-1]["name"], span["name"]))
            around.append(span)
    return found


@pytest.mark.parametrize("program", [name for name in corpus.names() if not name.startswith("exports")])  # not timed
def test_every_event_of_a_log_is_a_span_with_its_times_and_none_cross(program: str, tmp_path: Path) -> None:
    recording = aotviz.read_trace(corpus.folder(program), index=False)
    events = chrome(recording, tmp_path)
    spans = sorted((event["name"], event["ts"], event["dur"]) for event in events if event["ph"] == "X")
    table = recording.events
    table = table[~((table.duration_us == 0) & table.name.str.contains("_cache_(?:hit|miss|bypass)$"))]
    said = sorted(zip(table.name, table.start_us, table.duration_us, strict=True))
    assert [name for name, *_ in spans] == [name for name, *_ in said]
    assert len(spans) > 20
    for (name, start, took), (_, start_us, duration_us) in zip(spans, said, strict=True):
        assert (name, start) == (name, pytest.approx(start_us, abs=ROUNDED_US))
        assert (name, start + took) == (name, pytest.approx(start_us + duration_us, abs=ROUNDED_US))
    assert crossing(events) == []


def test_a_rank_is_a_process_and_a_lookup_is_a_mark_of_its_rank(tmp_path: Path) -> None:
    recording = aotviz.read_trace(corpus.folder("ranks"), index=False)
    events = chrome(recording, tmp_path)
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {0: "rank 0", 1: "rank 1"}
    marks = Counter((event["pid"], event["name"]) for event in events if event["ph"] == "i")
    lookups = recording.cache_lookups
    said = Counter((rank, f"cache {outcome}") for rank, outcome in zip(lookups["rank"], lookups.outcome, strict=True))
    assert marks == said
    for event in events:
        if event["ph"] == "X" and "compilation" in event["args"]:
            assert event["args"]["compilation"].startswith(f"rank {event['pid']}: ")


def test_restarts_breaks_and_failures_are_marks(tmp_path: Path) -> None:
    breaks = aotviz.read_trace(corpus.folder("graph_breaks"), index=False)
    events = chrome(breaks, tmp_path)
    found = Counter(event["name"] for event in events if event["ph"] == "i")
    restarted, failures = breaks.metrics.texts.map(_restarted).sum(), (breaks.metrics.fail_type != "").sum()
    assert found == {"graph break": len(breaks.graph_breaks), "restart": restarted, "failure": failures}
    reasons = {reason for texts in breaks.metrics.texts for reason in json.loads(texts.get("restart_reasons") or "[]")}
    for event in events:
        if event["name"] == "restart":
            assert event["args"]["reason"]
            assert any(reason.startswith(event["args"]["reason"]) for reason in reasons)
    first = next(event for event in events if event["name"] == "graph break")
    assert "corpus/graph_breaks.py" in first["args"]["place"]
    errors = aotviz.read_trace(corpus.folder("errors"), index=False)
    failed = [event for event in chrome(errors, tmp_path) if event["name"] == "failure"]
    assert len(failed) == (errors.metrics.fail_type != "").sum() > 0
    assert all(event["args"]["reason"] for event in failed)


def _restarted(texts: dict[str, str]) -> int:
    return len(json.loads(texts.get("restart_reasons") or "[]") or [])


def test_a_recording_of_ours_has_its_stages(tmp_path: Path) -> None:
    torch._dynamo.reset()
    compiled = aotviz.compile(lambda x, w: (x * w).sin(), backend="eager")
    compiled(torch.ones(4), torch.ones(4, requires_grad=True)).sum().backward()
    events = chrome(compiled.recording, tmp_path)
    (data,) = compiled.recording.data.compilations
    spans = {event["name"]: event for event in events if event["ph"] == "X"}
    assert list(spans) == [f"{data.id} · {data.name}", *(stage.name for stage in data.stages)]
    for stage in data.stages:
        assert spans[stage.name]["ts"] * 1e3 == pytest.approx(data.started_unix_ns + stage.started_ns, abs=1500)
        assert spans[stage.name]["dur"] * 1e3 == pytest.approx(stage.elapsed_ns, abs=2500)
    assert crossing(events) == []


@pytest.mark.parametrize("program", ["ranks", "graph_breaks", "training"])
def test_perfettos_own_decoder_finds_the_same_spans(program: str, tmp_path: Path) -> None:
    recording = aotviz.read_trace(corpus.folder(program), index=False)
    path = tmp_path / "trace.pftrace"
    recording.to_perfetto(path)
    trace = perfetto.Trace.FromString(path.read_bytes())
    tracks = {packet.track_descriptor.uuid: packet.track_descriptor for packet in trace.packet}
    around: dict[int, list[tuple[str, int]]] = {}
    spans, marks = [], Counter[tuple[str, str]]()
    for packet in trace.packet:
        event = packet.track_event
        track = tracks[event.track_uuid] if event.track_uuid else None
        if track is None:
            continue
        process = tracks[track.parent_uuid].process.process_name
        if event.type == event.TYPE_SLICE_BEGIN:
            around.setdefault(track.uuid, []).append((event.name, packet.timestamp))
        elif event.type == event.TYPE_SLICE_END:
            name, start = around[track.uuid].pop()
            spans.append((process, name, start, packet.timestamp))
        else:
            marks[process, event.name] += 1
    events = chrome(recording, tmp_path)
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    said = sorted(
        (names[e["pid"]], e["name"], round(e["ts"] * 1e3), round((e["ts"] + e["dur"]) * 1e3))
        for e in events
        if e["ph"] == "X"
    )
    assert [span[:2] for span in sorted(spans)] == [span[:2] for span in said]
    for one, other in zip(sorted(spans), said, strict=True):
        assert one[2:] == pytest.approx(other[2:], abs=1000)  # a float of JSON
    assert marks == Counter((names[e["pid"]], e["name"]) for e in events if e["ph"] == "i")
    assert not any(around.values())
    annotation = {a.name: a.string_value for packet in trace.packet for a in packet.track_event.debug_annotations}
    assert annotation["compilation"] in [compilation.id for compilation in recording.compilations]


def test_spans_that_overlap_are_on_two_tracks_and_one_without_an_end_holds_what_follows() -> None:
    spans = [Span("open", 0, -1, {}), Span("a", 10, 20, {}), Span("b", 20, 20, {}), Span("c", 41, 5, {})]
    assert [[span.name for span, *_ in track] for track in nested(spans)] == [["open", "a", "c"], ["b"]]


def test_the_command_writes_the_format_of_the_name_and_over_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = str(corpus.folder("ranks"))
    for name in ("trace.json", "trace.json.gz", "trace.pftrace"):
        assert main(["trace", source, "-o", str(tmp_path / name)]) == 0
    plain = json.loads((tmp_path / "trace.json").read_text())
    assert json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes())) == plain
    assert len(perfetto.Trace.FromString((tmp_path / "trace.pftrace").read_bytes()).packet) > 800
    assert main(["trace", source, "-o", str(tmp_path / "trace.json")]) == 2
    assert "give the trace another name with -o, or --force" in capsys.readouterr().err


def test_a_recording_without_times_says_so(tmp_path: Path) -> None:
    with aotviz.record() as nothing:
        pass
    with pytest.raises(aotviz.RecordingError, match="contains no times"):
        nothing.to_chrome_trace(tmp_path / "trace.json")
    assert not list(tmp_path.iterdir())
