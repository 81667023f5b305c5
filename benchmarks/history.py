"""How each figure changed: the committed versions of benchmarks/results, as git has them.

    python -m benchmarks.history                # a line for each case that was measured more than once
    python -m benchmarks.history calls step     # of these files only

`docs/images/benchmarks-history.png` draws the same.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from . import results


class Point(msgspec.Struct, frozen=True):
    """One committed measurement of a case."""

    when: str  # of the commit, ISO 8601
    figure: float
    target: float | None


def of(path: Path) -> dict[str, list[Point]]:
    """Maps each case of a file of results to its measurements, the oldest first. A commit that left a figure as it was
    measured nothing, and has no point.

    Raises subprocess.CalledProcessError outside of a git repository."""
    found: dict[str, list[Point]] = {}
    for when, version in _versions(path):
        for row in version.rows:
            points = found.setdefault(row.case, [])
            if not points or points[-1].figure != row.figure:
                points.append(Point(when, row.figure, row.target))
    return found


def _versions(path: Path) -> Iterator[tuple[str, results.Result]]:
    for line in _git(path, "log", "--reverse", "--format=%aI %H", "--", path.name).decode().splitlines():
        when, commit = line.split()
        yield when, msgspec.json.decode(_git(path, "show", f"{commit}:./{path.name}"), type=results.Result)


def _git(path: Path, *command: str) -> bytes:
    return subprocess.run(["git", "-C", path.parent, *command], check=True, capture_output=True).stdout


def table(paths: Sequence[Path]) -> str:
    """A line for each case with at least two points: the days and the figures."""
    lines = []
    for path in paths:
        several = {case: points for case, points in of(path).items() if len(points) > 1}
        lines += [path.stem] if several else []
        for case, points in several.items():
            lines.append(f"  {case}: {', '.join(f'{point.figure:.3f} ({point.when[:10]})' for point in points)}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.history", description="How each figure changed.")
    names = sorted(path.stem for path in results.FOLDER.glob("*.json"))
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"files of results: {', '.join(names)}")
    chosen = parser.parse_args(argv).names or names
    if unknown := sorted(set(chosen) - set(names)):
        parser.error(f"benchmarks/results has no {', '.join(unknown)}; it has {', '.join(names)}")
    print(table([results.FOLDER / f"{name}.json" for name in chosen]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
