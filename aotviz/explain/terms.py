"""What each word of the workbench means: `aotviz.what_is("donated")`.

The words are in terms.toml, and nowhere else. The glossary, the page about the stages and the workbench's tooltips are
made from it by docs/write_terms.py (`make terms`).
"""

from __future__ import annotations

import difflib
import html
import re
import textwrap
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources

from aotviz.explain.explanation import in_html

KINDS = {  # group in terms.toml -> what its terms are, in one word or two
    "stages": "stage",
    "whole_backward": "stage of a whole backward",
    "torchs_stages": "stage in torch's logs",
    "forms": "form",
    "tabs": "view",
    "badges": "badge",
    "columns": "column",
    "colours": "colour or line",
    "words": "word",
}
WIDTH = 100  # characters of a line in a terminal
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


@dataclass(frozen=True)
class Term:
    """One meaning of a word of the workbench."""

    name: str
    group: str  # a key of KINDS
    text: str  # two sentences, with `code` in backticks and links of Markdown
    before: str  # a program of at most three lines; "" if this is not a stage
    after: str
    shown: tuple[str, ...]  # the texts that the workbench shows for it; "*" stands for any text

    @property
    def kind(self) -> str:
        return KINDS[self.group]

    @property
    def plain(self) -> str:
        """`text` without the links."""
        return LINK.sub(r"\1", self.text)

    def is_called(self, text: str) -> bool:
        """Whether the workbench, or a person, means this term by `text`."""
        asked = _spelt(text)
        return any(re.fullmatch(_pattern(name), asked) for name in (*self.shown, self.name))


@dataclass(frozen=True, repr=False)
class Meaning:
    """All meanings of a word. It prints itself, and a notebook shows it as HTML."""

    terms: tuple[Term, ...]

    def __str__(self) -> str:
        return "\n\n".join(map(_as_text, self.terms))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return "".join(map(_as_html, self.terms))


class UnknownTerm(LookupError):
    """The workbench has no such word; the message names similar ones."""


@cache
def terms() -> tuple[Term, ...]:
    """All terms, in the order of terms.toml."""
    groups = tomllib.loads(resources.files("aotviz.explain").joinpath("terms.toml").read_text(encoding="utf-8"))
    return tuple(_term(name, group, said) for group, members in groups.items() for name, said in members.items())


def what_is(word: str) -> Meaning:
    """What a stage, badge, column, colour or other word of the workbench means. Raises UnknownTerm.

    >>> import aotviz
    >>> print(aotviz.what_is("donated"))
    donated (badge)
      The backward may overwrite the memory of this saved tensor, because nothing else reads it afterwards. With
      `retain_graph=True`, another backward runs, which donates nothing.
    """
    found = tuple(term for term in terms() if _spelt(term.name) == _spelt(word))
    found = found or tuple(term for term in terms() if term.is_called(word))
    if not found:
        raise UnknownTerm(_unknown(word))
    return Meaning(found)


def _term(name: str, group: str, said: str | dict[str, object]) -> Term:
    fields = {"text": said} if isinstance(said, str) else said
    shown = fields.get("shown", [name])
    assert isinstance(shown, list)
    before, after = (str(fields.get(part, "")).strip("\n") for part in ("before", "after"))
    return Term(name, group, str(fields["text"]), before, after, tuple(shown))


def _spelt(text: str) -> str:
    return " ".join(text.lower().replace("_", " ").split())


def _pattern(name: str) -> str:
    return re.escape(_spelt(name)).replace(r"\*", ".*")


def _unknown(word: str) -> str:
    names = {_spelt(term.name): term.name for term in terms()}
    parts = {part: name for spelt, name in names.items() for part in (spelt, *re.split(r"[,/ ]+", spelt)) if part}
    near = [parts[match] for match in difflib.get_close_matches(_spelt(word), parts, n=6, cutoff=0.6)]
    said = ", ".join(f"{name!r}" for name in dict.fromkeys(near))
    advice = f"Similar words: {said}." if said else "docs/glossary.md lists all of them."
    return f"{word!r} is no word of the workbench. {advice}"


def _as_text(term: Term) -> str:
    lines = [
        f"{term.name} ({term.kind})",
        textwrap.fill(term.plain, WIDTH + 10, initial_indent="  ", subsequent_indent="  "),
    ]
    if term.before:
        for title, code in (("before", term.before), ("after", term.after)):
            lines += [f"  {title}:", textwrap.indent(code, "    ")]
    return "\n".join(lines)


def _as_html(term: Term) -> str:
    parts = [f"<p><b>{html.escape(term.name)}</b> ({html.escape(term.kind)})<br>{in_html(term.plain)}</p>"]
    if term.before:
        cells = "".join(
            f"<td style='text-align:left;vertical-align:top'>{title}<pre>{html.escape(code)}</pre></td>"
            for title, code in (("before", term.before), ("after", term.after))
        )
        parts.append(f"<table><tr>{cells}</tr></table>")
    return f"<div>{''.join(parts)}</div>"
