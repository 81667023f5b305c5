"""Writes what is made from aotviz/explain/terms.toml: glossary.md, stages.md, and the words of the front end.

python docs/write_terms.py            write them (`make terms`)
python docs/write_terms.py --check    exit 1 if one of them is out of date
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from aotviz.explain.terms import Term, terms, what_is

ROOT = Path(__file__).resolve().parents[1]
GLOSSARY, STAGES, WORDS, PROGRAMS = (
    ROOT / "docs/glossary.md",
    ROOT / "docs/stages.md",
    ROOT / "extensions/core/src/terms/words.ts",
    ROOT / "extensions/core/src/editor/programs.ts",
)
MADE_FOR_PAGES = "// Made from aotviz/explain/terms.toml by `make terms`; do not edit.\n\n"
MADE = "<!-- made from aotviz/explain/terms.toml by `make terms` -->"
EXAMPLES = ", with an example of each on the page about [the stages](stages.md)"
SECTIONS = {  # group -> (title in the glossary, the head of its first column, a sentence above the table)
    "words": ("Words", "word", ""),
    "stages": ("Stages", "stage", f"In the order of the pipeline{EXAMPLES}."),
    "whole_backward": (
        "Stages of a whole backward",
        "stage",
        "In order, for what `aotviz.compiled_autograd` captured. `aotviz/whole_backward/backward_stages.py` has the "
        "list.",
    ),
    "torchs_stages": (
        "Stages in torch's logs",
        "stage",
        "Beside those above, for what `aotviz.watch` and `aotviz.read_trace` recorded.",
    ),
    "forms": ("Forms", "form", "What a stage returns, at the head of the stage."),
    "tabs": ("Tabs of the workbench", "tab", ""),
    "badges": ("Badges of the workbench", "badge", ""),
    "columns": ("Columns of the workbench", "column", ""),
    "colours": ("Colours and lines of the workbench", "legend", ""),
}


def of(group: str) -> list[Term]:
    return [term for term in terms() if term.group == group]


def glossary() -> str:
    parts = [
        "# Glossary",
        MADE,
        "Words that aotviz uses in messages, tables, the generated code and the workbench. Words of torch\n"
        "(FakeTensor, tangent, partitioner, functionalization, grad mode) have torch's meaning.\n"
        'In the workbench: the tooltips, and the "?" at the top right. In Python:',
        '```python\nimport aotviz\n\nprint(aotviz.what_is("donated"))\n```',
        f"```text\n{what_is('donated')}\n```",
    ]
    for group, (title, head, sentence) in SECTIONS.items():
        rows = [f"| {term.name} | {term.text} |" for term in of(group)]
        parts += [
            f"## {title}",
            *([sentence] if sentence else []),
            "\n".join([f"| {head} | meaning |", "| --- | --- |", *rows]),
        ]
    return "\n\n".join(parts) + "\n"


def stages() -> str:
    parts = [
        "# The stages",
        MADE,
        "What each stage does, with a small program before and after it.\n"
        "The [glossary](glossary.md) has the other words. "
        'In Python: `aotviz.what_is("functionalize")`. In the workbench: "What is this?" beside the name of the stage.',
    ]
    for group in ("stages", "whole_backward", "torchs_stages"):
        title, _, sentence = SECTIONS[group]
        parts += [f"## {title}", sentence.replace(EXAMPLES, "")]
        for term in of(group):
            parts += [
                f"### {term.name}",
                term.text,
                f"Before:\n\n```\n{term.before}\n```",
                f"After:\n\n```\n{term.after}\n```",
            ]
    return "\n\n".join(parts) + "\n"


def words() -> str:
    groups = dict.fromkeys(term.group for term in terms())
    return (
        f"{MADE_FOR_PAGES}"
        "/** By group: name, two sentences, what else is shown for it. */\n"
        "// prettier-ignore\n"
        "export const WORDS: Readonly<\n"
        "  Record<string, readonly (readonly [string, string, (readonly string[])?])[]>\n"
        "> = {\n" + "".join(f"  {group}: [\n{''.join(map(row, of(group)))}  ],\n" for group in groups) + "};\n"
    )


def programs() -> str:
    """A program before and after each stage, by the id that the front end gives the stage."""
    made = {f"stages/{term.name}": (term.before, term.after) for term in terms() if term.before}
    rows = (f"  {json.dumps(name)}: {json.dumps(both, ensure_ascii=False)},\n" for name, both in made.items())
    return (
        f"{MADE_FOR_PAGES}/** A program before and after each stage, by the id of its term. */\n// prettier-ignore\n"
        "export const PROGRAMS: Readonly<Record<string, readonly [string, string]>> = {\n" + "".join(rows) + "};\n"
    )


def row(term: Term) -> str:
    parts = [term.name, term.plain, [text for text in term.shown if text != term.name]]
    while not parts[-1]:
        parts.pop()
    return f"    {json.dumps(parts, ensure_ascii=False)},\n"


def main() -> int:
    made = {GLOSSARY: glossary(), STAGES: stages(), WORDS: words(), PROGRAMS: programs()}
    stale = [path for path, text in made.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        if "--check" not in sys.argv:
            path.parent.mkdir(exist_ok=True)
            path.write_text(made[path], encoding="utf-8")
        print(f"{path.relative_to(ROOT)} {'is out of date: make terms' if '--check' in sys.argv else 'written'}")
    return int(bool(stale) and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
