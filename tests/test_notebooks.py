"""Every notebook runs from top to bottom, twice in one kernel, and its stored outputs, if any, are those of a run."""

from __future__ import annotations

import os
import re
from pathlib import Path

import nbformat
import pytest

from tests import stored_notebooks
from tests.tiers import slow

NOTEBOOKS = sorted((Path(__file__).resolve().parents[1] / "notebooks").glob("*.ipynb"))
RUN = [path for path in NOTEBOOKS if not path.stem.startswith("02_exam")]  # test_teaching.py runs the exam
IN_A_KERNEL = [path if path.stem == "01_tour" else slow(path) for path in RUN]
WORKBENCH = "application/vnd.jupyter.widget-view+json"


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_as_make_notebooks_stores_it_or_without_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code" and not stored_notebooks.has_outputs(notebook):
            assert not cell.outputs
            assert cell.execution_count is None
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            assert set(data) <= {"image/png", "text/html", "text/plain"}
            assert len(data.get("image/png", "")) < 100_000  # of base64: 75 kB
            text = "".join([output.get("text", ""), data.get("text/html", ""), data.get("text/plain", "")])
            assert text == stored_notebooks.settled(text)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_of_a_notebook_lead_to_files(path: Path) -> None:
    texts = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown"]
    links = re.findall(r"\]\(([^)#:]+)\)", "\n".join(texts))
    assert not [link for link in links if not (path.parent / link).exists()]


@pytest.mark.parametrize("path", IN_A_KERNEL, ids=lambda path: path.stem)
def test_notebook_runs_twice_in_a_kernel_and_shows_a_workbench(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable.lower()))
    root = str(path.parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])))
    notebook = nbformat.read(path, as_version=4)
    stored = stored_notebooks.texts(notebook) if stored_notebooks.has_outputs(notebook) else None
    stored_notebooks.run(notebook, tmp_path, times=2)
    if stored is not None and stored_notebooks.outputs_of(notebook) == stored_notebooks.versions():
        assert stored_notebooks.texts(notebook) == stored, "another output than the stored one: `make notebooks`"
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    assert any(WORKBENCH in output.get("data", {}) for output in outputs), "no recording showed itself as a widget"
    assert not any("FrontEndMissing" in str(output.get("text", "")) for output in outputs)
