"""The figures of many random programs, from the rows that `fuzz.py` writes: several files of rows can be summed.

A program stands, for one candidate, in one of these columns:

    equal          no difference
    details        only differences that no ordinary program can turn into a wrong number
    refused        a refusal, by a name of the list, and nothing wrong
    error          any other exception
    wrong          silently another result
    dynamo's own   torch's backend "eager", which runs what Dynamo captured as it is, is as far from eager
    crashed        the process ended
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from .progress import Row

DYNAMOS_OWN = "dynamo's own"
COLUMNS = ("equal", "details", "refused", "error", "wrong", DYNAMOS_OWN, "crashed")


def figures(rows: Sequence[Row], names: Sequence[str]) -> int:
    """Print what the rows say of each candidate. Returns 1 where one of ours is wrong, or only torch is right."""
    print(f"\n{len(rows)} programs")
    print(f"{'':16}" + "".join(f"{column:>{len(column) + 3}}" for column in COLUMNS) + "   right %   ms each")
    for name in names:
        found = [entry_of(row, name) for row in rows]
        tally = Counter(entry["standing"] for entry in found)
        counted = "".join(f"{tally[column]:>{len(column) + 3}}" for column in COLUMNS)
        judged = max(len(rows) - tally[DYNAMOS_OWN], 1)
        share = 100 * (tally["equal"] + tally["details"]) / judged
        each = 1000 * sum(entry["seconds"] for entry in found) / max(len(rows), 1)
        print(f"{name:16}{counted}{share:>10.2f}{each:>10.1f}")
    print(f'right %: equal or details, of the programs that are not "{DYNAMOS_OWN}"')
    for name in names:
        _causes(rows, name)
        _in_eager(rows, name)
    parted = [row["key"] for row in rows if row.get("parted")]
    if any("parted" in row for row in rows):
        print(f"\nours is right and torch is not, in part or whole: {sum(bool(row.get('better')) for row in rows)}")
        print(f"torch is right and ours is not: {len(parted)} {' '.join(parted)}".rstrip())
    ours = [name for name in names if name.startswith("ours")]
    bad = any(entry_of(row, name)["standing"] in ("wrong", "crashed") for name in ours for row in rows)
    return 1 if bad or parted else 0


def entry_of(row: Row, name: str) -> Row:
    """What a row says of one candidate; a process that ended has said nothing."""
    return row.get(name) or {"standing": "crashed", "cause": "", "refusals": [], "seconds": 0.0}


def _in_eager(rows: Sequence[Row], name: str) -> None:
    """How many of the equal programs have a graph that ran in eager after a refusal, by rule."""
    equal = [entry for entry in (entry_of(row, name) for row in rows) if entry["standing"] in COLUMNS[:2]]
    tally = Counter(reason for entry in equal for reason in entry.get("in_eager", ()))
    count = sum(bool(entry.get("in_eager")) for entry in equal)
    if count:
        print(
            f"\n{name}: {count} of {len(equal)} equal programs ran partly in eager ({100 * count / len(equal):.1f} %)"
        )
        print("".join(f"  {number:5} {reason}\n" for reason, number in tally.most_common()), end="")


def _causes(rows: Sequence[Row], name: str) -> None:
    """For each column that is not right: each cause, and its programs. Refusals by name, counted; errors all listed."""
    by_column: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        entry = entry_of(row, name)
        label = ", ".join(entry["refusals"]) if entry["standing"] == "refused" else entry["cause"]
        by_column[entry["standing"]][label].append(row["key"])
    for column in COLUMNS[2:]:
        causes = by_column[column]
        if causes:
            print(f"\n{name}, {column}:")
        for label, programs in sorted(causes.items(), key=lambda item: -len(item[1])):
            listed = programs[:6] if column == "refused" else programs
            more = " ..." if len(listed) < len(programs) else ""
            print(f"  {len(programs):5} {label}: {' '.join(listed)}{more}")
