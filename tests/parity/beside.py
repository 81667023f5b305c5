"""Rows of programs that run under `torch.compile`, by aotviz and by torch's `aot_eager`, each beside eager.

    Beside("jag(v, o).sin()#sum", lambda backend: differs(...)).case()

`differs` says what differs from eager with a backend: "" if nothing does, "in the call: ..." or "in the backward: ..."
if that raises an error, and otherwise the fact that differs, a colon, and more.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

import aotviz
import aotviz.frontends.backend
from tests.oracle.progress import Row

from .cases import Case

CANDIDATES = {"ours": "aotviz_eager", "torch": "aot_eager"}


@dataclass(frozen=True)
class Beside:
    """One program."""

    key: str
    differs: Callable[[str], str]

    def case(self) -> Case:
        return Case(self.key, self.judge)

    def judge(self) -> Row:
        row: Row = {}
        for name, backend in CANDIDATES.items():
            torch._dynamo.reset()
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                found = self.differs(backend)
            row[name] = {"status": status(found), "cause": cause(found), "text": found}
            if name == "ours":
                row["in_eager"] = sorted({str(one.message) for one in told if one.category is aotviz.RanInEager})
        right = {name: row[name]["status"] == "equal" for name in CANDIDATES}
        return {**row, "worse": right["torch"] > right["ours"], "better": right["ours"] > right["torch"]}


def status(difference: str) -> str:
    return "equal" if not difference else "raised" if difference.startswith("in the ") else "wrong"


def cause(difference: str) -> str:
    """A label that is the same in every run: no numbers, no addresses, no values."""
    if status(difference) == "wrong":
        return difference.partition(":")[0]
    return re.sub(r"\S*\d\S*", "#", difference.partition("\n")[0])[:110]


def in_eager(rows: Iterable[Row]) -> list[str]:
    """How many of the equal cases ran partly in eager after a refusal, or because Dynamo would be wrong."""
    equal = [row for row in rows if row.get("ours", {}).get("status") == "equal"]
    partly = sum(bool(row["in_eager"]) for row in equal)
    return [f"Of the {len(equal)} equal cases of aotviz, {partly} ran partly in eager, with a warning that says why."]
