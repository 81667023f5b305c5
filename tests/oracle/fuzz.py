"""`make fuzz`: random programs, ours against torch's own, both against eager.

    python -m tests.oracle.fuzz --n 500 --seed 0                    # ours and torch's, and where they part
    python -m tests.oracle.fuzz --n 500 --small                     # the same, each cause as two small programs
    python -m tests.oracle.fuzz --n 200 --candidate torch           # torch's own figures only
    python -m tests.oracle.fuzz --only 17 --seed 0                  # one program: its text and every difference
    python -m tests.oracle.fuzz --only 17 --shrink ours             # the same, made small
    python -m tests.oracle.fuzz --file bug.py                       # a text with inputs() and f(...)
    python -m tests.oracle.fuzz --n 2500 --start 2500 --candidate ours,ours-backend --json b.jsonl  # resumes
    python -m tests.oracle.fuzz --sum a.jsonl b.jsonl --candidate ours,ours-backend  # what the pieces give together
    python -m tests.oracle.fuzz --sum a.jsonl --modes --page "Random programs"  # the same, into docs/programs.md too
    python -m tests.oracle.fuzz --n 300 --modes --candidate ours-backend  # with modes, graph breaks, memory budgets
    python -m tests.oracle.fuzz --table                             # the table in programs.py instead
    python -m tests.oracle.fuzz --table 'ema|moving' --show all     # a part of it, with texts and differences

The goal is an empty first list: programs on which torch equals eager and ours does not.
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import re
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from aotviz.ir.refusals import rule_named_in

from . import fuzz_page, special_cases
from .compare import CANDIDATES, Candidate, Expectation, Trial, Verdict, expect, judge
from .fuzz_report import COLUMNS, DYNAMOS_OWN, figures
from .modules import MODULES
from .programs import PROGRAMS
from .progress import Log, Row, finished, run_children
from .strategy import Drawn, from_seed, from_source, shrink

Work = tuple[Trial, Expectation, Drawn | None]

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


def report(program: Trial, verdicts: dict[str, Verdict]) -> str:
    lines = [f"# program {program.name}", program.source.rstrip()]
    for name, verdict in verdicts.items():
        lines += [f"# {name}: {line}" for line in str(verdict).splitlines()]
    return "\n".join(lines) + "\n"


def judge_all(program: Trial, expected: Expectation, candidates: dict[str, Candidate]) -> dict[str, Verdict]:
    return {name: judge(program, candidate, expected) for name, candidate in candidates.items()}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.oracle.fuzz", description=__doc__.split("\n")[0])
    parser.add_argument("--n", type=int, default=500, help="number of programs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0, help="first index")
    parser.add_argument("--candidate", help=f"comma list of {', '.join(CANDIDATES)} (default: ours,torch)")
    parser.add_argument("--show", default="", help=f"print programs that are: {','.join(COLUMNS)}")
    parser.add_argument("--only", type=int, help="one index, with all its differences")
    parser.add_argument("--shrink", help="with --only: make the program small while this candidate's failure stays")
    parser.add_argument("--table", nargs="?", const="", help="judge the table; a regex picks by name or tag")
    parser.add_argument("--file", type=Path, help="judge the program in this file")
    parser.add_argument("--small", action="store_true", help="make the programs on which only torch is right small")
    parser.add_argument("--dynamic", action="store_true", help="compile random programs with dynamic shapes")
    parser.add_argument("--deep", action="store_true", help="with gradient hooks and second differentiations")
    more = "with modes and graph breaks, random numbers, parts of what is written, memory budgets"
    parser.add_argument("--modes", action="store_true", help=more)
    parser.add_argument("--json", type=Path, help="a line of JSON a program; an existing file is gone on with")
    parser.add_argument("--sum", type=Path, nargs="+", help="the figures of such files together; runs nothing")
    parser.add_argument("--page", help="with --sum: write the figures below this heading of docs/programs.md, too")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    names = (options.candidate or "ours,torch").split(",")
    candidates = {name: CANDIDATES[name]() for name in names}
    if options.sum:
        rows = [row for path in options.sum for row in finished(path).values()]
        if options.page:
            given = {"--dynamic": options.dynamic, "--deep": options.deep, "--modes": options.modes}
            fuzz_page.write(options.page, rows, names, " ".join(flag for flag, on in given.items() if on))
        return figures(rows, names)
    if options.file:
        program = from_source(options.file.stem, options.file.read_text())
        print(report(program, judge_all(program, expect(program), candidates)))
        return 0
    if options.only is not None:
        drawn = from_seed(options.seed, options.only, options.deep, options.modes)
        drawn = replace(drawn, program=replace(drawn.program, dynamic=options.dynamic))
        if options.shrink:
            drawn = shrunk(drawn, CANDIDATES[options.shrink]())
        print(report(drawn.program, judge_all(drawn.program, drawn.expected, candidates)))
        return 0
    if options.table is not None:
        table = MODULES if "module" in names[0] or "simplified" in names[0] else PROGRAMS
        chosen = [p for p in table.values() if re.search(options.table, f"{p.name} {' '.join(sorted(p.tags))}")]
        return figures(sweep(options, candidates, ((p, expect(p), None) for p in chosen)), names)
    if options.json and not options.child:  # a program that ends its process is noted, and passed by
        given = list(sys.argv[1:] if arguments is None else arguments)
        code = run_children("tests.oracle.fuzz", given)
        return code if code < 0 else figures(list(finished(options.json).values()), names)
    rows = sweep(options, candidates, drawn_programs(options))
    return 0 if options.child else figures(rows, names)


def drawn_programs(options: argparse.Namespace) -> Iterator[Work]:
    """The programs that are not in the file yet. Each is noted before it is drawn, which may end the process too."""
    known = finished(options.json) if options.json else {}
    for index in range(options.start, options.start + options.n):
        key = f"{options.seed}:{index}"
        if key not in known:
            if options.json:
                Log(options.json).add({"key": key, "started": True})
            drawn = from_seed(options.seed, index, options.deep, options.modes)
            yield replace(drawn.program, dynamic=options.dynamic), drawn.expected, drawn


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


def sweep(options: argparse.Namespace, candidates: dict[str, Candidate], work: Iterable[Work]) -> list[Row]:
    """Judge every program. Prints those that --show asks for, and those on which only torch is right."""
    names = list(candidates)
    ours = next((n for n in names if n.startswith("ours")), None)
    theirs = next((n for n in names if n.startswith("torch")), None)
    shown = set(filter(None, options.show.split(",")))
    log = Log(options.json) if options.json else None
    told: Counter[str] = Counter()
    rows: list[Row] = []
    for program, expected, drawn in work:
        CURRENT.write_text(program.source)
        verdicts: dict[str, Verdict] = {}
        row: Row = {"key": program.name, "source": program.source}
        for name, candidate in candidates.items():
            began = time.monotonic()
            with special_cases.noted() as met:
                verdict = verdicts[name] = judge(program, candidate, expected)
            stands = standing(program, candidate, verdict, expected)
            row[name] = entry(verdict, stands, sorted(met), time.monotonic() - began)
        if ours and theirs:
            row["parted"] = only_theirs_right(verdicts[ours], verdicts[theirs])
            row["better"] = only_theirs_right(verdicts[theirs], verdicts[ours])
        rows.append(row)
        if log:
            log.add(row)
        if shown & {"all", *(row[name]["standing"] for name in names)}:
            print(report(program, verdicts), flush=True)
        elif row.get("parted"):
            told[cause(verdicts[ours])] += 1
            if drawn is None or not options.small:
                print(report(program, verdicts), flush=True)
            elif told[cause(verdicts[ours])] <= 2:
                print(small_report(drawn, options.dynamic, ours, theirs), flush=True)
        if sys.stderr.isatty() and len(rows) % 20 == 0:
            print(f"\r{len(rows)}", end="", file=sys.stderr)
    return rows


DYNAMO_FAILS = "Dynamo fails"  # how aotviz names the reason; the rest of it is Dynamo's


def standing(program: Trial, candidate: Candidate, verdict: Verdict, expected: Expectation) -> str:
    """The verdict's status, in the words of `fuzz_report.COLUMNS`.

    What is not right behind Dynamo is judged once more with torch's backend "eager", which runs what Dynamo captured
    as it is: where that is as wrong, Dynamo captured the program wrongly.
    """
    if verdict.status in ("equal", "details"):
        return verdict.status
    if candidate.name.startswith("torch.compile/") and candidate.name != "torch.compile/eager":
        captured = judge(program, CANDIDATES["dynamo-eager"](), expected)
        if captured.status in ("wrong", "raised") and not worse(verdict, captured):
            return DYNAMOS_OWN
    if verdict.status == "raised":
        return "refused" if all(failure.refusal for _, failure in verdict.failures) else "error"
    return verdict.status


def _without_rule(warning: str) -> str:
    return DYNAMO_FAILS if DYNAMO_FAILS in warning else warning[:80]


def entry(verdict: Verdict, stands: str, met: Sequence[str], seconds: float) -> Row:
    """What a row says of one candidate. `met`: the special cases."""
    refusals = sorted({failure.refusal for _, failure in verdict.failures if failure.refusal})
    said = {"cause": cause(verdict), "text": str(verdict), "refusals": refusals}
    in_eager = sorted({rule_named_in(warning) or _without_rule(warning) for warning in verdict.in_eager})
    return {"standing": stands, **said, "in_eager": in_eager, "met": [*met], "seconds": seconds}


if __name__ == "__main__":
    faulthandler.enable()
    logging.disable(logging.CRITICAL)  # torch logs what it raises
    raise SystemExit(main())
