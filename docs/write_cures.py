"""Writes cures.md: runs each program of tests/cures without and with its cure, and notes what it measured.

python docs/write_cures.py            run all of them and write the page (`make cures`)
python docs/write_cures.py --new      run only those that the page does not have yet
python docs/write_cures.py --check    exit 1 if the page has other faults, cures or reports than the programs; runs none
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.cures import areas  # noqa: E402
from tests.cures.programs import Program  # noqa: E402

PAGE = ROOT / "docs/cures.md"
HEAD = """# Cures

<!-- made from tests/cures by `python docs/write_cures.py` -->
What `explain` advises, and what came of it: each row is a program that has the fault. It was run as it is, and again
with the advice followed; the numbers are what was counted. The tests run all of these programs, and an advice that
has none fails a test, but for five, which are tested on logs: about a slow rank (Inductor estimates no times on a
CPU), an order of ranks that a cache made uncertain, an entry for other sizes, a difference of keys that torch does
not print, and a size in a part of a whole backward. The reports are public issues and pull requests that show the
fault; those beside aotviz's cache are of such a miss in another compile cache.

Where more than one compilation is left, none of them is the fault. A size or a number is a constant until it changes
for the first time: sizes of parameters, a counter, a number and the blocks of GPT-2 need that second program, in which
it is a symbol. The optimizer's step is four functions, each compiled once. Under aotviz's backend, where the inputs
overlap, Dynamo's compilation and aotviz's of the same function are both counted.

`recording.try_cure(point)` does the same with the calls that were recorded, if the cure is a setting of torch:

```python
step = torch.compile(lambda x: x[x > 0] * 2, backend="eager")
with aotviz.watch() as recording:
    step(torch.ones(3))

print(recording.try_cure(0))
```

```
With `torch._dynamo.config.capture_dynamic_output_shape_ops = True`:
- graph breaks: 1 before, 0 after
- compilations: 2 before, 1 after
- recompiles: 0 before, 0 after
- time to compile: 166 ms before, 221 ms after
- results: equal
- 1 call repeated, with inputs of the recorded shapes and random values
```

More of it: [recompiles](recompiles.md#trying-a-cure).
"""
TABLE = "| fault | advice that is followed | measured | reports |\n| --- | --- | --- | --- |"


def measured(program: Program) -> str:
    before, after = (program.measure(program.calls, cured) for cured in (False, True))
    return f"{before.unit}: {before.count} → {after.count}"


def row(program: Program, effect: Callable[[Program], str]) -> str:
    advice = program.says or program.cure.does
    return f"| {program.fault} | {advice} | {effect(program)} | {', '.join(map(linked, program.reports))} |"


def linked(report: str) -> str:
    """
    >>> linked("pytorch/pytorch#12")
    '[pytorch/pytorch#12](https://github.com/pytorch/pytorch/issues/12)'
    """
    repository, _, number = report.partition("#")
    return f"[{report}](https://github.com/{repository}/issues/{number})"


def page(effect: Callable[[Program], str]) -> str:
    parts = [HEAD]
    for title, programs in areas.programs():
        rows = [row(program, effect) for program in programs]
        parts.append("\n".join([f"## {title}", "", TABLE, *rows, ""]))
    return "\n".join(parts)


def written() -> str:
    return PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""


def is_current() -> bool:
    """Whether the page has the programs' rows, whatever they measured."""
    told, now = ({_facts(line) for line in text.splitlines()} for text in (written(), page(lambda _: "")))
    return told == now


def measured_if_new(program: Program) -> str:
    """What the page says of a program with this fault and advice, or what is measured if it says nothing."""
    start = row(program, lambda _: "").rpartition(" |  | ")[0]
    (told, *_) = [line.split(" | ")[2] for line in written().splitlines() if line.startswith(f"{start} | ")] or [""]
    return told or measured(program)


def _facts(line: str) -> str:
    """A line without what was measured."""
    cells = line.split(" | ")
    return " | ".join([*cells[:2], *cells[3:]]) if len(cells) == 4 else line


def main() -> int:
    if "--check" in sys.argv:
        print("docs/cures.md is current" if is_current() else "docs/cures.md is out of date: make cures")
        return int(not is_current())
    PAGE.write_text(page(measured_if_new if "--new" in sys.argv else measured), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
