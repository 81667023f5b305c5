"""The last statement of a graph that torch printed when tracing failed: it is the one that failed.

Torch prints a value's type once it has a fake value. So a statement without a type is an operator that raised; and a
last statement whose value is a symbolic condition is one that Python asked for its truth.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

USER_LINE = re.compile(r"# File: (?P<place>.{0,1000}?:\d+) in (?P<function>\S{1,1000}?)(?:, code: (?P<code>.*))?$")
STATEMENT = re.compile(r'(?P<name>\w+)(?:: "(?P<type>[^"]*)")? = (?P<call>.+)')
OPERATOR = re.compile(r"torch\.ops\.(?P<operator>\w+\.\w+)(?:\.\w+)?\(")
PARAMETER = re.compile(r'\b(\w+): "([^"]*)"')


@dataclass(frozen=True)
class Statement:
    """One statement of a printed graph."""

    code: str = ""  # without what comes after a semicolon
    type: str = ""  # of its value, as torch prints it; "" if torch had none
    operator: str = ""  # "corpus.no_fake"; "" if it calls another function
    place: str = ""  # the user's line, "model.py:7"
    source: str = ""  # its code
    types: dict[str, str] = field(default_factory=dict)  # of the values that it takes

    @property
    def condition(self) -> str:
        """The symbolic expression that it computes: "u0 > 3"."""
        return self.type.removeprefix("Sym(")[:-1] if self.type.startswith("Sym(") else ""


def last_line(text: str) -> Statement:
    """The last statement that is not the graph's return.

    >>> last_line('def forward(self, x: "f32[2]"):\\n    # File: a.py:3 in f, code: n = f(x)\\n    y = f(x)').place
    'a.py:3'
    """
    types, found = dict(PARAMETER.findall(text.partition("):")[0])), Statement()
    for line, place, source in _lines(text):
        if not (match := STATEMENT.match(line.partition(";")[0])):
            continue
        operator = OPERATOR.match(match["call"])
        found = Statement(
            match[0],
            match["type"] or "",
            operator["operator"] if operator else "",
            place,
            source,
            {name: types[name] for name in re.findall(r"\w+", match["call"]) if name in types},
        )
        types[match["name"]] = match["type"] or ""
    return found


def _lines(text: str) -> Iterator[tuple[str, str, str]]:
    """(line, place, code) of each line of a printed graph, with the user's line that it is of; "" before the first."""
    place = code = ""
    for line in map(str.strip, text.splitlines()):
        if where := USER_LINE.search(line):
            place, code = where["place"], (where["code"] or "").strip()
        yield line, place, code


def line_of_statement(text: str, statement: str) -> tuple[str, str]:
    """(place, code) of the user's line of a statement of a printed graph; empty if it is not there.

    >>> line_of_statement('# File: a.py:3 in f, code: y = x + 2\\nadd: "f32[2]" = x + 2;  x = None', "add = x + 2")
    ('a.py:3', 'y = x + 2')
    """
    wanted = STATEMENT.match(statement)
    for line, place, code in _lines(text if wanted else ""):
        found = STATEMENT.match(line.partition(";")[0])
        if wanted and found and place and (found["name"], found["call"]) == (wanted["name"], wanted["call"]):
            return place, code
    return "", ""


def line_of_operator(text: str, operator: str) -> tuple[str, str]:
    """(place, code) of the user's first line that calls an operator in a printed graph; empty if none does.

    >>> line_of_operator("# File: a.py:3 in f, code: y = my(x)\\ny = torch.ops.my.f.default(x)", "my.f")
    ('a.py:3', 'y = my(x)')
    """
    for line, place, code in _lines(text):
        if f"torch.ops.{operator}" in line and not line.startswith("#") and place:
            return place, code
    return "", ""
