"""The command line: `python -m aotviz`, or `aotviz` where it is installed.

`demo` compiles a GPT-2 training step and shows every stage; it is the only command that needs torch. `show` prints a
recording and `report` makes a page of one, on any machine. A wrong argument or an unreadable file is answered in one
line, with exit status 2; 1 means that the command ran and found something wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from aotviz import __version__
from aotviz.recorder.recording import RecordingError, load
from aotviz.widgets.static_files import FrontEndMissing


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="aotviz", description="Watch AOTAutograd compile a program, stage by stage.")
    top.add_argument("--version", action="version", version=f"aotviz {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="a GPT-2 training step through the whole pipeline, compared with eager")
    demo.add_argument("--layers", type=int, default=2, metavar="N", help="transformer layers (default: 2)")
    demo.add_argument(
        "--backend",
        choices=("inductor", "eager"),
        help="what runs the graphs (default: inductor; eager where there is no C++ compiler)",
    )
    demo.add_argument(
        "--out", type=Path, default=Path("."), metavar="DIR", help="where demo.aotviz and demo.html go (default: here)"
    )

    show = commands.add_parser("show", help="print a recording")
    show.add_argument("file", type=Path, metavar="FILE.aotviz")

    report = commands.add_parser("report", help="make one self-contained HTML page of a recording")
    report.add_argument("file", type=Path, metavar="FILE.aotviz")
    report.add_argument("-o", "--out", type=Path, metavar="OUT.html", help="default: FILE.html beside it")
    return top


def show(file: Path) -> int:
    print(load(file))
    return 0


def report(file: Path, out: Path | None) -> int:
    target = out or file.with_suffix(".html")
    if target.resolve() == file.resolve():
        raise RecordingError(f"{target} is the recording itself: give the page another name with -o")
    load(file).to_html(target)
    print(f"wrote {target}")
    return 0


def demo(layers: int, backend: str | None, out: Path) -> int:
    try:
        from aotviz import demo as demonstration  # torch, which no other command needs
    except ImportError as error:
        print(f"aotviz demo: {error}. It needs torch and transformers: pip install 'aotviz[demo]'", file=sys.stderr)
        return 2
    try:
        return demonstration.run(layers, backend, out)
    except demonstration.DemoError as error:
        print(f"aotviz demo: {error}", file=sys.stderr)
        return 2


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = parser().parse_args(arguments)
    try:
        if chosen.command == "demo":
            return demo(chosen.layers, chosen.backend, chosen.out)
        if chosen.command == "show":
            return show(chosen.file)
        return report(chosen.file, chosen.out)
    except BrokenPipeError:  # `aotviz show FILE | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (RecordingError, FrontEndMissing, OSError) as error:
        print(f"aotviz {chosen.command}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
