"""Rows of a section as its part of docs/parity.md. The same rows give the same text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from tests.oracle.progress import Row

BOTH = ("ours", "torch")
STATUSES = ("equal", "details", "wrong", "raised")
EXAMPLES, NAMED = 6, 20


def section_text(
    title: str,
    about: str,
    rows: Iterable[Row],
    unfinished: Sequence[str],
    also: Callable[[list[Row]], list[str]] = lambda _: [],
) -> str:
    """One section, from its heading on. `also` has lines to add below."""
    cases = [row for row in rows if not row.get("group")]
    judged = [row for row in cases if "ours" in row]
    lines = [f"## {title}", "", about.strip(), ""]
    if unfinished:
        names = ", ".join(unfinished[:NAMED]) + (", …" if len(unfinished) > NAMED else "")
        lines += [f"**Not run to its end. Missing: {len(unfinished)} groups ({names}).**", ""]
    lines += [f"{len(cases)} cases, {len(judged)} judged.", ""]
    lines += ["| | equal | details | wrong | raised |", "| --- | ---: | ---: | ---: | ---: |"]
    for name in BOTH:
        count = Counter(row[name]["status"] for row in judged)
        lines.append(f"| {'aotviz' if name == 'ours' else name} | {' | '.join(str(count[s]) for s in STATUSES)} |")
    lines += ["", *_parted("torch is right and aotviz is not", "ours", [r for r in judged if r["worse"]])]
    fails = {r["key"] for r in judged if r["ours"]["status"] in ("wrong", "raised")}
    better = [r for r in judged if r["better"] and r["key"] not in fails]
    lines += _parted("aotviz is right and torch is not", "torch", better)
    both = [r for r in judged if r["key"] in fails and not r["worse"]]
    lines += _parted("Neither is right", "ours", both)
    lines += _table("Not judged", Counter(_skip_reason(row) for row in cases if "ours" not in row))
    lines += also(cases)
    return "\n".join(lines).rstrip() + "\n"


def _skip_reason(row: Row) -> str:
    return "the process ended" if row.get("crashed") else str(row["skipped"])


def _parted(title: str, whose: str, rows: Sequence[Row]) -> list[str]:
    """Cases by the cause for which `whose` result is not right."""
    lines = [f"### {title}: {len(rows)}", ""]
    if not rows:
        return lines
    keys: dict[str, list[str]] = {}
    for row in rows:
        keys.setdefault(row[whose]["cause"], []).append(row["key"])
    lines += ["| cause | cases | such as |", "| --- | ---: | --- |"]
    for cause, having in sorted(keys.items(), key=lambda item: (-len(item[1]), item[0])):
        lines.append(f"| {cell(cause)} | {len(having)} | {', '.join(f'`{k}`' for k in sorted(having)[:EXAMPLES])} |")
    return [*lines, ""]


def _table(title: str, count: Counter[str]) -> list[str]:
    if not count:
        return []
    lines = [f"### {title}: {sum(count.values())}", "", "| why | cases |", "| --- | ---: |"]
    lines += [f"| {cell(why)} | {n} |" for why, n in sorted(count.items(), key=lambda item: (-item[1], item[0]))]
    return [*lines, ""]


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def replaced(page: str, title: str, text: str, titles: Sequence[str]) -> str:
    """`page` with the section `title` replaced by `text`; the rest stays: its head, `titles` in order, others."""
    head, *parts = page.split("\n## ")
    known = {part.split("\n", 1)[0]: f"## {part}" for part in parts}
    known[title] = text
    ordered = [known[t] for t in [*titles, *(t for t in known if t not in titles)] if t in known]
    return "\n".join(part.rstrip() + "\n" for part in [head, *ordered])
