"""`make sweep-python`: run every program that reads something from Python, and write what came out.

python -m tests.sweeps.python                         # every program; goes on where it stopped
python -m tests.sweeps.python --only closure          # those with this in their names, whatever was done before
python -m tests.sweeps.python --report                # write the results from what is there, and run nothing
"""

from __future__ import annotations

import argparse
import logging
import warnings
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tests.oracle.progress import Log, Row, Rows, finished, run_children
from tests.sweeps import page

from .judging import WAYS, judged
from .programs import PROGRAMS

OURS, DYNAMO = "aotviz_eager", "Dynamo alone"
TITLE = "What a program reads from Python"
ABOUT = """Each of these small programs reads something besides its tensors: a global, a closure, a default, an
attribute, a cache, the environment or a setting. Its value changes between two calls. The results of every call, its
writes to the arguments and the state that it leaves are compared with eager, to the last bit. *Dynamo alone* is
`torch.compile(backend="eager")`. A result that is wrong there was captured wrongly by Dynamo, and it is listed
separately. *refused* is an error of `aotviz.compile` that names what it does not support."""
STATUSES = ("equal", "wrong", "raised", "refused")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.sweeps.python", description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="the programs that have this in their names")
    parser.add_argument("--log", type=Path, default=Path(".sweeps/python.jsonl"), help="where progress is kept")
    parser.add_argument("--report", action="store_true", help="run nothing")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.log.parent.mkdir(parents=True, exist_ok=True)
    if options.child:
        logging.disable(logging.CRITICAL)  # torch logs what it raises
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        walk(options.log, options.only)
        return 0
    if not options.report:
        run_children("tests.sweeps.python", ["--only", options.only, "--log", str(options.log)])
    rows = {key: row for key, row in finished(options.log).items() if key in PROGRAMS}
    if len(rows) == len(PROGRAMS):
        page.save("python", found(rows))
    behind = [row for row in rows.values() if is_behind(row)]
    for row in behind:
        print(f"{row['key']}: {row[OURS]['why'] if OURS in row else 'the process ended'}")
    print(f"{len(rows)} of {len(PROGRAMS)} programs run, {len(behind)} of them behind torch by torch.compile")
    return bool(behind) or len(rows) < len(PROGRAMS)


def walk(log: Path, only: str) -> None:
    done = {} if only else finished(log)
    lines = Log(log)
    for key in PROGRAMS:
        if only in key and key not in done:
            lines.judge(key, partial(judged, key))


def is_behind(row: Row) -> bool:
    """Whether our backend differs from eager where Dynamo alone does not."""
    return bool(row.get("crashed")) or (row[OURS]["status"] != "equal" and row[DYNAMO]["status"] == "equal")


def found(rows: Rows) -> page.Found:
    """The results as `tests.sweeps.page` takes them."""
    ran = [rows[key] for key in PROGRAMS if not rows[key].get("crashed")]
    by_dynamo = [row for row in ran if row[DYNAMO]["status"] != "equal"]
    others = [row for row in ran if row[DYNAMO]["status"] == "equal"]
    tables = [
        {"title": "Python values", "columns": ["", *STATUSES], "rows": _counts(ran)},
        {
            "title": "Equal, by what is read",
            "columns": ["what is read", "programs", *WAYS],
            "rows": _groups(ran),
        },
        _differing("Dynamo is right, and one of these is not", others),
        _differing("Dynamo alone differs from eager", by_dynamo),
    ]
    crashed = [[key] for key in PROGRAMS if rows[key].get("crashed")]
    if crashed:
        tables.append({"title": "The process ended", "columns": ["program"], "rows": crashed})
    return {
        "title": "What a program reads from Python",
        "about": ABOUT,
        "made_by": "make sweep-python",
        "tables": tables,
    }


def _counts(rows: list[Row]) -> list[list[Any]]:
    counts = {way: Counter(row[way]["status"] for row in rows) for way in WAYS}
    return [[way, *(counts[way][status] for status in STATUSES)] for way in WAYS]


def _groups(rows: list[Row]) -> list[list[Any]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["key"].partition(": ")[0], []).append(row)
    return [
        [group, len(of), *(sum(row[way]["status"] == "equal" for row in of) for way in WAYS)]
        for group, of in groups.items()
    ]


def _differing(title: str, rows: list[Row]) -> dict[str, Any]:
    lines = []
    for row in rows:
        alike: dict[tuple[str, str], list[str]] = {}
        for way in WAYS:
            alike.setdefault((row[way]["status"], row[way]["why"]), []).append(way)
        lines += [
            [row["key"], "all" if len(ways) == len(WAYS) else ", ".join(ways), status, why]
            for (status, why), ways in alike.items()
            if status != "equal"
        ]
    count = len({line[0] for line in lines})
    return {"title": f"{title}: {count}", "columns": ["program", "by", "", "why"], "rows": lines}


if __name__ == "__main__":
    raise SystemExit(main())
