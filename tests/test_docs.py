"""What the pages list is what the code has: stages, and links between pages. tests/ui/test_site.py builds the site."""

from __future__ import annotations

import ast
import json
import os
import re
import textwrap
import tomllib
from pathlib import Path

import pytest

import aotviz
from aotviz import pipeline
from aotviz.explain.terms import terms
from aotviz.logs import known
from aotviz.recording.replaying import GIVEN
from aotviz.torch_private import versions
from aotviz.whole_backward import backward_stages
from aotviz.whole_backward.compiled_parts import CompiledParts
from tests import page_examples

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
TRAINING, INFERENCE = (
    [stage.name for stage in stages if stage.needed is None] for stages in (pipeline.TRAINING, pipeline.INFERENCE)
)
SOMETIMES = [stage.name for stage in pipeline.TRAINING if stage.needed is not None]
LATE = [stage.name for stages in (pipeline.BACKWARD, pipeline.GRADIENT) for stage in stages]
WHOLE_BACKWARD = [
    backward_stages.CAPTURE,
    *(stage.name for stage in backward_stages.stages(CompiledParts(*[lambda *_: None] * 2))),
]
ALL = {"dynamo", GIVEN, *TRAINING, *INFERENCE, *SOMETIMES, *LATE, *(stage.name for stage in pipeline.EXPORT)}


def section(page: str, title: str) -> str:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.split(r"^## ", text.partition(f"## {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def test_each_stage_has_a_term_and_each_term_of_a_stage_is_one() -> None:
    named = {group: [term.name for term in terms() if term.group == group] for group in ("stages", "torchs_stages")}
    assert sorted(named["stages"]) == sorted(ALL)
    assert sorted({*known.CODE.values(), *(stage for stage, _ in known.GRAPHS.values())} - ALL) == sorted(
        named["torchs_stages"]
    )


def test_each_form_that_a_stage_returns_has_a_term() -> None:
    source = (ROOT / "aotviz/pipeline.py").read_text(encoding="utf-8")
    returned = set(re.findall(r"-> (\w+)(?:,.*)?$", source.partition("class Observer")[0], re.MULTILINE))
    assert returned <= {term.name for term in terms() if term.group == "forms"}


@pytest.mark.parametrize(
    ("page", "title"),
    [("glossary.md", "Stages of a whole backward"), ("compiled-autograd.md", "In the recording")],
)
def test_the_stages_of_a_whole_backward_are_listed_in_order(page: str, title: str) -> None:
    listed = re.findall(r"^\| ([^|]+) \|", section(page, title), re.MULTILINE)
    assert listed == ["stage", "---", *WHOLE_BACKWARD]


def test_the_page_lists_where_torchs_own_compiled_autograd_differs() -> None:
    from tests.compiled_autograd.test_torchs_own import DIFFERS

    page = section("compiled-autograd.md", "Beside torch's own compiled autograd")
    listed = re.findall(r"^\| (\w+) \| (differs|raises)", page, re.MULTILINE)
    assert dict(listed) == DIFFERS


def badges() -> set[str]:
    """The texts of the workbench's badges, from its sources; "*" stands for what a recording fills in."""
    found: set[str] = set()
    for path in sorted((ROOT / "extensions/core/src").rglob("*.ts")):
        source = path.read_text(encoding="utf-8")
        for text in re.findall(r"\bchip\(\s*(`[^`]*`|[^`,()]*(?:\([^()]*\))?[^`,()]*)", source):
            found |= {
                re.sub(r"\$\{[^}]*\}", "miss" if "cache" in one else "1", one) for one in re.findall(r"^`(.*)`$", text)
            }
            if not text.startswith("`"):
                found |= set(re.findall(r'"([^"]+)"', re.sub(r"[!=]== \"\w*\"", "", text)))
        for texts in re.findall(r"FATES: .*? = \{(.*?)\};", source, re.DOTALL):
            found |= set(re.findall(r"(\w+):", texts))
        for texts in re.findall(r"function endedAs.*?return (.*?);", source, re.DOTALL):
            found |= set(re.findall(r'"([^"]+)"', texts))
    return found


def test_each_badge_of_the_workbench_has_a_term() -> None:
    """Those too that no recording of tests/ui/test_terms.py shows."""
    known_badges = badges()
    assert {"data", "checked", "failed", "saved", "no change", "storage 1"} <= known_badges
    listed = [term for term in terms() if term.group == "badges"]
    assert not [badge for badge in known_badges if not any(term.is_called(badge) for term in listed)]


@pytest.mark.parametrize(
    "name", ["calls", "compile", "compiled_autograd", "explain", "first_compile", "step", "subclasses", "watching"]
)
def test_the_page_of_benchmarks_has_the_figures_of_the_file(name: str) -> None:
    page = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    (about,) = (part for part in page.split("\n## ") if re.match(rf"[^\n]*`{name}`", part))
    rows = json.loads((ROOT / "benchmarks/results" / f"{name}.json").read_text(encoding="utf-8"))["rows"]
    assert not [row["case"] for row in rows if f"{row['figure']:.3f}" not in about]


@pytest.mark.parametrize(("call", "stages"), [("with gradients", TRAINING), ("without gradients", INFERENCE)])
def test_the_page_about_stopping_lists_the_stages_in_their_order(call: str, stages: list[str]) -> None:
    page = (DOCS / "stepping.md").read_text(encoding="utf-8")
    (listed,) = re.findall(rf"^\| {call} \| (.*) \|$", page, re.MULTILINE)
    assert listed.split(", ") == stages
    assert all(f'"{name}"' in page for name in SOMETIMES)


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{path.name}" for path in sorted(DOCS.glob("*.md")))])
def test_stages_that_a_page_names_exist_and_its_links_lead_somewhere(page: str) -> None:
    path = ROOT / page
    text = path.read_text(encoding="utf-8")
    named = re.findall(r'\bstages? "([a-z ]+)"', text)
    assert set(named) <= {*ALL, *WHOLE_BACKWARD, "count matmuls"}
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text)]
    missing = [link for link in links if link and "://" not in link and not (path.parent / link).exists()]
    assert not missing


def images(text: str) -> set[str]:
    """The pictures that a page shows: in Markdown, or in HTML for a light and a dark one."""
    return {*re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", text), *re.findall(r'(?:src|srcset)="([^"]+)"', text)}


def test_each_picture_is_shown_and_each_shown_picture_exists() -> None:
    shown = {
        (page.parent / image).resolve()
        for page in [ROOT / "README.md", *DOCS.rglob("*.md")]
        for image in images(page.read_text(encoding="utf-8"))
    }
    kept = set((DOCS / "images").iterdir())
    assert not sorted(str(path) for path in shown - kept), "of these a page has the link, but the picture is not there"
    assert not sorted(str(path) for path in kept - shown), "no page shows these: delete them"


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda path: path.stem)
def test_a_page_has_a_picture_or_an_output(page: Path) -> None:
    """An output is a block without a language or with "text", or what a line of an example prints."""
    text = page.read_text(encoding="utf-8")
    languages = {language for language, _ in page_examples.blocks(text)}
    assert images(text) or {"", "text"} & languages or re.search(r"^print\(.*\)  # ", text, re.MULTILINE)


def test_each_picture_of_the_gallery_leads_to_a_page() -> None:
    gallery = (DOCS / "gallery.md").read_text(encoding="utf-8")
    linked = re.findall(r"\[!\[[^\]]+\]\([^)]+\)\]\((\S+\.md)[^)]*\)", gallery)
    assert len(linked) == len(images(gallery)) == 12
    assert all((DOCS / page).exists() for page in linked)


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda path: path.stem)
def test_the_python_of_a_page_is_python(page: Path) -> None:
    for language, code in page_examples.blocks(page.read_text(encoding="utf-8")):
        if language == "python":
            ast.parse(textwrap.dedent(code))


UNTIL = {  # pages that show what an older torch gets wrong, or names after nodes that a newer one does not trace
    "memory": "a trace has fewer nodes that compute sizes",
    "parity": "a dropout that drops nothing returns its input",
}
NEWER = {"compiling", "memory"}  # pages that print texts of Dynamo's or Inductor's
PRINTED = [page for page in sorted(DOCS.glob("*.md")) if "\n```text\n" in page.read_text(encoding="utf-8")]


@pytest.mark.parametrize("page", PRINTED, ids=lambda path: path.stem)
def test_a_page_prints_what_it_says(page: Path, capsys: pytest.CaptureFixture[str], clean_dynamo: None) -> None:
    """A ```text block is what the Python above it prints. Other Python may be pieces; the site runs what it can."""
    if page.stem in UNTIL and versions.has(UNTIL[page.stem]):
        pytest.skip(f"torch does better than the page says: {UNTIL[page.stem]}")
    if page.stem in NEWER and not versions.has("its texts are those of the newer releases"):
        pytest.skip("this torch says it in other words")
    text = page.read_text(encoding="utf-8")
    for at, expected in page_examples.printing(text).items():
        page_examples.run(page_examples.blocks(text)[at][1], page_examples.fresh())
        assert capsys.readouterr().out.strip("\n") == expected.strip("\n")


def layers() -> str:
    """The table of developing.md: the layers that import-linter checks, each with its docstring's first paragraph."""
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))
    ordered, without_torch, *_ = project["tool"]["importlinter"]["contracts"]
    rows = ["| folder | what it is | |\n| --- | --- | --- |\n"]
    for name in " | ".join(ordered["layers"]).replace("(", "").replace(")", "").split(" | "):
        path = Path(aotviz.__file__).parent / name
        source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        doc = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
        mark = "no torch" if f"aotviz.{name}" in without_torch["source_modules"] else ""
        rows.append(f"| `{name}` | {doc.partition(chr(10) * 2)[0].replace(chr(10), ' ')} | {mark} |\n")
    return "".join(rows)


def test_the_page_for_developers_lists_the_layers() -> None:
    page = DOCS / "developing.md"
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition("| folder | what it is |")
    table = rest.partition("\n\n")
    if os.environ.get("AOTVIZ_UPDATE_GOLDENS"):
        page.write_text(f"{before}{layers()}\n{table[2]}", encoding="utf-8")
    assert f"| folder | what it is |{table[0]}\n" == layers()
