"""What another release of torch changes for programs: the same programs, compiled under two releases and compared.

    python -m tests.next_release                      # measure them with the torch that runs this
    python -m tests.next_release --page 2.13.0 2.15.0  # write docs/next-release.md from what was measured

The programs are those of the oracle's table and one training step of each model family. Each is compiled by
`torch.compile(backend="aotviz_eager")`, whose recording has the operators, the saved bytes and the compilations, and by
torch's own `aot_eager`; both are judged beside eager. What was measured lies in tests/next_release.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import sys
import tempfile
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

import aotviz
from aotviz.reading.recording import Recording
from tests import processes
from tests.oracle import fuzz
from tests.oracle.compare import CANDIDATES, Candidate, expect, judge
from tests.oracle.models import FAMILIES, MORE
from tests.oracle.programs import PROGRAMS
from tests.parity.sections.models import problem, step

ROOT = Path(__file__).parents[1]
STORED = ROOT / "tests" / "next_release.json"
PAGE = ROOT / "docs" / "next-release.md"
OURS, TORCHS = "ours-backend", "torch-compile"
ROLES = ("forward", "backward", "inference")
MODEL = "model: "
MOST_NAMED = 4  # programs in a row of the page

HEAD = """\
# What a release of torch changes for your program

The same {count} programs under torch {old} and torch {new}: {small} small ones about aliasing, mutation and calling
conventions, and a training step of {models} model families. Each is compiled by `torch.compile`, once with aotviz's
pipeline and once with torch's own AOTAutograd (`aot_eager`). A recording says which operators the graphs have, how many
bytes the forward saves for the backward, and how often the program was compiled. A program is right if its results,
gradients and written arguments equal eager's; "details" are differences that give no wrong number.

For a program of your own, take the same under each release:

```python
import torch
import aotviz

def loss(x):
    return x.sin().exp().sum()

with aotviz.record() as recording:
    torch.compile(loss, backend="aotviz_eager")(torch.ones(3, requires_grad=True)).backward()

operators = [node.target for node in recording[0].graph("forward").rows if node.op == "call_function"]
print(operators, recording[0].saved_tensors.held_bytes.sum(), len(recording))
```

```text
['aten.sin.default', 'aten.exp.default', 'aten.detach.default', 'aten.sum.default', 'aten.detach.default'] 12 1
```

`recording.save("loss.aotviz")` keeps it, and `aotviz.load("loss.aotviz")` reads it under the other release.

"""


@dataclass(frozen=True)
class Row:
    """What was measured of one program."""

    ours: str  # how it stands beside eager, in the words of tests/oracle/fuzz_report.py
    torchs: str
    compilations: int
    saved: int  # bytes, over all compilations
    operators: dict[str, int] = field(default_factory=dict)  # in the graphs that are compiled


Rows = dict[str, Row]


def measured(recording: Recording, ours: str, torchs: str) -> Row:
    operators = Counter[str]()
    saved = 0
    for one in recording:
        for role in ROLES:
            with contextlib.suppress(LookupError):
                operators.update(node.target for node in one.graph(role).rows if node.op == "call_function")
        if one.kind == "training":
            saved += int(one.saved_tensors.held_bytes.fillna(0).sum())
    return Row(ours, torchs, len(recording), saved, dict(sorted(operators.items())))


def of_program(name: str) -> Row:
    program = PROGRAMS[name]
    expected = expect(program, brief=True)

    def stands(candidate: Candidate) -> str:
        return fuzz.standing(program, candidate, judge(program, candidate, expected), expected)

    torchs = stands(CANDIDATES[TORCHS]())
    with aotviz.record() as recording:
        ours = stands(CANDIDATES[OURS]())
    return measured(recording, ours, torchs)


def of_model(name: str) -> Row:
    expected = step(name, lambda module: module, shallow=True)

    def stands(backend: str) -> str:
        torch._dynamo.reset()
        try:
            differs = problem(expected, step(name, lambda module: torch.compile(module, backend=backend), shallow=True))
        except Exception as error:
            return f"error: {type(error).__name__}"
        return f"wrong: {differs}" if differs else "equal"

    torchs = stands("aot_eager")
    with aotviz.record() as recording:
        ours = stands("aotviz_eager")
    return measured(recording, ours, torchs)


def measure(name: str, path: str) -> None:
    """In a process of its own: torch's state after an error is not always what it was."""
    warnings.simplefilter("ignore")
    logging.disable()
    row = of_model(name.removeprefix(MODEL)) if name.startswith(MODEL) else of_program(name)
    Path(path).write_text(json.dumps(asdict(row)))


def all_rows() -> Rows:
    rows: Rows = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, name in enumerate([*(f"{MODEL}{one}" for one in {**FAMILIES, **MORE}), *PROGRAMS]):
            path = Path(folder, str(number))
            processes.wait(processes.start(measure, name, str(path)))
            if path.exists():  # else eager raises, or a package is not installed
                rows[name] = row = Row(**json.loads(path.read_text()))
                print(f"{name}: {row.ours}, {row.torchs}", flush=True)
    return rows


def stored() -> dict[str, Rows]:
    """What was measured, by release of torch."""
    found = json.loads(STORED.read_text()) if STORED.exists() else {}
    return {release: {name: Row(**row) for name, row in rows.items()} for release, rows in found.items()}


def store(release: str, rows: Rows) -> None:
    known = {**stored(), release: rows}
    texts = []
    for one, of in sorted(known.items()):
        lines = [f"  {json.dumps(name)}: {json.dumps(asdict(row))}" for name, row in of.items()]
        texts.append(f" {json.dumps(one)}: {{\n" + ",\n".join(lines) + "\n }")
    STORED.write_text("{\n" + ",\n".join(texts) + "\n}\n")


def page(old: str, new: str, known: dict[str, Rows]) -> str:
    """The text of docs/next-release.md."""
    before, after = known[old], known[new]
    both = [name for name in before if name in after]
    models = sum(name.startswith(MODEL) for name in both)
    text = HEAD.format(count=len(both), small=len(both) - models, models=models, old=old, new=new)
    same = [name for name in both if before[name] == after[name]]
    alone = len(before) + len(after) - 2 * len(both)
    text += f"{len(same)} of the {len(both)} programs have the same operators, bytes, compilations and results."
    text += f" {alone} more ended under one of the two.\n\n" if alone else "\n\n"
    text += "| beside eager, right | " + f"torch {old} | torch {new} |\n| --- | --- | --- |\n"
    for title, of in (("aotviz's pipeline", "ours"), ("torch's own", "torchs")):
        right = [sum(getattr(rows[name], of) in ("equal", "details") for name in both) for rows in (before, after)]
        text += f"| {title} | {right[0]} | {right[1]} |\n"

    def changes(told: Callable[[Row], str]) -> list[tuple[str, str]]:
        pairs = ((name, told(before[name]), told(after[name])) for name in both)
        return [(name, f"{one} → {other}") for name, one, other in pairs if one != other]

    ours, torchs = changes(lambda row: f"aotviz: {row.ours}"), changes(lambda row: f"torch: {row.torchs}")
    text += _section("Results", "how it stands", [*ours, *torchs])
    text += _section("Compilations", "how many", changes(lambda row: str(row.compilations)))
    text += _section("Saved bytes", "bytes", changes(lambda row: f"{row.saved:,}"))
    text += _operators([(name, before[name].operators, after[name].operators) for name in both])
    return text


def _operators(counted: Sequence[tuple[str, dict[str, int], dict[str, int]]]) -> str:
    """A table of the operators that are more or fewer in some programs, those of most programs first."""
    fewer, more = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for name, before, after in counted:
        for operator in before.keys() | after.keys():
            difference = after.get(operator, 0) - before.get(operator, 0)
            if difference:
                (more if difference > 0 else fewer)[operator].append(name)
    if not fewer and not more:
        return "\n## Operators\n\nNo program differs.\n"
    text = "\n## Operators\n\n| operator | programs with fewer | with more | such as |\n| --- | --- | --- | --- |\n"
    for operator in sorted(fewer.keys() | more, key=lambda one: (-len(fewer[one]) - len(more[one]), one)):
        programs = _named([*fewer[operator], *more[operator]])
        text += f"| `{operator}` | {len(fewer[operator])} | {len(more[operator])} | {programs} |\n"
    return text


def _named(programs: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in programs[:MOST_NAMED]) + " …" * (len(programs) > MOST_NAMED)


def _section(title: str, what: str, changes: Sequence[tuple[str, str]]) -> str:
    """A table of changes, the most frequent first, each with some of its programs."""
    if not changes:
        return f"\n## {title}\n\nNo program differs.\n"
    programs = defaultdict(list)
    for name, change in changes:
        programs[change].append(name)
    text = f"\n## {title}\n\n| {what} | programs | such as |\n| --- | --- | --- |\n"
    for change, of in sorted(programs.items(), key=lambda item: -len(item[1])):
        text += f"| {change} | {len(of)} | {_named(of)} |\n"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.next_release", description="Programs under two releases of torch.")
    parser.add_argument("--page", nargs=2, metavar=("OLD", "NEW"), help="write the page, and measure nothing")
    options = parser.parse_args()
    if options.page:
        PAGE.write_text(page(*options.page, stored()))
        return
    store(torch.__version__.partition("+")[0], all_rows())


if __name__ == "__main__":
    sys.exit(main())
