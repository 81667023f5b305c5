"""A judged prediction, as a notebook and a terminal show it. Needs no torch.

What was not predicted is not shown: of such a question only what kind of answer is expected. The reasons come when all
questions of a puzzle are answered, because the reason for one may be the answer to another.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from aotviz.explain.explanation import in_html


class Outcome(StrEnum):
    """What became of one question."""

    RIGHT = "right"
    WRONG = "wrong"
    NOTED = "noted"  # in an exam: it is judged later
    UNANSWERED = "not answered yet"
    UNCLEAR = "another kind of answer is expected"  # the answer cannot be compared
    NO_QUESTION = "this cannot be asked"  # the expression has no value


MARKS = {Outcome.RIGHT: "✓", Outcome.WRONG: "✗", Outcome.NOTED: "✓"}
BACKGROUNDS = {Outcome.RIGHT: "rgba(46,160,67,.25)", Outcome.WRONG: "rgba(218,54,51,.25)"}  # on light and dark
CELL = "text-align:left;vertical-align:top;padding:.3em .8em .3em 0;border:0;background:transparent"
CODE = "white-space:pre-wrap"  # in a narrow notebook the verdict must stay in sight
QUESTION = f"{CODE};overflow-wrap:anywhere"
JUDGED = (Outcome.RIGHT, Outcome.WRONG)


@dataclass(frozen=True)
class Answered:
    """One question with what was predicted."""

    question: str  # a Python expression
    answer: str
    outcome: Outcome
    right: str = ""  # the right answer; "" if it is not judged
    compiled: str = ""  # what eager's value is with the compiled program; "" if the right answer is not eager's
    note: str = ""  # what is expected, or why it cannot be asked

    @property
    def said(self) -> str:
        mark = MARKS.get(self.outcome, "")
        note = f": {self.note}" if self.note else ""
        return f"{mark} {self.outcome}{note}".strip()


@dataclass(frozen=True, repr=False)
class Prediction:
    """The predictions of a puzzle, judged. A notebook shows it as a table, a terminal as lines."""

    title: str
    rows: tuple[Answered, ...]
    reasons: tuple[str, ...] = ()  # why it is so, as the recording says
    hint: str = ""  # what to do next

    @property
    def outcomes(self) -> dict[str, Outcome]:
        """What became of each question."""
        return {row.question: row.outcome for row in self.rows}

    def __repr__(self) -> str:
        lines = [self.title]
        for row in self.rows:
            answer = f" = {row.answer}" if row.answer else ""
            lines.append(f"  {row.question}{answer}: {row.said}")
            if row.outcome in JUDGED:
                compiled = f", compiled {row.compiled}" if row.compiled else ""
                lines.append(f"    answer {row.right}{compiled}")
        lines += [f"  - {reason}" for reason in self.reasons]
        return "\n".join([*lines, *([self.hint] if self.hint else [])])

    def _repr_html_(self) -> str:
        columns = {
            "question": [row.question for row in self.rows],
            "you": [row.answer for row in self.rows],
            "answer": [row.right for row in self.rows],
            "compiled": [row.compiled for row in self.rows],
        }
        columns = {name: values for name, values in columns.items() if any(values)}
        head = [*columns, ""]
        body = "".join(
            f"<tr style='background:transparent'>"
            f"{_row('td', [_code(question, QUESTION), *map(_code, values), _verdict(row)])}</tr>"
            for row, question, *values in zip(self.rows, *columns.values(), strict=True)
        )
        table = f"<table style='margin:0'><thead><tr>{_row('th', head)}</tr></thead><tbody>{body}</tbody></table>"
        items = "".join(f"<li>{in_html(reason)}</li>" for reason in self.reasons)
        why = f"<p style='margin:.6em 0 0'><b>Why</b>, as aotviz recorded it:</p><ul>{items}</ul>" if items else ""
        hint = f"<p style='margin:.6em 0 0'>{in_html(self.hint)}</p>" if self.hint else ""
        return f"<div>{table if self.rows else ''}{why}{hint}</div>"


def _verdict(row: Answered) -> str:
    background = BACKGROUNDS.get(row.outcome)
    style = f"background:{background};padding:0 .4em;border-radius:2px;white-space:nowrap" if background else ""
    return f"<span style='{style}'>{html.escape(row.said)}</span>"


def _row(tag: str, cells: Sequence[str]) -> str:
    return "".join(f"<{tag} style='{CELL}'>{cell}</{tag}>" for cell in cells)


def _code(text: str, style: str = CODE) -> str:
    return f"<code style='{style}'>{html.escape(text)}</code>" if text else ""
