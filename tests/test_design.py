"""The pages of docs/design/ say what the code is: lists, folders, layers, numbers of parts, and every name in them."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from torch._dynamo.compiled_autograd import AutogradCompilerInstance

import aotviz
from aotviz import pipeline
from aotviz.pipeline import Role, Stage
from aotviz.whole_backward.capturing import Capture
from benchmarks import __main__ as benchmarks
from tests.cache.captured import captured

ROOT = Path(__file__).resolve().parents[1]
DESIGN = ROOT / "docs" / "design"
PAGES = sorted(DESIGN.glob("*.md"))
PACKAGE = Path(aotviz.__file__).parent
BEGIN, END = "<!-- stages: from aotviz/pipeline.py, by `make goldens` -->\n", "<!-- end of the stages -->\n"
NAMED = re.compile(r"`((?:aotviz|tests|extensions|benchmarks|notebooks|docs)/[\w./-]*)(?:::(\w+))?`")
CITED = re.compile(r'docs/design/([\w-]+\.md)((?:[\s,#]+[A-H]\d+(?:-[A-H]?\d+)?)*)(?:[\s,#]+"([^"]+)")?')
OLD = re.compile(r"\b(SYSTEM|FINDINGS|ARCHITECTURE|CACHE|COMPILED_AUTOGRAD)(\.md\b|, section)")


def text_of(page: str) -> str:
    return (DESIGN / page).read_text(encoding="utf-8")


def headings(text: str) -> list[str]:
    return re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)


def rows(text: str) -> list[list[str]]:
    """The cells of the table that `text` begins with, without its head."""
    table = re.match(r"\s*((?:\|.*\|\n)+)", text)
    assert table
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[1].splitlines()[2:]]


def forms(source: str) -> dict[str, str]:
    """Of each stage in a piece of pipeline.py, "form → form", from the comment beside or above it."""
    lines = source.splitlines()
    found = {}
    for above, line in zip(["", *lines], lines, strict=False):
        if name := re.search(r'Stage\("([^"]+)"', line):
            comment = line if "->" in line else above if above.lstrip().startswith("#") else ""
            arrow = re.search(r"# (\w+) +-> (\w+)", comment)
            assert arrow, f"no comment says what stage {name[1]!r} takes and returns"
            found[name[1]] = f"{arrow[1]} → {arrow[2]}"
    return found


def stages() -> str:
    """The table of architecture.md."""
    source = (PACKAGE / "pipeline.py").read_text(encoding="utf-8")
    before, _, rest = source.partition("TRAINING = (")
    training, _, rest = rest.partition("\nINFERENCE =")
    export, _, late = rest.partition("\nBACKWARD =")
    known = forms(before) | forms(training)

    def row(stage: Stage, arrows: dict[str, str]) -> str:
        notes = []
        if stage.needed is not None:
            notes.append("sometimes")
        if stage.inference is not None:
            notes.append(f"without gradients `{stage.inference.name}`: {known[stage.inference.name]}")
        elif stage in pipeline.TRAINING and stage not in pipeline.INFERENCE:
            notes.append("with gradients only")
        return f"| {stage.name} | {stage.role.name} | {arrows[stage.name]} | {'; '.join(notes)} |\n"

    def table(title: str, listed: Iterable[Stage], arrows: dict[str, str]) -> str:
        head = f"| {title} | role | form → form | |\n| --- | --- | --- | --- |\n"
        return "".join([head, *(row(stage, arrows) for stage in listed), "\n"])

    shared = pipeline.part(pipeline.TRAINING, Role.FLATTEN, Role.CONVENTION)
    assert pipeline.EXPORT[: len(shared)] == shared
    own = pipeline.EXPORT[len(shared) :]
    return "".join(
        [
            table("a compilation", pipeline.TRAINING, known),
            table(f"an export, after `{shared[-1].name}`", own, forms(export)),
            table("later", (*pipeline.BACKWARD, *pipeline.GRADIENT), forms(late.partition("class Observer")[0])),
        ]
    )


def test_the_stages_are_those_of_the_pipeline() -> None:
    path = DESIGN / "architecture.md"
    before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    table, end, after = rest.partition(END)
    if os.environ.get("AOTVIZ_UPDATE_GOLDENS"):
        path.write_text(f"{before}{BEGIN}\n{stages()}{END}{after}", encoding="utf-8")
        table = f"\n{stages()}"
    assert end
    assert table == f"\n{stages()}"


def test_the_layers_are_those_that_are_checked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (layers,) = (one["layers"] for one in project["tool"]["importlinter"]["contracts"] if one["type"] == "layers")
    listed = text_of("architecture.md").partition("From the top:\n\n```text\n")[2].partition("```")[0]
    assert listed.split("\n")[:-1] == layers


def test_each_folder_of_the_package_has_its_one_idea() -> None:
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    section = text_of("architecture.md").partition("\n## Folders\n")[2].partition("\n## ")[0]
    listed = [name.strip("`") for name, _ in rows(section[section.index("| folder |") :]) if name.startswith("`")]
    assert sorted(listed) == sorted(folders)
    files = {path.name for path in PACKAGE.glob("*.py")} - {"__init__.py", "__main__.py"}
    beside = section.partition("stand beside the folders:")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+\.py)`", beside)) == files


def test_parts_have_numbers_in_order_and_say_what_does_and_holds_them() -> None:
    parts = re.split(r"^### ", text_of("system.md"), flags=re.MULTILINE)[1:]
    numbers = [re.match(r"([A-H])(\d+)\. ", part) for part in parts]
    assert all(numbers)
    order = [(number[1], int(number[2])) for number in numbers if number]
    assert order == [(letter, k) for letter in "ABCDEFGH" for k in range(1, 1 + sum(one == letter for one, _ in order))]
    for part in parts:
        does, holds = re.search(r"Does it:([^.]|\.\w)*", part), re.search(r"Holds it:([^.]|\.\w)*", part)
        for names in (does, holds):
            assert names is not None, part
            assert NAMED.search(names[0]), part


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_files_tests_notes_and_names_that_a_page_has_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for path, function in NAMED.findall(text):
        assert (ROOT / path).exists(), path
        if function:
            assert re.search(rf"def {function}\b", (ROOT / path).read_text(encoding="utf-8")), f"{path}::{function}"
    for note, path in re.findall(r"Note \[([^\]]+)\]\s+in\s+`([^`]+)`", text):
        assert f"Note [{note}]" in (ROOT / path).read_text(encoding="utf-8"), note
    for name, path in re.findall(r"`(\w+)`(?: and its neighbours)? in\s`((?:aotviz|extensions)/[^`]+\.\w+)`", text):
        assert re.search(rf"\b{name}\b", (ROOT / path).read_text(encoding="utf-8")), f"{name} in {path}"
    for name in re.findall(r"`python -m benchmarks (\w+)`", text):
        assert name in benchmarks.BENCHMARKS, name


def anchor(heading: str) -> str:
    """As code hosts and MyST make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_links_of_a_page_lead_to_a_page_and_a_heading(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        path, _, place = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not place or place in map(anchor, headings(target.read_text(encoding="utf-8"))), link


def cited() -> Iterator[tuple[Path, str, list[str], str]]:
    """(file, page, numbers of parts, heading) of each citation of a page of docs/design."""
    folders = [ROOT / name for name in ("aotviz", "tests", "benchmarks", "docs", "extensions/core/src", "notebooks")]
    for path in sorted(one for folder in folders for one in folder.rglob("*") if one.suffix in (".py", ".md", ".ts")):
        text = path.read_text(encoding="utf-8")
        if path != Path(__file__):
            assert not OLD.search(text), f"{path} cites a page that is not in the repository"
            for page, numbers, heading in CITED.findall(text):
                yield path, page, re.findall(r"[A-H]\d+(?:-[A-H]?\d+)?", numbers), heading


def expanded(number: str) -> Iterator[str]:
    first, _, last = number.partition("-")
    end = int(re.sub(r"\D", "", last or first))
    assert not last or end > int(first[1:]), number
    yield from (f"{first[0]}{k}" for k in range(int(first[1:]), end + 1))


def test_each_citation_of_a_design_page_resolves() -> None:
    found = list(cited())
    assert len(found) >= 40
    for path, page, numbers, heading in found:
        assert (DESIGN / page).exists(), f"{path}: {page}"
        titles = headings(text_of(page))
        for number in (one for given in numbers for one in expanded(given)):
            assert any(title.startswith(f"{number}. ") for title in titles), f"{path}: {page} {number}"
        assert not heading or heading in titles, f"{path}: {page}, {heading!r}"


def test_a_citation_is_understood() -> None:
    said = 'See docs/design/system.md B3, A1-A4, and docs/design/measured.md, "One call".'
    assert CITED.findall(said) == [("system.md", " B3, A1-A4", ""), ("measured.md", "", "One call")]
    assert list(expanded("A1-A4")) == ["A1", "A2", "A3", "A4"]
    assert all(OLD.search(one) for one in ("(SYSTEM" + ".md A1)", "FINDINGS" + ", section 2"))


def test_decisions_are_dated_in_order_and_say_what_would_change_them() -> None:
    entries = re.split(r"^## ", text_of("decisions.md"), flags=re.MULTILINE)[1:]
    dates = [entry[:10] for entry in entries]
    assert all(re.match(r"20\d\d-\d\d-\d\d: ", entry) for entry in entries)
    assert dates == sorted(dates)
    assert not [entry for entry in entries if entry.count("*Would change it:*") != 1]


def test_the_protocol_is_what_torch_speaks_and_ours_understands() -> None:
    section = text_of("compiled-autograd.md")
    methods = [name.strip("`") for name, _ in rows(section[section.index("| method |") :])]
    ours = [name for name, one in vars(Capture).items() if callable(one) and not name.startswith("_")]
    set_in_init = AutogradCompilerInstance.__init__.__code__.co_names  # such as `close`
    torchs = {*dir(AutogradCompilerInstance), *set_in_init}
    assert sorted(methods) == sorted(torchs.intersection(ours))


def test_the_ingredients_of_a_key_are_those_of_a_key(clean_dynamo: None) -> None:
    import torch

    section = text_of("cache.md")
    listed = [name for name, _ in rows(section[section.index("| ingredient |") :])]
    made = captured(lambda x: x.sin(), torch.ones(3)).key()
    assert sorted(listed) == sorted(made.ingredients)


NUMBER = r"(?:\d+|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|[a-z]+teen|[a-z]+ty)"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_no_page_counts_a_list_that_grows(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not re.findall(rf"\b{NUMBER} (?:rules|refusals|cures|views|stages|settings|tests|ingredients)\b", text)


def test_every_module_begins_with_a_docstring() -> None:
    """The house has a sentence for each file, so that a newcomer knows which one to open."""
    sources = {path: path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    assert not [str(path) for path, source in sources.items() if source and not source.lstrip("r").startswith('"""')]
