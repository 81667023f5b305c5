"""`make fuzz`: random programs, ours against torch's own, both against eager.

    python -m tests.oracle.fuzz --n 500 --seed 0                    # ours and torch's, and where they part
    python -m tests.oracle.fuzz --n 500 --small                     # the same, each cause as two small programs
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
from dataclasses import dataclass, field, replace
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
    if ours.stopped:  # a refusal is better than a wrong result
        return theirs.status != "wrong"
    if theirs.status == "equal":
        return ours.status != "equal"
    mine = ours.problems - theirs.problems
    unseen = {run for run, _ in theirs.failures}  # where theirs raised, a fact it gets wrong in other runs is excused
    also_wrong = {_fact(name) for name in theirs.problems}
    return any(name.split(": ")[0] not in unseen or _fact(name) not in also_wrong for name in mine)


def only_theirs_right(ours: Verdict, theirs: Verdict) -> bool:
    """Theirs runs, and gets something right that ours gets wrong."""
    return not theirs.stopped and worse(ours, theirs)


def _fact(name: str) -> str:
    """The name of a problem without the run in which it showed."""
    return name.partition(": ")[2]


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
    parser.add_argument("--small", action="store_true", help="make the programs on which only torch is right small")
    parser.add_argument("--dynamic", action="store_true", help="compile random programs with dynamic shapes")
    parser.add_argument("--deep", action="store_true", help="with gradient hooks and second differentiations")
    parser.add_argument("--json", type=Path, help="write every verdict here")
    options = parser.parse_args(arguments)
    faulthandler.enable()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    names = (options.candidate or ("ours,torch" if ours_exists() else "torch")).split(",")
    candidates = {name: CANDIDATES[name]() for name in names}
    if options.file:
        program = from_source(options.file.stem, options.file.read_text())
        print(report(program, judge_all(program, expect(program), candidates)))
        return 0
    if options.only is not None:
        drawn = from_seed(options.seed, options.only, options.deep)
        drawn = replace(drawn, program=replace(drawn.program, dynamic=options.dynamic))
        if options.shrink:
            drawn = shrunk(drawn, CANDIDATES[options.shrink]())
        print(report(drawn.program, judge_all(drawn.program, drawn.expected, candidates)))
        return 0
    if options.table is not None:
        table = MODULES if "module" in names[0] or "simplified" in names[0] else PROGRAMS
        chosen = [p for p in table.values() if re.search(options.table, f"{p.name} {' '.join(sorted(p.tags))}")]
        return sweep(options, candidates, ((p, expect(p), None) for p in chosen))
    drawn = (from_seed(options.seed, index, options.deep) for index in range(options.start, options.start + options.n))
    work = ((replace(d.program, dynamic=options.dynamic), d.expected, d) for d in drawn)
    return sweep(options, candidates, work)


def shrunk(drawn: Drawn, candidate: Candidate) -> Drawn:
    """The program made small while the candidate fails in the same way."""
    first = judge(drawn.program, candidate, drawn.expected)
    wanted = cause(first)

    def still_fails(smaller: Drawn) -> bool:
        return cause(judge(smaller.program, candidate, smaller.expected)) == wanted

    return drawn if first.status == "equal" else shrink(drawn, still_fails)


def small_report(drawn: Drawn, dynamic: bool, ours: str, theirs: str) -> str:
    """The program made small while ours fails in the same way and is worse than torch's."""
    candidates = {name: CANDIDATES[name]() for name in (ours, theirs)}

    def verdicts(some: Drawn) -> dict[str, Verdict]:
        return judge_all(replace(some.program, dynamic=dynamic), some.expected, candidates)

    wanted = cause(verdicts(drawn)[ours])

    def still_fails(smaller: Drawn) -> bool:
        found = verdicts(smaller)
        return cause(found[ours]) == wanted and only_theirs_right(found[ours], found[theirs])

    small = shrink(drawn, still_fails)
    return report(small.program, verdicts(small))


@dataclass
class Tally:
    """What one candidate did over many programs."""

    status: Counter[str] = field(default_factory=Counter)
    cause: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


def sweep(
    options: argparse.Namespace,
    candidates: dict[str, Candidate],
    work: Iterable[tuple[Program, Expectation, Drawn | None]],
) -> int:
    """Judge every program and print the figures; 1 if ours is wrong, or worse than torch's, anywhere."""
    tallies = {name: Tally() for name in candidates}
    ours = next((n for n in candidates if n.startswith("ours")), None)
    theirs = next((n for n in candidates if n.startswith("torch")), None)
    parted: list[tuple[Program, dict[str, Verdict], Drawn | None]] = []
    better = 0
    wrong: list[str] = []
    rows: list[dict[str, object]] = []
    shown = set(filter(None, options.show.split(",")))
    began = time.monotonic()
    for program, expected, drawn in work:
        CURRENT.write_text(program.source)
        verdicts: dict[str, Verdict] = {}
        for name, candidate in candidates.items():
            t0 = time.monotonic()
            verdict = verdicts[name] = judge(program, candidate, expected)
            tallies[name].seconds += time.monotonic() - t0
            tallies[name].status[verdict.status] += 1
            if verdict.status != "equal":
                tallies[name].cause[cause(verdict)] += 1
        if shown & {"all", *(v.status for v in verdicts.values())}:
            print(report(program, verdicts), flush=True)
        if ours and verdicts[ours].status == "wrong":
            wrong.append(program.name)
        if ours and theirs:
            if only_theirs_right(verdicts[ours], verdicts[theirs]):
                parted.append((program, verdicts, drawn))
            better += only_theirs_right(verdicts[theirs], verdicts[ours])
        judged = {n: {"status": v.status, "cause": cause(v), "text": str(v)} for n, v in verdicts.items()}
        rows.append({"program": program.name, "source": program.source, **judged})
        if sys.stderr.isatty() and len(rows) % 20 == 0:
            print(f"\r{len(rows)}", end="", file=sys.stderr)
    print(f"{len(rows)} programs, seed {options.seed}, {time.monotonic() - began:.0f} s")
    print_tallies(tallies, len(rows))
    if ours:
        print(
            f"\nours is silently wrong: {len(wrong)}{' (the goal: none)' if wrong else ''} {' '.join(wrong)}".rstrip()
        )
    if ours and theirs:
        print(f"\nours is right and torch is not, in part or whole: {better}")
        print(f"torch is right and ours is not: {len(parted)}{' (the goal: none)' if parted else ''}")
        told: Counter[str] = Counter()
        for program, verdicts, drawn in parted:
            told[cause(verdicts[ours])] += 1
            if drawn is None or not options.small:
                print("\n" + report(program, verdicts))
            elif told[cause(verdicts[ours])] <= 2:
                print("\n" + small_report(drawn, options.dynamic, ours, theirs), flush=True)
        for label, k in told.most_common():
            print(f"  {k:5} {label}")
    if options.json:
        options.json.write_text(json.dumps({"seed": options.seed, "rows": rows}, indent=1))
    return 1 if parted or wrong else 0


def print_tallies(tallies: dict[str, Tally], programs: int) -> None:
    print(f"{'':16}{'equal':>8}{'details':>9}{'wrong':>7}{'raised':>8}{'ms each':>9}")
    for name, tally in tallies.items():
        columns = (("equal", 8), ("details", 9), ("wrong", 7), ("raised", 8))
        figures = "".join(f"{tally.status[status]:>{width}}" for status, width in columns)
        print(f"{name:16}{figures}{1000 * tally.seconds / max(programs, 1):>9.1f}")
    for name, tally in tallies.items():
        print(f"\n{name}, by cause:")
        for label, k in tally.cause.most_common(25):
            print(f"  {k:5} {label}")


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # torch logs what it raises
    raise SystemExit(main())
