"""`python -m aotviz cache`: what the store holds, why two keys differ, whether all of it is sound, and moving it.

Texts of a cache may come from a stranger's export, so what a terminal would obey is not printed.
"""

from __future__ import annotations

import argparse
import difflib
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from aotviz.cache.seals import VARIABLE, seals_of_environment
from aotviz.cache.store import CacheWarning, CodeOf, Held, Kept, Store, Unavailable
from aotviz.recording import user_folder

KEY_CHARACTERS = 12  # of a digest, in a list
PROGRAM_CHARACTERS = 44  # of a program, in a list
SHORT_CHARACTERS = 100  # a text of one line up to this long is printed beside its name
LONG_LINES = 8  # of a longer text, without --all


class NoSuchKey(Exception):
    """A KEY on the command line is the beginning of no key, or of several. The message is one line."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    where = argparse.ArgumentParser(add_help=False)
    where.add_argument(
        "--folder", type=Path, metavar="F", help="the cache's (default: AOTVIZ_CACHE_DIR, or the user's)"
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    made = {}
    for name, (text, action) in ACTIONS.items():
        made[name] = actions.add_parser(name, help=text, description=text.capitalize() + ".", parents=[where])
        made[name].set_defaults(act=action)
    key = "from `aotviz cache ls`; the beginning of one will do"
    made["show"].add_argument("key", metavar="KEY", help=key)
    made["explain"].add_argument("first", metavar="A", help=f"a key {key}")
    made["explain"].add_argument("second", metavar="B", help="another")
    for name in ("show", "explain"):
        made[name].add_argument("--all", action="store_true", help="whole texts, however long")
    made["export"].add_argument("file", type=Path, metavar="FILE", help="to write; it holds all entries")
    made["export"].add_argument("--force", action="store_true", help="write FILE even if it exists")
    made["import"].add_argument("file", type=Path, metavar="FILE", help="of `aotviz cache export`")
    made["import"].add_argument(
        "--trust-code", action="store_true", help="take the code that Inductor compiled, too: it runs in your process"
    )


def run(chosen: argparse.Namespace, code: Callable[[], CodeOf | None] = lambda: None) -> int:
    """Print what was asked for, and return the exit status. Raises NoSuchKey, Unavailable and OSError.

    `code` loads what finds the compiler's code of an entry; that takes torch, and only an export asks for it.
    """
    store = Store(chosen.folder or user_folder.folder(), seals=seals_of_environment())
    chosen.code = code
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", CacheWarning)
        try:
            status: int = chosen.act(store, chosen)
        finally:
            store.close()
            for warning in told:
                print(f"aotviz cache: {printable(str(warning.message))}", file=sys.stderr)
    return status


def _list(store: Store, chosen: argparse.Namespace) -> int:
    kept = store.keys()
    if not kept:
        print(f"The cache in {store.folder} is empty.")
        return 0
    rows = [("KEY", "PROGRAM", "ENTRIES", "BACKWARD", "SIZE", "LAST USED")]
    for key in kept:
        backward = "yes" if "backward" in key.parts else "no"
        digest = printable(key.key[:KEY_CHARACTERS])
        rows.append((digest, _program(key), str(key.entries), backward, size(key.bytes), when(key.used)))
    print("\n".join(aligned(rows)))
    entries = counted(sum(key.entries for key in kept), "entry", "entries")
    print(f"\n{counted(len(kept), 'key')}, {entries}, {size(sum(key.bytes for key in kept))} in {store.folder}")
    return 0


def _show(store: Store, chosen: argparse.Namespace) -> int:
    key = _resolved(store, chosen.key)
    print(f"key  {printable(key)}\n\nIngredients")
    for name, text in store.ingredients(key).items():
        print(_named(name, text, chosen.all))
    entries = store.held(key)
    print("\nEntries")
    guards = {entry.variant: store.part(entry, "guards") for entry in store.entries(key)}
    for held in entries:
        print(_entry(held, guards.get(held.variant), chosen.all))
    return 0


def _explain(store: Store, chosen: argparse.Namespace) -> int:
    keys = [_resolved(store, prefix) for prefix in (chosen.first, chosen.second)]
    ours, theirs = (store.ingredients(key) for key in keys)
    short = [printable(key[:KEY_CHARACTERS]) for key in keys]
    names = sorted({*ours, *theirs})
    differing = [name for name in names if ours.get(name) != theirs.get(name)]
    if not differing:
        print(f"{short[0]} and {short[1]} have the same ingredients.")
        return 0
    print(f"{short[0]} and {short[1]} differ in {len(differing)} of {counted(len(names), 'ingredient')}.")
    pairs = {name: (ours.get(name), theirs.get(name)) for name in differing}
    for name, texts in sorted(pairs.items(), key=lambda pair: (not are_short(pair[1]), pair[0])):
        print(f"\n{printable(name)}")
        if are_short(texts):
            for digest, text in zip(short, texts, strict=True):
                print(f"  {digest}  {'(no such ingredient)' if text is None else printable(text)}")
        else:
            print("\n".join(_difference(texts, short, chosen.all)))
    return 0


def _verify(store: Store, chosen: argparse.Namespace) -> int:
    found = store.verify()
    for line in found.damaged:
        print(printable(line))
    checked = f"{counted(found.entries, 'entry', 'entries')}, {size(found.bytes)} in {store.folder}"
    print(f"{checked}: {'what is damaged was removed' if found.damaged else 'nothing is damaged'}")
    return int(bool(found.damaged))


def _clear(store: Store, chosen: argparse.Namespace) -> int:
    print(f"removed {counted(store.clear(), 'entry', 'entries')} from {store.folder}")
    return 0


def _export(store: Store, chosen: argparse.Namespace) -> int:
    if chosen.file.exists() and not chosen.force:
        raise FileExistsError(f"{chosen.file} exists: choose another name, or --force to write over it")
    also = [Store(store.folder)] if store.is_signed else []  # what this user's processes kept without a secret
    done = store.export(chosen.file, chosen.code(), also)
    signed = f"signed with {VARIABLE}" if store.is_signed else "not signed"
    graphs = f"with the code of {counted(done.code, 'graph')}" if done.code else "without compiled code"
    print(f"wrote {counted(done.entries, 'entry', 'entries')} to {chosen.file}, {signed}, {graphs}")
    if done.damaged:
        print(f"left out {counted(done.damaged, 'damaged entry', 'damaged entries')}")
    if not store.is_signed:
        print(f"Who imports it trusts you, and everyone who can change the file on its way: {VARIABLE} signs it.")
    return 0


def _import(store: Store, chosen: argparse.Namespace) -> int:
    store.check_export(chosen.file)
    if not store.is_signed:
        print(f"{chosen.file} is not signed: importing it trusts its maker with what your programs compute.")
    done = store.import_(chosen.file, trusts_code=chosen.trust_code)
    processes = f", for processes that have {VARIABLE}" if store.is_signed else ""
    print(f"added {counted(done.added, 'new entry', 'new entries')} to {store.folder}{processes}")
    if done.code_left_out:
        graphs = counted(done.code_left_out, "graph")
        print(f"left out the compiled code of {graphs}, as it would run in your process: they are compiled here.")
        print("`--trust-code` takes it from a maker whose programs you run.")
    if done.damaged:
        other = ", or signed with another secret" if store.is_signed else ""
        print(f"left out {counted(done.damaged, 'entry', 'entries')}: damaged{other}")
    return int(done.damaged > 0)


ACTIONS: dict[str, tuple[str, Callable[[Store, argparse.Namespace], int]]] = {
    "ls": ("list the keys, the last used first", _list),
    "show": ("print a key's ingredients, entries and guards", _show),
    "explain": ("say which ingredients of two keys differ", _explain),
    "verify": ("compare all checksums, and remove what is damaged", _verify),
    "clear": ("remove everything", _clear),
    "export": ("write everything to one file", _export),
    "import": ("add what another machine exported", _import),
}


def _resolved(store: Store, prefix: str) -> str:
    """The key that begins with `prefix`. Raises NoSuchKey."""
    found = store.matching(prefix.lower()) if prefix else []
    if len(found) == 1:
        return found[0]
    if prefix.lower() in found:
        return prefix.lower()
    if found:
        raise NoSuchKey(f"{len(found)} keys begin with {prefix!r}: give more of it")
    raise NoSuchKey(f"no key begins with {prefix!r} in {store.folder}: `aotviz cache ls` lists them")


def _program(key: Kept) -> str:
    """The function of a key, or else the beginning of its graph, on one line of a list."""
    text = key.name or key.ingredients.get("program", "")
    line = printable(next((line for line in text.splitlines() if line.strip()), "-"))
    return line if len(line) <= PROGRAM_CHARACTERS else f"{line[: PROGRAM_CHARACTERS - 1]}…"


def _named(name: str, text: str, whole: bool) -> str:
    """An ingredient with its text: beside its name if short, else below it."""
    if is_short(text):
        return f"  {printable(name)}: {printable(text)}"
    return "\n".join([f"  {printable(name)}:", *_lines(text.splitlines(), whole)])


def _entry(held: Held, guards: bytes | None, whole: bool) -> str:
    parts = ", ".join(f"{printable(name)} {size(count)}" for name, count in held.parts.items())
    lines = [
        f"  variant {printable(held.variant[:KEY_CHARACTERS])}, created {when(held.created)}, used {when(held.used)}",
        f"    parts: {parts}",
    ]
    if guards is not None:
        lines.append(_indented(_named("guards", guards.decode("utf-8", "replace"), whole)))
    return "\n".join(lines)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def _lines(lines: Sequence[str], whole: bool, limit: int = LONG_LINES) -> list[str]:
    """The first lines of a long text, cut to the width of a terminal unless it is wanted whole."""
    if whole:
        return [f"    {printable(line)}" for line in lines]
    shown = [printable(line) for line in lines[:limit]]
    cut = [line if len(line) <= SHORT_CHARACTERS else f"{line[:SHORT_CHARACTERS]}…" for line in shown]
    left = len(lines) - len(cut)
    return [f"    {line}" for line in cut] + ([f"    ({counted(left, 'more line')}: --all)"] if left else [])


def _difference(texts: Sequence[str | None], names: Sequence[str], whole: bool) -> list[str]:
    """A unified diff of two long texts."""
    first, second = ([] if text is None else text.splitlines() for text in texts)
    lines = list(difflib.unified_diff(first, second, names[0], names[1], lineterm=""))
    return _lines(lines or ["(they differ in the ends of lines)"], whole, 5 * LONG_LINES)


def is_short(text: str) -> bool:
    return len(text) <= SHORT_CHARACTERS and len(text.splitlines()) <= 1


def are_short(texts: Iterable[str | None]) -> bool:
    return all(text is None or is_short(text) for text in texts)


def printable(text: str) -> str:
    """`text` on one line, without what a terminal would obey.

    >>> printable("a\\x1b[2Jb\\ud800")
    'a\\\\x1b[2Jb\\\\ud800'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def size(count: int) -> str:
    """
    >>> size(999), size(48_123), size(2 * 2**30)
    ('999 bytes', '48.1 kB', '2.1 GB')
    """
    if count < 1000:
        return f"{count} bytes"
    value, units = count / 1000, iter("kB MB GB".split())
    unit = next(units)
    while value >= 999.95 and unit != "GB":
        value, unit = value / 1000, next(units)
    return f"{value:.1f} {unit}"


def when(seconds: float) -> str:
    """A time of day here; a damaged one is a dash."""
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
    except (ValueError, OverflowError, OSError):
        return "-"


def counted(count: int, one: str, many: str = "") -> str:
    """
    >>> counted(1, "key"), counted(1200, "key"), counted(0, "entry", "entries")
    ('1 key', '1,200 keys', '0 entries')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    """Rows of a table with columns two spaces apart."""
    rows = list(rows)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


__all__ = ["CodeOf", "NoSuchKey", "Unavailable", "add_arguments", "run"]
