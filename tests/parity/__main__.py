"""`make parity`: judge what is not judged yet, and write docs/parity.md.

python -m tests.parity                              # every section; resumes where it stopped
python -m tests.parity --section modules            # one; the others' text stays
python -m tests.parity --section modules --retry    # once more what was not equal, and go on
python -m tests.parity --section models --first "gpt2 on Inductor"    # these groups before the others
python -m tests.parity --report                     # only write the page
python -m tests.parity --section higher_order --show
"""

from __future__ import annotations

import argparse
import logging
import warnings
from pathlib import Path

import torch

from tests.oracle.progress import Rows, finished, run_children
from tests.sweeps.page import titles

from . import report, walk
from .cases import section
from .sections import SECTIONS

PAGE = Path(__file__).parents[2] / "docs" / "parity.md"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.parity", description=__doc__.split("\n")[0])
    parser.add_argument("--section", action="append", help=f"one of {', '.join(SECTIONS)} (all)")
    parser.add_argument("--folder", type=Path, default=Path(".parity"), help="where progress is kept (.parity)")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page to write (docs/parity.md)")
    parser.add_argument("--seconds", type=float, help="stop each section after so long; run again to go on")
    parser.add_argument("--first", metavar="GROUP", help="start at this group, and come to those before it at the end")
    parser.add_argument("--retry", action="store_true", help="judge again what was not equal")
    parser.add_argument("--report", action="store_true", help="write the page from what is there, and run nothing")
    parser.add_argument("--show", action="store_true", help="print the differences of what torch gets right")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    names = options.section or list(SECTIONS)
    options.folder.mkdir(exist_ok=True, parents=True)
    if options.child:
        logging.disable(logging.CRITICAL)  # torch logs what it raises
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")
        walk.walk(names[0], walk.progress_file(options.folder, names[0]), options)
        return 0
    worst = 0
    for name in names:
        if not options.report:
            given = ["--folder", str(options.folder), "--section", name]
            given += ["--retry"] if options.retry else []
            given += ["--seconds", str(options.seconds)] if options.seconds else []
            given += ["--first", options.first] if options.first else []
            worst = worst or run_children("tests.parity", given)
        rows = finished(walk.progress_file(options.folder, name))
        write(options.page, name, rows)
        behind = [row for row in rows.values() if row.get("worse") or row.get("crashed")]
        for row in behind:
            what = row["ours"]["text" if options.show else "cause"] if "ours" in row else "crashed"
            print(f"{name}: {row['key']}: {what}")
        worst = worst or bool(behind)
    return worst


def write(page: Path, name: str, rows: Rows) -> None:
    """Put the section `name` into the page."""
    chosen = section(name)
    place = {group: k for k, group in enumerate(chosen.groups())}
    inorder = sorted(rows.values(), key=lambda row: place.get(row["key"].split("#")[0], 0))
    also = getattr(chosen, "also", lambda _: [])
    text = report.section_text(chosen.TITLE, chosen.ABOUT, inorder, walk.unfinished_groups(name, rows), also)
    before = page.read_text() if page.exists() else ""
    page.write_text(report.replaced(before, chosen.TITLE, text, titles()))


if __name__ == "__main__":
    raise SystemExit(main())
