"""A seeded subset of `make sweep-ops`: one sample of every twelfth op_db op, or 48th, forward and backward."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from tests.oracle import sweep_ops
from tests.tiers import slow

CHOSEN = {sweep_ops.name_of(op): op for op in sweep_ops.chosen_ops(every=12, seed=0)}


@pytest.mark.parametrize("name", [slow(name) if k % 4 else name for k, name in enumerate(CHOSEN)])
def test_ours_passes_an_op_that_torch_passes(name):
    if CHOSEN[name].name in sweep_ops.LEFT_OUT:
        pytest.skip(sweep_ops.LEFT_OUT[CHOSEN[name].name])
    for _, program in sweep_ops.Samples(CHOSEN[name], limit=1):
        if isinstance(program, str):
            pytest.skip(program)
        row = sweep_ops.judge_sample(program, ["ours", "torch"])
        if "skipped" in row:
            pytest.skip(row["skipped"])
        assert not row["worse"], row["ours"]["text"]


def test_the_subset_is_one_op_in_twelve():
    assert len(sweep_ops.chosen_ops()) // 12 <= len(CHOSEN) <= len(sweep_ops.chosen_ops()) // 12 + 1


def test_a_sample_that_was_started_and_never_finished_counts_as_crashed(tmp_path):
    log = tmp_path / "sweep.jsonl"
    rows = [{"key": "add#0", "started": True}, {"key": "add#0", "ms": 1}, {"key": "add#1", "started": True}]
    log.write_text("\n".join(map(json.dumps, rows)) + '\n{"key": "half')
    assert sweep_ops.finished(log) == {"add#0": {"key": "add#0", "ms": 1}, "add#1": {"key": "add#1", "crashed": True}}


def test_a_case_that_takes_too_long_ends_the_process_and_is_known(tmp_path):
    log = tmp_path / "sweep.jsonl"
    lines = ["import pathlib, signal, sys", "from tests.oracle.progress import Log"]
    lines += ["log = Log(pathlib.Path(sys.argv[1]))", "log.judge('quick', dict, limit_s=1)"]
    lines += ["log.judge('endless', signal.pause, limit_s=1)"]
    ended = subprocess.run([sys.executable, "-c", "\n".join(lines), str(log)], check=False)
    assert ended.returncode == -signal.SIGALRM
    crashed = {"key": "endless", "crashed": True, "limit_s": 1}
    assert sweep_ops.finished(log) == {"quick": {"key": "quick"}, "endless": crashed}


@pytest.mark.slow
def test_two_processes_share_a_sweep_and_it_goes_on_where_it_stopped(tmp_path, capsys):
    log = tmp_path / "sweep.jsonl"
    arguments = ["--out", str(log), "--op", "^(add|neg)$", "--samples", "1", "--candidate", "eager"]
    assert sweep_ops.main([*arguments, "--processes", "2"]) == 0
    first = log.read_text()
    assert "2 ops, 2 samples, 2 judged" in capsys.readouterr().out
    assert sweep_ops.main(arguments) == 0
    assert log.read_text() == first


def test_copies_keep_strides_offsets_and_sharing():
    torch = sweep_ops.torch
    base = torch.arange(6.0)
    given = [base[1:].requires_grad_(False), base[::2], base.reshape(2, 3).t()]
    made = sweep_ops.copies([*given, given[0]])
    assert made[0] is made[3]
    assert [t.stride() for t in made[:3]] == [t.stride() for t in given]
    assert made[0].untyped_storage()._cdata == made[1].untyped_storage()._cdata
    assert made[0].untyped_storage()._cdata != base.untyped_storage()._cdata
    assert all(torch.equal(a, b) for a, b in zip(made, given, strict=False))
