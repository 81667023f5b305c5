"""The table of docs/jobs.md: what each job does, what was told at the first run and now, and what its cure did."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections import Counter

from tests.jobs.judging import Told
from tests.jobs.running import HERE, Job

INTRODUCTION = """\
# Jobs with a known fault

{count} small training and inference jobs, each made to fail, to compile again or to run in eager in one known way, as
public reports and the sample logs of tlparse and PyTorch show it. What is wrong with each, which words the first point
of `aotviz explain` must have, and what its cure is were written down before the job was run, by somebody who had not
read the code of `explain`. Each job was then run with `TORCH_TRACE`, once as it is and once with the cure.

At the first run the first point was the cause, and its first cure the right one, for {right} of {count} jobs as they
were noted, and for {noted} more whose note was too narrow (the page says why). Now it is for {now}.

Eight of them were added later, by somebody who had read that code: `one_rank_evaluates`, `training_flag`,
`tied_inputs`, `unbatched_input`, `activation_passed`, `hook_added_late`, `file_read` and `raises_itself`. At their
first run, 4 of the 8 were right as noted, and 2 had a program that did not show its fault, or not its cure. Those of
`tests/jobs/reported.py` were added later too: of the first thirteen, 5 were right as noted, and 4 of the last ten. The
fourteen of `tests/jobs/tracker.py` are of forty that somebody wrote who had not read that code either; of the forty, 24
were right at their first run. Those of `tests/jobs/strangers.py` are kinds of thirty more, by another person. Their
logs were explained before anything was changed: the first point was the cause with a cure that removes it for 14, the
cause with another cure for 6, and 10 were told wrongly, 3 of them since their logs are empty. Those of
`tests/jobs/later.py` are of ten kinds from public reports, written by somebody who had seen `explain`'s answers and
not its code. Of the ten, the first point was the cause with a cure that removes it for 2, the cause with another cure
for 5, and the log was empty, or ended before the error, for 3, of which `aotviz.watch()` told 1 with its cure. Those of
`tests/jobs/newcomers.py`, `rank_without_an_image` and five of the last six of `tests/jobs/strangers.py` are kinds of
twenty-four whole programs by another person, of which 10 were told right, with a cure that removes the fault.
`module_that_prints_on_rank_0` and `classifier_with_a_mask` are two kinds of twenty-one such programs, of which 13 were
told right and 9 had a cure that removes the fault; these two notes are by somebody who had read the code.

`python -m tests.jobs` runs all and writes this page; `python -m tests.jobs NAME` runs one. The notes are in
`tests/jobs/expected.toml`, the findings of the first run in `tests/jobs/first_run.toml`.

```
$ python -m tests.jobs module_counter print_in_forward
right module_counter (compilations: 6 → 1)
right print_in_forward (breaks: 1 → 0)
```

| job | what was done | at the first run | `explain` says first, now | the cure, and what it did |
| --- | --- | --- | --- | --- |
"""
NOT_RIGHT = "**not right:**"
TIMED = re.compile(
    r" (?:Compilations? [^.]*? cost|Compiling (?:it|them) took|It cost) [\d.,]+ m?s\.?| That is \d+% of [^.]*\."
)

FOLDERS = re.compile(r"(?<![\w.])/(?:[\w.-]+/)+")


@dataclasses.dataclass(frozen=True)
class Row:
    job: Job
    faulty: Counter[str]
    cured: Counter[str]
    told: Told
    wrong: list[str]

    @property
    def effect(self) -> str:
        """What the cure made fewer: "compilations: 6 → 1"."""
        gone = self.job.noted.get("gone", "none")
        return "" if gone == "none" else f"{gone.replace('_', ' ')}: {int(self.faulty[gone])} → {int(self.cured[gone])}"

    def printed(self) -> str:
        verdict = "right" if not self.wrong else "WRONG"
        return "\n    ".join([f"{verdict} {self.job.name} ({self.effect or 'nothing to count'})", *self.wrong])


def first_run() -> dict[str, str]:
    """The name of each job that was not told as noted -> what was found."""
    found = tomllib.loads((HERE / "first_run.toml").read_text())
    return {name: f"right; {why}" for name, why in found["note"].items()} | found["wrong"]


def kept(text: str) -> dict[str, str]:
    """The rows of a page, by the names of their jobs."""
    rows = (line for line in text.splitlines(keepends=True) if line.startswith("| ") and "<br>" in line)
    return {row[2:].partition("<br>")[0]: row for row in rows}


def page(rows: list[str]) -> str:
    first = tomllib.loads((HERE / "first_run.toml").read_text())
    return INTRODUCTION.format(
        count=len(rows),
        right=len(rows) - len(first["note"]) - len(first["wrong"]),
        noted=len(first["note"]),
        now=sum(NOT_RIGHT not in row for row in rows),
    ) + "".join(rows)


def cells(row: Row) -> str:
    noted = row.job.noted
    said = row.told.headline if row.job.healthy else row.told.first
    said = re.sub(r",? \d[\d.]* m?s\b", "", TIMED.sub("", FOLDERS.sub("", said)))
    cells = (
        f"{row.job.name}<br>{noted['from']}",
        noted["done"],
        first_run().get(row.job.name, "right"),
        said if not row.wrong else f"{NOT_RIGHT} {said}",
        f"{noted.get('cure', 'nothing is wrong')}. {row.effect}",
    )
    return f"| {' | '.join(cell.replace('|', chr(92) + '|').replace(chr(10), ' ') for cell in cells)} |\n"
