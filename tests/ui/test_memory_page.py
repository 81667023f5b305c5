"""The sentences of docs/memory.md are those that the view of memory, and the plans, say of the pictured programs."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser

from tests.releases import has_the_pages_numbers
from tests.ui.fixture import ROOT
from tests.ui.memory_images import FOLDER, PICTURES, plans

TEXT = (ROOT / "docs" / "memory.md").read_text(encoding="utf-8")


def below(picture: str, start: str) -> str:
    """The sentence below a picture, without Markdown."""
    (after,) = re.findall(rf"images/{picture}\.png\)\n(.*?)(?=\n!\[|\n#|\Z)", TEXT, re.S)
    (said,) = re.findall(rf"^{start}: (.*)$", after, re.M)
    return said.replace("`", "")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("gpt2-memory-light", marks=pytest.mark.slow),
        "training-step-memory-light",
        "lower-the-peak-light",
    ],
)
def test_the_view_says_the_sentence_of_the_page(name: str, browser: Browser, clean_dynamo: None) -> None:
    page = PICTURES[name].opened(browser)
    assert page.locator(".memory-view .lead").inner_text() == below(name, "The view's sentence")
    page.close()


@has_the_pages_numbers
def test_the_plans_say_the_sentence_of_the_page(clean_dynamo: None) -> None:
    assert " ".join(plans().sentences).replace("`", "") == below("plans-light", "The plans' sentences")


def test_each_of_the_five_pictures_has_a_readers_sentence() -> None:
    shown = re.findall(r"images/([\w-]+)\.png\)\n\n\"[^\"]+\"\n", TEXT)
    assert sorted(shown) == sorted([*PICTURES, "plans-light"])
    assert all((FOLDER / f"{name}.png").exists() for name in shown)
