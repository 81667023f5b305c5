"""How much of aotviz mypy knows the types of, room by room: it may only get better.

python -m tests.share_of_any            run mypy, print the figures, exit 1 if one is worse than the stored one
python -m tests.share_of_any --update   store them (tests/share_of_any.txt)

`Any` is the share of expressions whose type is Any, as `mypy --any-exprs-report` counts them. A cast, an annotation
`object` and a `type: ignore` in its place are the same debt, so they are counted beside it.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STORED = ROOT / "tests/share_of_any.txt"
_IGNORE = re.compile(r"#\s*type: ignore\b")


@dataclass(frozen=True)
class Figures:
    """What a room owes. All are better if they are smaller."""

    percent: float  # of the expressions, rounded to tenths
    casts: int
    objects: int
    ignores: int


def debts(source: str) -> Counter[str]:
    """The casts, annotations `object` and ignored lines of a file."""
    found = Counter(ignores=len(_IGNORE.findall(source)))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("cast", "typing.cast"):
            found["casts"] += 1
        for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if isinstance(annotation, ast.AST):
                named = (one for one in ast.walk(annotation) if isinstance(one, ast.Name))
                found["objects"] += sum(one.id == "object" for one in named)
    return found


def room(module: str) -> str:
    """The folder of aotviz that a module is in; "aotviz" for a module of none."""
    parts = module.split(".")
    return parts[1] if (ROOT / Path(*parts[:2])).is_dir() and len(parts) > 1 else "aotviz"


def of_report(text: str) -> dict[str, Counter[str]]:
    """The expressions of each room, and those typed Any, from mypy's table."""
    found: dict[str, Counter[str]] = {}
    for line in text.splitlines():
        columns = line.split()
        if len(columns) == 4 and columns[0].startswith("aotviz"):
            found.setdefault(room(columns[0]), Counter()).update(any=int(columns[1]), all=int(columns[2]))
    return found


def measured() -> dict[str, Figures]:
    """Run mypy. Exits as it does if it finds an error."""
    with tempfile.TemporaryDirectory() as folder:
        status = subprocess.run([sys.executable, "-m", "mypy", "--any-exprs-report", folder], cwd=ROOT).returncode
        if status:
            sys.exit(status)
        counts = of_report((Path(folder) / "any-exprs.txt").read_text())
    for path in sorted((ROOT / "aotviz").rglob("*.py")):
        counts[room(".".join(path.relative_to(ROOT).with_suffix("").parts))].update(debts(path.read_text()))
    counts["all"] = sum(counts.values(), Counter())
    return {
        name: Figures(round(100 * n["any"] / n["all"], 1), n["casts"], n["objects"], n["ignores"])
        for name, n in sorted(counts.items())
    }


def as_text(figures: dict[str, Figures]) -> str:
    lines = [f"{'room':16}{'Any %':>8}{'cast':>8}{'object':>8}{'ignore':>8}"]
    for name, one in figures.items():
        lines.append(f"{name:16}{one.percent:8.1f}{one.casts:8}{one.objects:8}{one.ignores:8}")
    return "\n".join(lines) + "\n"


def from_text(text: str) -> dict[str, Figures]:
    rows = (line.split() for line in text.splitlines()[1:])
    return {name: Figures(float(percent), *map(int, counts)) for name, percent, *counts in rows}


def worse(now: dict[str, Figures], before: dict[str, Figures]) -> Iterator[str]:
    """A sentence for each figure that has risen. A tenth of a percent is rounding."""
    for name, one in now.items():
        known = before.get(name, Figures(0, 0, 0, 0))
        for field in fields(Figures):
            value, was = getattr(one, field.name), getattr(known, field.name)
            if value > was + (0.1001 if field.name == "percent" else 0):
                yield f"{name}: {field.name} is {value}, was {was}"


def main() -> None:
    figures = measured()
    print(as_text(figures), end="")
    if "--update" in sys.argv:
        STORED.write_text(as_text(figures))
        return
    risen = list(worse(figures, from_text(STORED.read_text())))
    if risen:
        sys.exit("\n".join(["types got worse (see tests/share_of_any.py):", *risen]))


if __name__ == "__main__":
    main()
