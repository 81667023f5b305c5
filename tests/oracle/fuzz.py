"""`make fuzz`: random programs, ours against torch's own, both against eager.

    python -m tests.oracle.fuzz --n 500 --seed 0                    # ours and torch's, and where they part
    python -m tests.oracle.fuzz --n 200 --candidate torch           # torch's own figures only
    python -m tests.oracle.fuzz --only 17 --seed 0                  # one program: its text and every difference
    python -m tests.oracle.fuzz --only 17 --shrink ours             # the same, made small
    python -m tests.oracle.fuzz --file bug.py                       # a text with inputs() and f(...)
    python -m tests.oracle.fuzz --table                             # the table in programs.py instead
    python -m tests.oracle.fuzz --table 'ema|moving' --show all     # a part of it, with texts and differences

The goal is an empty first list: programs on which torch equals eager and ours does not.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import logging
import re
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import torch

from .compare import CANDIDATES, Candidate, Expectation, Program, Verdict, expect, judge, ours_exists
from .modules import MODULES
from .programs import PROGRAMS
from .strategy import Drawn, from_seed, from_source, shrink

CURRENT = Path(tempfile.gettempdir()) / "aotviz-fuzz-current.py"  # the program being judged, should the process die


def worse(ours: Verdict, theirs: Verdict) -> bool:
    """Ours gets something wrong that theirs gets right, or is silently wrong where theirs raises."""
    if theirs.stopped:
        return ours.status == "wrong"
    if theirs.status == "equal":
        return ours.status != "equal"
    return not ours.problems <= theirs.problems


def cause(verdict: Verdict) -> str:
    """A short label by which failures of one cause fall together."""
    kinds = sorted({d.kind for d in verdict.differences if not d.soft})
    if kinds:
        return "wrong: " + ", ".join(kinds)
    if verdict.failure:
        words = str(verdict.failure).split(" ")
        return " ".join("#" if any(c.isdigit() for c in w) else w for w in words)[:110]
    return verdict.status + ": " + ", ".join(sorted({d.kind for d in verdict.differences}))


def report(program: Program, verdicts: dict[str, Verdict]) -> str:
    lines = [f"# program {program.name}", program.source.rstrip()]
    for name, verdict in verdicts.items():
        lines += [f"# {name}: {line}" for line in str(verdict).splitlines()]
    return "\n".join(lines) + "\n"


def judge_all(program: Program, expected: Expectation, candidates: dict[str, Candidate]) -> dict[str, Verdict]:
    return {name: judge(program, candidate, expected) for name, candidate in candidates.items()}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.oracle.fuzz", description=__doc__.split("\n")[0])
    parser.add_argument("--n", type=int, default=500, help="number of programs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0, help="first index")
    parser.add_argument("--candidate", help=f"comma list of {', '.join(CANDIDATES)} (default: ours,torch)")
    parser.add_argument("--show", default="", help="print programs with these statuses: wrong,raised,details")
    parser.add_argument("--only", type=int, help="one index, with all its differences")
    parser.add_argument("--shrink", help="with --only: make the program small while this candidate's failure stays")
    parser.add_argument("--table", nargs="?", const="", help="judge the table; a regex picks by name or tag")
    parser.add_argument("--file", type=Path, help="judge the program in this file")
    parser.add_argument("--dynamic", action="store_true", help="compile random programs with dynamic shapes")
    parser.add_argument("--json", type=Path, help="write every verdict here")
    options = parser.parse_args(arguments)
    faulthandler.enable()
    logging.disable(logging.CRITICAL)  # torch logs what it raises
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    names = (options.candidate or ("ours,torch" if ours_exists() else "torch")).split(",")
    candidates = {name: CANDIDATES[name]() for name in names}
    if options.file:
        program = from_source(options.file.stem, options.file.read_text())
        print(report(program, judge_all(program, expect(program), candidates)))
        return 0
    if options.only is not None:
        drawn = from_seed(options.seed, options.only)
        drawn = replace(drawn, program=replace(drawn.program, dynamic=options.dynamic))
        if options.shrink:
            drawn = shrunk(drawn, CANDIDATES[options.shrink]())
        print(report(drawn.program, judge_all(drawn.program, drawn.expected, candidates)))
        return 0
    if options.table is not None:
        table = MODULES if "module" in names[0] or "simplified" in names[0] else PROGRAMS
        chosen = [p for p in table.values() if re.search(options.table, f"{p.name} {' '.join(sorted(p.tags))}")]
        return sweep(options, candidates, ((p, expect(p)) for p in chosen))
    indices = range(options.start, options.start + options.n)
    drawn = (from_seed(options.seed, index) for index in indices)
    work = ((replace(d.program, dynamic=options.dynamic), d.expected) for d in drawn)
    return sweep(options, candidates, work)


def shrunk(drawn: Drawn, candidate: Candidate) -> Drawn:
    first = judge(drawn.program, candidate, drawn.expected)
    wanted = cause(first)

    def still_fails(smaller: Drawn) -> bool:
        return cause(judge(smaller.program, candidate, smaller.expected)) == wanted

    return drawn if first.status == "equal" else shrink(drawn, still_fails)


def sweep(
    options: argparse.Namespace, candidates: dict[str, Candidate], work: Iterable[tuple[Program, Expectation]]
) -> int:
    counts = {name: Counter[str]() for name in candidates}
    causes = {name: Counter[str]() for name in candidates}
    seconds = dict.fromkeys(candidates, 0.0)
    parted: list[tuple[Program, dict[str, Verdict]]] = []
    ours_name = next((n for n in candidates if n.startswith("ours")), None)
    torch_name = next((n for n in candidates if n.startswith("torch")), None)
    better = 0
    rows = []
    shown = set(filter(None, options.show.split(",")))
    began = time.monotonic()
    for program, expected in work:
        CURRENT.write_text(program.source)
        verdicts: dict[str, Verdict] = {}
        for name, candidate in candidates.items():
            t0 = time.monotonic()
            verdicts[name] = judge(program, candidate, expected)
            seconds[name] += time.monotonic() - t0
            counts[name][verdicts[name].status] += 1
            if verdicts[name].status != "equal":
                causes[name][cause(verdicts[name])] += 1
        if shown & {"all", *(v.status for v in verdicts.values())}:
            print(report(program, verdicts), flush=True)
        if ours_name and torch_name:
            if worse(verdicts[ours_name], verdicts[torch_name]):
                parted.append((program, verdicts))
            better += worse(verdicts[torch_name], verdicts[ours_name])
        judged = {n: {"status": v.status, "cause": cause(v), "text": str(v)} for n, v in verdicts.items()}
        rows.append({"program": program.name, "source": program.source, **judged})
        if sys.stderr.isatty() and len(rows) % 20 == 0:
            print(f"\r{len(rows)}", end="", file=sys.stderr)
    print(f"{len(rows)} programs, seed {options.seed}, {time.monotonic() - began:.0f} s")
    print(f"{'':16}{'equal':>8}{'details':>9}{'wrong':>7}{'raised':>8}{'ms each':>9}")
    for name, count in counts.items():
        figures = "".join(f"{count[s]:>{w}}" for s, w in (("equal", 8), ("details", 9), ("wrong", 7), ("raised", 8)))
        print(f"{name:16}{figures}{1000 * seconds[name] / max(len(rows), 1):>9.1f}")
    for name, count in causes.items():
        print(f"\n{name}, by cause:")
        for label, k in count.most_common(25):
            print(f"  {k:5} {label}")
    if ours_name and torch_name:
        print(f"\nours is right and torch is not, in part or whole: {better}")
        print(f"torch is right and ours is not: {len(parted)}{' (the goal: none)' if parted else ''}\n")
        for program, verdicts in parted:
            print(report(program, verdicts))
    if options.json:
        options.json.write_text(json.dumps({"seed": options.seed, "rows": rows}, indent=1))
    return 1 if parted else 0


if __name__ == "__main__":
    raise SystemExit(main())
