"""A puzzle of the course in a real JupyterLab: the question, the student's answers, the view that waits for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from playwright.sync_api import Page, expect

from tests.course_notebooks import NOTEBOOKS, key_of
from tests.ui import jupyter
from tests.ui.jupyter import Server

LESSON = "02_aliasing_and_mutation.ipynb"
PARTS = ("getting-ready", "seen-outside-question", "seen-outside-program", "seen-outside-predict", "seen-outside-see",
         "seen-outside-answer")  # fmt: skip
PREDICT, SEE = PARTS.index("seen-outside-predict"), PARTS.index("seen-outside-see")


def predict(page: Page, answers: dict[str, Any]) -> None:
    """Writes a student's answers into the cell, and runs it."""
    page.evaluate(
        "([index, source]) => window.jupyterapp.shell.currentWidget.model.sharedModel.cells[index].setSource(source)",
        [PREDICT, f"seen_outside.predict({answers!r})"],
    )
    jupyter.run_cell(page, PREDICT)


@pytest.mark.slow
def test_a_student_predicts_is_told_why_and_sees_the_board(lab: Server, lab_page: Page, screenshots: Path) -> None:
    page = lab_page
    page.set_viewport_size({"width": 1280, "height": 1500})
    lesson = nbformat.read(NOTEBOOKS / LESSON, as_version=4)
    lesson.cells = [cell for cell in lesson.cells if cell.id in PARTS]
    for cell in lesson.cells:
        if cell.cell_type == "code":
            cell.outputs = []  # what is looked at below comes from this kernel
    nbformat.write(lesson, lab.work / "puzzle.ipynb")
    jupyter.open_notebook(page, lab, "puzzle.ipynb")

    # As it stands: the questions, and nothing that answers them.
    jupyter.run_all(page)
    said = page.locator(".jp-Cell").nth(PREDICT).locator(".jp-OutputArea-output").last
    view = page.locator(".jp-Cell").nth(SEE)
    answer = page.locator("details")
    expect(said).to_contain_text("not answered yet: a list of 4 numbers", timeout=60_000)
    expect(view).to_contain_text("Predict first")
    expect(view.locator(".jp-InputArea-editor")).to_be_hidden()  # jupyter.source_hidden
    expect(page.locator(".workbench")).to_have_count(0)
    expect(answer).not_to_have_attribute("open", "")
    page.screenshot(path=screenshots / "course-light-asked.png")

    right = key_of(LESSON)["seen_outside"]
    predict(page, {**right, "x": [2, 2, 2, 2]})
    expect(said.get_by_text("✗ wrong")).to_have_count(1)
    expect(said.get_by_text("✓ right")).to_have_count(2)
    expect(said).to_contain_text("its data is written; the wrapper writes it after the graph ran")
    jupyter.run_cell(page, SEE)
    bench = view.locator(".workbench")
    expect(bench.locator("[role=tab][aria-selected=true]")).to_contain_text("Aliasing")
    expect(bench.locator(".stage[aria-selected=true]")).to_have_attribute("data-stage", "metadata")
    page.screenshot(path=screenshots / "course-light-answered.png")

    jupyter.set_theme(page, "JupyterLab Dark")
    expect(bench).to_have_attribute("data-theme", "dark")
    predict(page, right)
    expect(said.get_by_text("✓ right")).to_have_count(3)
    answer.locator("summary").click()
    expect(answer).to_contain_text("copies the new value into the caller's tensor")
    page.screenshot(path=screenshots / "course-dark-answered.png")

    page.set_viewport_size({"width": 500, "height": 900})
    page.evaluate("() => { window.jupyterapp.shell.collapseLeft(); }")
    said.scroll_into_view_if_needed()
    for verdict in said.get_by_text("✓ right").all():
        expect(verdict).to_be_in_viewport(ratio=1)
    page.screenshot(path=screenshots / "course-dark-narrow.png")
