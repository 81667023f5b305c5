"""Parse guards and recompile reasons from the texts that torch logs.

If torch knows the user's line that made a guard, the guard's text ends in a comment with that line:
`n == 2    # y = x.sin() * n  # model.py:4 in f`. In newer releases a "User stack trace:" follows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

PLACE = re.compile(r"\S.{0,1000}:\d+ in \S.{0,1000}")  # "file:line in function"
NO_PLACE = re.compile(r"(?<!\s)\s++# \(unknown (?:source|var) .{1,1000}, please file a bug\)\Z")  # torch lost the line
HINTS = (" (HINT: ", " (user code shown is ")  # in brackets after a guard
STACK = re.compile(r"\n(?:User stack trace|User code traceback):\n")
EARLIER = re.compile(r"(?P<id>!?\d+(?:/\d+)*): (?P<rest>.*)", re.S)
LEAF = re.compile(r"^(?P<bars>[| ]*)\+- (?P<kind>[A-Za-z_]+)(?:: (?P<text>.*))?$")
FAILED = re.compile(r"guard (?:of (?P<id>\S+) )?failed: (?P<guard>.*)", re.S)  # matches what `told` returns
ALSO = "; also "  # between the guards of one program
NOW = re.compile(r"(?P<guard>(?!.*\)\Z).*|.*?)(?: \(now (?P<now>.*)\))?", re.S)
LOCAL = re.compile(r"\bL\[(?P<quote>['\"])(?P<name>\w+)(?P=quote)\]")  # a local variable, as Dynamo writes it
MOST_TOLD = 12  # guards that are shown for one program
LONGEST = 400  # characters that are shown of one guard
BEFORE_VALUES = (" == ", "expected ", ", ")  # in a reason
NEWEST, OLDEST = 6, 2  # reasons of one form that are kept
SOURCE = re.compile(r"source=(?P<source>.{0,2000}?), (?:accessed_by|type)=")


def with_article(kind: str) -> str:
    """
    >>> with_article("float"), with_article("int"), with_article("NoneType")
    ('a float', 'an int', 'None')
    """
    if kind in ("None", "NoneType"):
        return "None"
    return f"{'an' if kind[:1] in 'aeioAEIO' else 'a'} {kind}"


@dataclass(frozen=True)
class Made:
    """A guard, and the user's line that made it."""

    guard: str
    code: str
    place: str
    stack: str
    hint: str

    def numbers(self, add: Callable[[str | None], int], stack: str = "") -> tuple[int, int, int, int]:
        """The text numbers of guard, code, place and stack: `stack`, if it is known, or the one in the guard's text."""
        return add(self.guard), add(self.code or None), add(self.place or None), add(stack or self.stack or None)


def made(text: str) -> Made:
    """Split a guard's text into the guard and the parts of its comment.

    >>> made("n == 2        # y = x.sin() * n  # model.py:4 in f")
    Made(guard='n == 2', code='y = x.sin() * n', place='model.py:4 in f', stack='', hint='')
    >>> made("L['x'].stride()[0] == 8  # (unknown source L['x'].stride()[0], please file a bug)").guard
    "L['x'].stride()[0] == 8"
    >>> made("tensor 'x' size mismatch at index 0. expected 4, actual 5").place
    ''
    """
    parts = STACK.split(text, maxsplit=1)
    stack = parts[1].rstrip() if len(parts) > 1 else ""
    line, hint = NO_PLACE.sub("", parts[0].strip()), ""
    if line.endswith(")") and (at := max(map(line.rfind, HINTS))) >= 0:
        line, hint = line[:at], line[at + 2 : -1]
    before, hash_sign, place = line.rpartition("  # ")
    if not hash_sign or not PLACE.fullmatch(place.strip()):
        return Made(line, "", "", stack, hint)
    guard, _, code = before.partition("  # ")  # the user's line may have a comment of its own
    return Made(guard.strip(), code.strip(), place.strip(), stack, hint)


def reasons(payload: str) -> list[str]:
    """The reasons in the payload of a `recompile_reasons` artifact, as logged."""
    try:
        found = msgspec.json.decode(payload)
    except ValueError:
        found = payload
    return [text for text in (map(str, found) if isinstance(found, list) else [payload]) if text]


def telling(reasons: Sequence[str]) -> list[str]:
    """Those of the reasons for one recompile that are worth keeping: of each form, the newest and the oldest.

    The thousandth program of a function has 999 reasons, most of which differ only in a number.

    >>> telling([f"0/{n}: n == {n}" for n in range(99, -1, -1)] + ["0/0: k == 1"])
    ... # doctest: +NORMALIZE_WHITESPACE
    ['0/99: n == 99', '0/98: n == 98', '0/97: n == 97', '0/96: n == 96', '0/95: n == 95', '0/94: n == 94',
     '0/1: n == 1', '0/0: n == 0', '0/0: k == 1']
    """
    if len(reasons) <= NEWEST + OLDEST:
        return list(reasons)
    forms: dict[str, list[int]] = {}
    for number, reason in enumerate(reasons):
        form = reason.partition(": ")[2] or reason
        for mark in BEFORE_VALUES:
            form = form.partition(mark)[0]
        forms.setdefault(form, []).append(number)
    kept = (those[:NEWEST] + those[NEWEST:][-OLDEST:] for those in forms.values())
    return [reasons[number] for number in sorted(number for those in kept for number in those)]


def of_program(reason: str) -> tuple[str, str]:
    """The compile id of the program that a logged reason is about ("" if it does not say), and the failed guard.

    >>> of_program("0/0: n == 2")
    ('0/0', 'n == 2')
    """
    match = EARLIER.fullmatch(reason)
    return (match["id"], match["rest"]) if match else ("", reason)


def told(reason: str) -> str:
    """A logged reason as the list of compilations shows it: the program that did not match, and its guard.

    >>> told("0/0: n == 2  # y = x.sin() * n  # model.py:4 in f")
    'guard of 0/0 failed: n == 2'
    """
    program, guard = of_program(reason)
    return f"guard{f' of {program}' if program else ''} failed: {made(guard).guard[:LONGEST]}"


def told_all(compile_id: str, failed: Sequence[tuple[str, str]]) -> str:
    """The guards of a program that failed for a call, each with the current value, for the list of compilations.

    >>> told_all("0/0", [("L['n'] == 2", "3"), ("len(L['seen']) == 1  # return seen  # model.py:4 in f", "2")])
    'guard of 0/0 failed: n == 2 (now 3); also len(seen) == 1 (now 2)'
    """
    told = []
    for text, now in failed[:MOST_TOLD]:
        guard = LOCAL.sub(r"\g<name>", made(text).guard)[:LONGEST]
        told.append(f"{guard} (now {now})" if now and not guard.endswith(f" to {now}") else guard)
    more = [f"{len(failed) - MOST_TOLD} others"] * (len(failed) > MOST_TOLD)
    return f"guard of {compile_id} failed: {ALSO.join([*told, *more])}"


def parts(said: str) -> list[tuple[str, str]]:
    """(guard, current value) of each guard that `told` or `told_all` lists after "failed:".

    >>> parts("n == 2 (now 3); also len(seen) == 1")
    [('n == 2', '3'), ('len(seen) == 1', '')]
    """
    found = [NOW.fullmatch(part) for part in said.split(ALSO)]
    return [(match["guard"], match["now"] or "") for match in found if match]


def refused(said: str) -> list[str]:
    """The guard that each program failed, in an error in place of a recompile.

    >>> refused("Recompiling function f in a.py:1\\n    triggered by ...:\\n    - 0/0: x is None")
    ['0/0: x is None']
    """
    return re.findall(r"^ *- (\d+/\d+: .*)$", said, re.M)


def tree(payload: str) -> Iterator[tuple[str, str, str]]:
    """(kind, source, text) of each check in the tree of guards that Dynamo prints.

    The line of a guard manager names its source; its checks are one level deeper.
    """
    sources: list[tuple[int, str]] = []
    for line in payload.split("\n"):
        match = LEAF.match(line)
        if match is None:
            continue
        depth, kind, text = len(match["bars"]), match["kind"], match["text"] or ""
        while sources and sources[-1][0] >= depth:
            sources.pop()
        if kind.endswith("Manager") or "accessed_by=" in text:
            source = SOURCE.search(text)
            sources.append((depth, source["source"] if source else ""))
        elif text:
            yield kind, sources[-1][1] if sources else "", text
