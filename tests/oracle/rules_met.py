"""Counts how many random programs meet each rule by which aotviz refuses, and each special case of a run.

    python -m tests.oracle.fuzz --n 300 --seed 0 --modes --candidate ours,ours-backend --json a.jsonl
    python -m tests.oracle.rules_met a.jsonl             # print the table
    python -m tests.oracle.rules_met a.jsonl --page      # write it into docs/refusals.md

What no program meets is listed too: it is there for a named program, or it may go.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from aotviz.ir.refusals import RULES

from .fuzz_page import NAMES
from .progress import Row, finished
from .special_cases import OF_A_REWRITE, OF_A_RUN, OF_CORRECTIONS

PAGE = Path(__file__).parents[2] / "docs" / "refusals.md"
TITLE = "How often random programs meet each rule"
CANDIDATES = ("ours", "ours-backend")
CASES = {**{name: text for name, (text, _) in OF_A_RUN.items()}, **OF_A_REWRITE, **OF_CORRECTIONS}


def counted(rows: Sequence[Row], *columns: str) -> list[Counter[str]]:
    """One count for each candidate: in how many programs a name is in one of these columns of a row."""
    return [
        Counter(name for row in rows for name in {n for column in columns for n in row.get(whose, {}).get(column, ())})
        for whose in CANDIDATES
    ]


def table(head: str, names: Sequence[str], counts: Sequence[Counter[str]], texts: dict[str, str]) -> list[str]:
    """The rows of what is met, the most frequent first; behind them, what is not."""
    total = {name: sum(count[name] for count in counts) for name in names}
    met = sorted((name for name in names if total[name]), key=lambda name: -total[name])
    lines = [f"| {head} | {' | '.join(NAMES[whose] for whose in CANDIDATES)} |", "| --- | --- | --- |"]
    for name in met:
        text = f": {texts[name]}" if texts[name] else ""
        lines.append(f"| `{name}`{text} | {' | '.join(str(count[name]) for count in counts)} |")
    missed = ", ".join(f"`{name}`" for name in names if not total[name])
    return [*lines, "", f"Not met: {missed}." if missed else "All are met."]


def section(rows: Sequence[Row]) -> str:
    """What the page says below the title."""
    seeds = sorted({row["key"].partition(":")[0] for row in rows})
    number = len(rows) // max(len(seeds), 1)
    command = f"python -m tests.oracle.fuzz --modes --n {number} --candidate {','.join(CANDIDATES)} --json FILE"
    lines = [
        f"How many of {len(rows)} [random programs](programs.md#random-programs), drawn with `--modes`, meet each",
        "rule. The call is refused or, under `torch.compile`, a graph runs in eager.",
        "",
        *table("rule", list(RULES), counted(rows, "refusals", "in_eager"), dict.fromkeys(RULES, "")),
        "",
        "How many of them meet each special case. A program is called in several ways, such as with and without",
        "gradients, and it is enough that one call meets the case.",
        "",
        *table("special case", list(CASES), counted(rows, "met"), CASES),
        "",
        f"`{command} --seed {' or '.join(seeds)}` runs",
        "the programs, and `python -m tests.oracle.rules_met FILE --page` writes this section.",
    ]
    return "\n".join(lines) + "\n"


def replaced(page: str, text: str) -> str:
    """The page with the section's text, which is its last."""
    return f"{page.partition(f'## {TITLE}')[0].rstrip()}\n\n## {TITLE}\n\n{text}"


def main(arguments: Sequence[str]) -> int:
    rows = [row for name in arguments if name != "--page" for row in finished(Path(name)).values()]
    text = section(rows)
    if "--page" in arguments:
        PAGE.write_text(replaced(PAGE.read_text(), text))
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
