"""The command line: `python -m aotviz`, or `aotviz` where it is installed.

`demo` and `verify` compile, and so need torch; the others read recordings or the cache, on any machine. For a wrong
argument or an unreadable file, a command prints one line and exits with status 2. Status 1 means that the command ran
and found something wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path, PureWindowsPath

from aotviz import __version__
from aotviz.cache import command as cache_command
from aotviz.logs.finding import is_url
from aotviz.logs.read_trace import read_trace
from aotviz.reading.recording import Recording, RecordingError, load
from aotviz.recording import needs_torch
from aotviz.widgets.server import Viewer
from aotviz.widgets.static_files import FrontEndMissing

Arguments = argparse.Namespace

RECORDING = "a FILE.aotviz, or what TORCH_TRACE wrote: a log file, a folder, a pattern in quotes, or a URL of these"
MOST_TOLD = 12  # points of an explanation that are shown without --all


def _demo(chosen: Arguments) -> int:
    try:
        from aotviz.frontends import demo as demonstration  # imports torch, which reading commands do not need
    except ImportError as error:
        raise CommandError(f"{error}. It needs torch and transformers: pip install 'aotviz[demo]'") from error
    try:
        return demonstration.run(chosen.layers, chosen.backend, chosen.out)
    except demonstration.DemoError as error:
        raise CommandError(str(error)) from error


def _show(chosen: Arguments) -> int:
    print(_read(chosen, chosen.path))
    return 0


def _report(chosen: Arguments) -> int:
    target = _target(chosen, "page", ".html")
    left_out = _read(chosen, chosen.path).to_html(target, redact=chosen.redact)
    return _wrote(chosen, target, left_out)


def _save(chosen: Arguments) -> int:
    target = _target(chosen, "recording", ".redacted.aotviz" if chosen.redact else ".aotviz")
    left_out = _read(chosen, chosen.path).save(target, redact=chosen.redact)
    return _wrote(chosen, target, left_out)


def _trace(chosen: Arguments) -> int:
    target = _target(chosen, "trace", ".json")
    recording = _read(chosen, chosen.path)
    is_json = target.name.removesuffix(".gz").endswith(".json")
    (recording.to_chrome_trace if is_json else recording.to_perfetto)(target)
    return _wrote(chosen, target)


def _target(chosen: Arguments, what: str, suffix: str) -> Path:
    """The file to write: a new one, unless --force. `what` says what is in it."""
    name = PureWindowsPath(chosen.path).name  # of a URL, its last part: no folder, whatever a system makes of it
    source = Path(("recording" if name in ("", "..") else name) if is_url(chosen.path) else chosen.path)
    target: Path = chosen.out or source.resolve().with_suffix(suffix)
    if target.resolve() == source.resolve():
        raise RecordingError(f"{target} is the recording itself: give the {what} another name with -o")
    if target.exists() and not chosen.force:
        raise CommandError(f"{target} exists: give the {what} another name with -o, or --force to write over it")
    return target


def _wrote(chosen: Arguments, target: Path, left_out: str = "") -> int:
    print(f"wrote {target if chosen.out else target.name if target.parent == Path.cwd() else target}")
    if left_out:
        print(left_out)
    return 0


def _open(chosen: Arguments) -> int:
    viewer = Viewer(_read(chosen, chosen.path), chosen.port)
    print(f"{chosen.path} is at {viewer.url}\nCtrl-C ends this.", flush=True)
    if not chosen.no_browser:
        webbrowser.open(viewer.url)
    try:
        viewer.serve()
    except KeyboardInterrupt:
        return 0
    return 0


def _explain(chosen: Arguments) -> int:
    recording = _read(chosen, chosen.path)
    earlier = _read(chosen, chosen.earlier, latest=False) if chosen.earlier else None
    try:
        told = recording.explain(chosen.compilation, earlier=earlier)
    except LookupError as error:
        raise CommandError(str(error)) from error
    shown = told if chosen.all else told.first(MOST_TOLD)
    print(shown)
    if len(told.points) > len(shown.points):
        print(f"\n({len(told.points) - len(shown.points)} more: --all)")
    return 0


def _read(chosen: Arguments, path: str | None, latest: bool = True) -> Recording:
    """A saved recording, or the logs at a path or pattern; with --latest only those of the latest run."""
    latest = latest and getattr(chosen, "latest", False)
    if path is None and not latest:
        raise CommandError(
            "PATH is missing: a recording, a log or a folder of logs, or --latest for that of TORCH_TRACE"
        )
    if path is not None and path.endswith(".aotviz"):
        if latest:
            raise CommandError(f"--latest chooses among logs, and {path} is a recording")
        return load(path)
    return read_trace(path, latest=latest, limit_mb=chosen.limit_mb, jobs=chosen.jobs)


def _verify(chosen: Arguments) -> int:
    try:
        needs_torch.loaded("aotviz.comparing.command", "verify")
    except needs_torch.NeedsTorch as error:
        raise CommandError(str(error)) from error
    from aotviz.comparing import command  # imports torch, which reading commands do not need

    try:
        return command.run(chosen.program, chosen.inputs, chosen.backend)
    except command.NoProgram as error:
        raise CommandError(str(error)) from error


def _code_of_entries() -> cache_command.CodeOf | None:
    """What finds Inductor's code for an export; None on a machine without torch."""
    try:
        from aotviz.frontends import shared_code  # imports torch, which no other command of the cache needs
    except ImportError:
        return None
    return shared_code.of_entry


def _cache(chosen: Arguments) -> int:
    try:
        return cache_command.run(chosen, _code_of_entries)
    except (cache_command.NoSuchKey, cache_command.Unavailable) as error:
        raise CommandError(str(error)) from error


def _count(text: str) -> int:
    if (number := int(text)) < 1:
        raise ValueError
    return number


class CommandError(Exception):
    """Printed in one line, with exit status 2."""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="aotviz", description="Watch AOTAutograd compile a program, stage by stage.")
    top.add_argument("--version", action="version", version=f"aotviz {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    made = {name: commands.add_parser(name, help=text) for name, (text, _) in COMMANDS.items()}
    for name, (_, run) in COMMANDS.items():
        made[name].set_defaults(run=run)
    for name in ("show", "report", "save", "trace", "open", "explain"):
        add = made[name].add_argument
        if name in ("show", "explain"):
            add("path", metavar="PATH", nargs="?", help=f"{RECORDING}; with --latest, by default that of TORCH_TRACE")
            add("--latest", action="store_true", help="only the logs of the latest run in the folder")
        else:
            add("path", metavar="PATH", help=RECORDING)
        add("--limit-mb", type=int, metavar="N", help="MiB that a compressed log may unpack to")
        add("--jobs", type=_count, metavar="N", help="processes that read several large logs (default: all processors)")

    add = made["demo"].add_argument
    add("--layers", type=int, default=2, metavar="N", help="transformer layers (default: 2)")
    runs = "what runs the graphs (default: inductor; eager where there is no C++ compiler)"
    add("--backend", choices=("inductor", "eager"), help=runs)
    where = "where demo.aotviz and demo.html go (default: here)"
    add("--out", type=Path, default=Path("."), metavar="DIR", help=where)

    add = made["report"].add_argument
    add("-o", "--out", type=Path, metavar="OUT.html", help="default: PATH with the suffix .html")
    add("--force", action="store_true", help="write OUT.html even if it exists")

    add = made["save"].add_argument
    add("-o", "--out", type=Path, metavar="OUT.aotviz", help="default: PATH with the suffix .aotviz")
    add("--force", action="store_true", help="write OUT.aotviz even if it exists")
    for name in ("report", "save"):
        without = "for strangers: without source lines, names, paths, strings and generated code"
        made[name].add_argument("--redact", action="store_true", help=without)

    add = made["trace"].add_argument
    formats = "JSON if it ends in .json or .json.gz, else Perfetto's protobuf"
    add("-o", "--out", type=Path, metavar="OUT", help=f"{formats} (default: PATH with the suffix .json)")
    add("--force", action="store_true", help="write OUT even if it exists")

    add = made["open"].add_argument
    add("--port", type=int, default=0, help="of the loopback interface (default: any that is free)")
    add("--no-browser", action="store_true", help="print the address only")

    add = made["explain"].add_argument
    add("-c", "--compilation", metavar="ID", help='all about one compilation, e.g. "0/3"')
    add("--earlier", metavar="PATH", help="logs of an earlier run, to say why caches missed since")
    add("--all", action="store_true", help=f"more than the first {MOST_TOLD} points")

    add = made["verify"].add_argument
    add("program", metavar="MODULE:FUNCTION", help="a function or nn.Module; MODULE may be a file")
    what = "a function in MODULE that returns the arguments: a tuple, or a dict of keyword arguments"
    default = "(default: FUNCTION_inputs; without one, the program is called without arguments)"
    add("--inputs", metavar="NAME", help=f"{what} {default}")
    add("--backend", choices=("inductor", "eager"), default="eager", help="what runs the graphs")

    cache_command.add_arguments(made["cache"])
    return top


COMMANDS: dict[str, tuple[str, Callable[[Arguments], int]]] = {
    "demo": ("a GPT-2 training step through the whole pipeline, compared with eager", _demo),
    "show": ("print a recording", _show),
    "report": ("make one self-contained HTML page of a recording", _report),
    "save": ("write a recording of logs as one file, for strangers with --redact", _save),
    "trace": ("write a timeline of all ranks for ui.perfetto.dev or chrome://tracing", _trace),
    "open": ("show a recording in the browser of this machine", _open),
    "explain": ("say why it recompiled, broke graphs or missed the cache", _explain),
    "verify": ("compare a call with eager and with torch's own AOTAutograd", _verify),
    "cache": ("list, explain, check, move or clear the programs compiled before", _cache),
}


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = parser().parse_args(arguments)
    try:
        return int(chosen.run(chosen))
    except BrokenPipeError:  # `aotviz show FILE | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (CommandError, RecordingError, FrontEndMissing, OSError) as error:
        print(f"aotviz {chosen.command}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
