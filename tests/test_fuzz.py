"""Random programs: a fixed set by seed, and Hypothesis, derandomised, which also shrinks what it finds.

`make fuzz N=2000` runs more of them; `python -m tests.oracle.fuzz --only 17` shows one.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from aotviz.ir.refusals import Refused
from tests.oracle import compare, fuzz, fuzz_page
from tests.oracle.compare import judge
from tests.oracle.fuzz import report, worse
from tests.oracle.progress import finished
from tests.oracle.strategy import from_seed, from_source, programs
from tests.tiers import slow

SEED = 20
BATCH = 25


def check(drawn) -> None:
    ours = judge(drawn.program, compare.ours_aot(), drawn.expected)
    if ours.status == "equal":
        return
    assert ours.status != "wrong", report(drawn.program, {"ours": ours})
    theirs = judge(drawn.program, compare.torch_aot(), drawn.expected)
    assert not worse(ours, theirs), report(drawn.program, {"ours": ours, "torch": theirs})


@pytest.mark.parametrize("start", [0, *map(slow, range(BATCH, 150, BATCH))])
def test_ours_equals_eager_on_random_programs_wherever_torch_does(start):
    for index in range(start, start + BATCH):
        check(from_seed(SEED, index))


@pytest.mark.slow
@settings(
    max_examples=40,
    derandomize=True,
    database=None,
    deadline=None,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)
@given(programs())
def test_hypothesis_finds_no_program_on_which_only_torch_is_right(drawn):
    check(drawn)


@pytest.mark.slow
@settings(max_examples=40, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_every_drawn_program_is_deterministic_in_eager(drawn):
    verdict = judge(drawn.program, compare.eager_itself(), drawn.expected)
    assert verdict.status == "equal", report(drawn.program, {"eager": verdict})


def test_a_sweep_is_gone_on_with_and_pieces_are_summed(tmp_path, capsys):
    arguments = ["--seed", str(SEED), "--candidate", "ours", "--child"]
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    fuzz.main([*arguments, "--n", "2", "--json", str(first)])
    written = first.read_text()
    fuzz.main([*arguments, "--n", "3", "--json", str(first)])
    assert first.read_text().startswith(written)
    assert list(finished(first)) == [f"{SEED}:{k}" for k in range(3)]
    second.write_text(first.read_text().splitlines()[0].replace(f"{SEED}:0", f"{SEED}:9") + "\n")  # started, no more
    assert fuzz.main(["--candidate", "ours", "--sum", str(first), str(second)]) == 1
    out = capsys.readouterr().out
    assert "4 programs" in out
    assert f"ours, crashed:\n      1 : {SEED}:9" in out


def test_the_figures_of_a_file_are_put_below_a_heading_of_the_page(tmp_path, monkeypatch):
    page, rows = tmp_path / "page.md", tmp_path / "rows.jsonl"
    page.write_text("# Page\n\n## One\n\nAbout.\n\n| old |\n| --- |\n\nOld.\n\n## Two\n\nKept.\n")
    good = {"standing": "equal", "cause": "", "refusals": [], "in_eager": ["stale view"], "seconds": 0.1}
    bad = {**good, "standing": "wrong", "cause": "wrong: values", "in_eager": []}
    entries = [{"key": f"7:{k}", "ours": one, "ours-backend": good} for k, one in enumerate([good, good, bad])]
    rows.write_text("".join(json.dumps(one) + "\n" for one in entries))
    monkeypatch.setattr(fuzz_page, "PAGE", page)
    names = ["--candidate", "ours,ours-backend"]
    assert fuzz.main(["--sum", str(rows), *names, "--modes", "--page", "One"]) == 1
    text = page.read_text()
    assert text.startswith("# Page\n\n## One\n\nAbout.\n\n| | programs | equal |")
    assert text.endswith("\n## Two\n\nKept.\n")
    assert "Old" not in text
    assert "| old |" not in text
    assert "| aot_function | 3 | 2 (66.6 %) | 0 | 0 | 0 | 1 | 0 | 2 (66.6 %) |" in text
    assert "by rule: `stale view` 3." in text
    assert "- aot_function, wrong: 7:2 (wrong: values)" in text
    assert "`python -m tests.oracle.fuzz --modes --seed 7 --start 0 --n 3 --candidate ours,ours-backend " in text
    with pytest.raises(SystemExit, match="no heading 'Three'"):
        fuzz.main(["--sum", str(rows), *names, "--page", "Three"])


def test_what_dynamo_captures_wrongly_is_listed_apart():
    program = from_source("apart", "import torch\ndef inputs(): return (torch.ones(3),)\ndef f(x): return x * 2\n")
    expected = compare.expect(program)
    wrong = from_source("apart", "import torch\ndef inputs(): return (torch.ones(3),)\ndef f(x): return x * 3\n")
    candidate = compare.torch_compile("aotviz_eager")
    # The expectation is another program's, so torch's own backend is as wrong as ours.
    verdict = judge(wrong, candidate, expected)
    assert verdict.status == "wrong"
    assert fuzz.standing(wrong, candidate, verdict, expected) == "dynamo's own"
    ours = compare.ours_aot()
    assert fuzz.standing(wrong, ours, judge(wrong, ours, expected), expected) == "wrong"


def test_a_refusal_and_another_error_are_told_apart():
    def raising(error):
        def compile(fn, dynamic):
            raise error

        return compare.Candidate("raising", compile)

    program = from_source("error", "import torch\ndef inputs(): return (torch.ones(3),)\ndef f(x): return x * 2\n")
    expected = compare.expect(program)
    for error, column in ((Refused("NumPy inside", "x"), "refused"), (KeyError("x"), "error")):
        candidate = raising(error)
        assert fuzz.standing(program, candidate, judge(program, candidate, expected), expected) == column
