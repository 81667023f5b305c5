"""Puts the figures of random programs into docs/programs.md, below a heading that is there.

    python -m tests.oracle.fuzz --sum plain.jsonl --modes --candidate ours,ours-backend --page "Random programs"

The text between the heading and its first table stays. From the table on, the section is written anew: the figures, how
many of the equal programs ran partly in eager and by which rule, every program on which aotviz is wrong or ends in an
error, and the command that judges the programs once more.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from .fuzz_report import COLUMNS, DYNAMOS_OWN, entry_of
from .progress import Row

PAGE = Path(__file__).parents[2] / "docs" / "programs.md"
NAMES = {
    "ours": "aot_function",
    "ours-backend": 'torch.compile, "aotviz_eager"',
    "dynamo-eager": 'torch.compile, "eager" (Dynamo alone)',
    "torch": "torch's aot_function",
    "torch-compile": 'torch.compile, "aot_eager"',
}
HEADINGS = {"error": "another error", DYNAMOS_OWN: "Dynamo's own"}
LISTED = ("wrong", "error", "crashed")


def write(title: str, rows: Sequence[Row], names: Sequence[str], flags: str) -> None:
    """Write the figures of these candidates below the heading `title`. `flags`: the options by which the programs were
    drawn, such as "--modes"."""
    PAGE.write_text(replaced(PAGE.read_text(), title, section(rows, names, flags)))


def replaced(page: str, title: str, text: str) -> str:
    """The page with all that follows the first table's beginning in a section replaced."""
    head, *parts = page.split("\n## ")
    if not any(part.startswith(f"{title}\n") for part in parts):
        raise SystemExit(f"{PAGE.name} has no heading {title!r}")
    for k, part in enumerate(parts):
        if part.startswith(f"{title}\n"):
            parts[k] = f"{part.partition(f'{chr(10)}|')[0].rstrip()}\n\n{text}"
    return "\n## ".join(part.rstrip() + "\n" for part in (head, *parts))


def section(rows: Sequence[Row], names: Sequence[str], flags: str) -> str:
    columns = [column for column in COLUMNS if column != "crashed" or _count(rows, names, column)]
    headings = [HEADINGS.get(column, column) for column in columns]
    lines = [f"| | programs | {' | '.join(headings)} | partly in eager |", "| --- " * (len(columns) + 3) + "|"]
    for name in names:
        found = [entry_of(row, name) for row in rows]
        tally = Counter(entry["standing"] for entry in found)
        partly = sum(bool(entry.get("in_eager")) for entry in found if entry["standing"] in COLUMNS[:2])
        cells = [f"{tally[column]:,}" for column in columns]
        cells[0] += f" ({_percent(tally['equal'], len(rows))})"
        cells.append(f"{partly:,} ({_percent(partly, len(rows))})")
        lines.append(f"| {NAMES.get(name, name)} | {len(rows):,} | {' | '.join(cells)} |")
    for name in names:
        lines += _by_rule(rows, name)
    for name in names:
        lines += _listed(rows, name) if name.startswith("ours") else []
    return "\n".join([*lines, "", f"`{command(rows, names, flags)}`"]) + "\n"


def command(rows: Sequence[Row], names: Sequence[str], flags: str) -> str:
    """What judges the programs once more: one command for each seed, joined by semicolons."""
    by_seed: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        seed, _, index = row["key"].partition(":")
        by_seed[seed].append(int(index))
    drawn = f"python -m tests.oracle.fuzz {flags}".rstrip()
    return "; ".join(
        f"{drawn} --seed {seed} --start {min(found)} --n {max(found) + 1 - min(found)} --candidate {','.join(names)} "
        f"--json {seed}.jsonl"
        for seed, found in by_seed.items()
    )


def _by_rule(rows: Sequence[Row], name: str) -> list[str]:
    entries = (entry_of(row, name) for row in rows)
    equal = [entry for entry in entries if entry["standing"] in COLUMNS[:2]]
    tally = Counter(reason for entry in equal for reason in entry.get("in_eager", ()))
    if not tally:
        return []
    counted = (f"`{reason}` {number}" for reason, number in tally.most_common())
    return ["", f"{NAMES.get(name, name)}, partly in eager, by rule: {', '.join(counted)}."]


def _listed(rows: Sequence[Row], name: str) -> list[str]:
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in rows:
        entry = entry_of(row, name)
        if entry["standing"] in LISTED:
            found[HEADINGS.get(entry["standing"], entry["standing"]), entry["cause"]].append(row["key"])
    texts = (f"- {NAMES.get(name, name)}, {what}: {', '.join(keys)} ({cause})" for (what, cause), keys in found.items())
    return ["", *(text.replace("<", "&lt;") for text in texts)] if found else []


def _count(rows: Sequence[Row], names: Sequence[str], column: str) -> int:
    return sum(entry_of(row, name)["standing"] == column for row in rows for name in names)


def _percent(part: int, whole: int) -> str:
    """Rounded down, so that nothing is claimed which is not so."""
    return f"{1000 * part // max(whole, 1) / 10:.1f} %"
