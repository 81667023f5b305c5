"""`python -m tests.jobs [NAME ...]`: run the jobs, explain their logs, and print a table of what was told."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.jobs import running

if __name__ == "__main__":
    wanted = sys.argv[1:]
    for name, job in running.jobs().items():
        if wanted and name not in wanted and job.family not in wanted:
            continue
        with tempfile.TemporaryDirectory() as folder:
            faulty = running.run(job, False, Path(folder, "faulty"))
            cured = running.run(job, True, Path(folder, "cured"))
            print(name, dict(faulty), "->", dict(cured), flush=True)
            for path in Path(folder).glob("*/raised-*"):
                print("     ", path.parent.name, path.read_text()[:300].replace("\n", " "))
