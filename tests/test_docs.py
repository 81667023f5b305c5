"""What the pages list is what the code has: stages, and links between pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aotviz import pipeline
from aotviz.whole_backward import backward_stages
from aotviz.whole_backward.compiled_parts import CompiledParts

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
TRAINING, INFERENCE = ([stage.name for stage in stages] for stages in (pipeline.TRAINING, pipeline.INFERENCE))
SOMETIMES = [pipeline.RANDOM_STATE.name, pipeline.SCALARS.name]
LATE = [stage.name for stages in (pipeline.BACKWARD, pipeline.GRADIENT) for stage in stages]
WHOLE_BACKWARD = [
    backward_stages.CAPTURE,
    *(stage.name for stage in backward_stages.stages(CompiledParts(*[lambda *_: None] * 2))),
]
ALL = {"dynamo", *TRAINING, *INFERENCE, *SOMETIMES, *LATE, *(stage.name for stage in pipeline.EXPORT)}


def section(page: str, title: str) -> str:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.split(r"^## ", text.partition(f"## {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def test_the_glossary_has_each_stage_once_and_no_other() -> None:
    listed = re.findall(r"^\| ([^|]+) \|", section("glossary.md", "Stages"), re.MULTILINE)
    assert sorted(set(listed) - {"stage", "---"}) == sorted(ALL)
    assert len(listed) == len(set(listed))


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
            found |= {re.sub(r"\$\{[^}]*\}", "*", one) for one in re.findall(r"^`(.*)`$", text)}
            if not text.startswith("`"):
                found |= set(re.findall(r'"([^"]+)"', re.sub(r"[!=]== \"\w*\"", "", text)))
        for texts in re.findall(r"FATES: .*? = \{(.*?)\};", source, re.DOTALL):
            found |= set(re.findall(r'\["([^"]+)"', texts))
        for texts in re.findall(r"function endedAs.*?return (.*?);", source, re.DOTALL):
            found |= set(re.findall(r'"([^"]+)"', texts))
    return found


def test_the_glossary_has_each_badge_of_the_workbench() -> None:
    cells = re.findall(r"^\| ([^|]+) \|", section("glossary.md", "Badges of the workbench"), re.MULTILINE)
    listed = [badge for cell in cells for badge in re.split(r", | (?=`)", cell.replace("` `", "`, `"))]
    listed = [badge.strip("` ") for badge in listed]
    known = badges()
    assert {"data", "checked", "failed", "saved", "no change", "storage *"} <= known
    patterns = {badge: re.escape(badge).replace(r"\*", ".+") for badge in known}
    assert not [badge for badge, pattern in patterns.items() if not any(re.fullmatch(pattern, one) for one in listed)]


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
