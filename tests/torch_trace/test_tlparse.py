"""Our counts are tlparse's on every log of the corpus: two programs that share nothing read the same from it."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import aotviz
from tests import corpus

TLPARSE = Path(sys.executable).parent / "tlparse"
PAGE = re.compile(r"(?P<name>.+?)(?:_\d+)?\.(?:txt|json|html)")
NUMBERED = ("inductor_output_code", "optimize_ddp_split_child")  # what tlparse puts a name behind


def rendered(log: Path, out: Path) -> Path:
    command = [str(TLPARSE), str(log), "-o", str(out), "--overwrite", "--no-browser"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return out


def theirs(out: Path) -> Counter[tuple[str, int, str]]:
    """(compile id, attempt, what) -> how often, of everything that tlparse made a page of."""
    counts: Counter[tuple[str, int, str]] = Counter()
    for key, entry in json.loads((out / "compile_directory.json").read_text()).items():
        compile_id, _, attempt = key.strip("[]").partition("_")
        compile_id = compile_id.removesuffix("/-/-").replace("-/-", "")
        for page in entry["artifacts"]:
            name = PAGE.fullmatch(Path(page["url"]).name)["name"]
            name = next((prefix for prefix in NUMBERED if name.startswith(prefix)), name)
            if compile_id and not name.startswith("eval_with_key"):
                counts[compile_id, int(attempt or 0), name] += 1
    return counts


def ours(recording: aotviz.Recording) -> Counter[tuple[str, int, str]]:
    counts: Counter[tuple[str, int, str]] = Counter()
    found = [one for one in recording if one.kind != "export"]  # tlparse takes the captures of strict exports for 0/0
    ids = {one.id: one.compile_id for one in found if one.compile_id[-1].isdigit() and "/" in one.compile_id}
    ids |= {one.id: one.compile_id for one in found if one.compile_id.startswith("!")}
    for row in recording.artifacts.itertuples():
        counts[ids.get(row.compilation, ""), row.attempt, row.name if row.type == "artifact" else row.type] += 1
    for row in recording.cache_lookups.itertuples():
        cache = {"fx": "fx_graph", "fx bundled": "fx_graph_bundled"}.get(row.cache, row.cache)
        counts[ids.get(row.compilation, ""), row.attempt, f"{cache}_cache_{row.outcome}"] += 1
    for row in recording.metrics.itertuples():
        name = {"compilation": "", "backward": "bwd_"}[row.kind]
        counts[ids.get(row.compilation, ""), row.attempt, f"{name}compilation_metrics"] += 1
    return Counter({key: count for key, count in counts.items() if key[0] and key[2] != "dump_file"})


@pytest.mark.parametrize("log", corpus.logs(), ids=lambda log: f"{log.parent.name}/{log.stem[-8:]}")
def test_counts_are_tlparses(log: Path, tmp_path: Path) -> None:
    recording = aotviz.read_trace(log, index=False)
    out = rendered(log, tmp_path / "out")
    assert ours(recording) == theirs(out)
    assert {key[0] for key in theirs(out) if key[0] != "-/-"} <= {compilation.compile_id for compilation in recording}

    failures = html.unescape((out / "failures_and_restarts.html").read_text())
    failed = recording.metrics[recording.metrics.fail_type != ""]
    restarts = [json.loads(texts["restart_reasons"]) for texts in recording.metrics.texts if "restart_reasons" in texts]
    assert len(re.findall(r"<tr>\s*<td>", failures)) == len(failed) + sum(map(len, restarts))
    for kind in set(failed.fail_type):
        assert kind in failures


def test_a_count_that_differs_is_seen(tmp_path: Path) -> None:
    """So that the comparison above can fail: a log without its last graph break is another log."""
    log = corpus.folder("graph_breaks") / "dedicated_log_torch_trace_0.log"
    whole = ours(aotviz.read_trace(log, index=False))
    lines = log.read_bytes().splitlines(keepends=True)
    last = max(number for number, line in enumerate(lines) if b"dynamo_graph_break_reason" in line[:400])
    (tmp_path / "less.log").write_bytes(b"".join([*lines[:last], b"broken\n", *lines[last + 1 :]]))
    assert whole - ours(aotviz.read_trace(tmp_path / "less.log", index=False))
