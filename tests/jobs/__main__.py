"""`python -m tests.jobs [NAME ...]`: run the jobs, explain their logs, and print what was told and what the cure did.

Without names all are run, and the table in docs/jobs.md is written. `--new` runs those that the table does not have
yet, and leaves its other rows as they are.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.jobs import judging, running, table

DOCS = Path(__file__).parents[2] / "docs" / "jobs.md"


def main(wanted: list[str]) -> None:
    rows: list[str] = []
    kept = table.kept(DOCS.read_text()) if wanted == ["--new"] else {}
    wanted = [] if kept else wanted
    for name, job in running.jobs().items():
        if wanted and name not in wanted and job.family not in wanted:
            continue
        if name in kept:
            rows.append(kept[name])
            continue
        with tempfile.TemporaryDirectory() as folder:
            faulty = running.run(job, False, Path(folder, "faulty"))
            cured = running.run(job, True, Path(folder, "cured"))
            told = judging.Told.of(Path(folder, "faulty", "log"))
        wrong = judging.wrong(job, told) + judging.cure_failed(job, faulty, cured)
        row = table.Row(job, faulty, cured, told, wrong)
        rows.append(table.cells(row))
        print(row.printed(), flush=True)
    if not wanted:
        DOCS.write_text(table.page(rows))


if __name__ == "__main__":
    main(sys.argv[1:])
