"""How a sweep's results become a section of docs/parity.md, and ten of the models that `make sweep-models` trains."""

from __future__ import annotations

import pytest
import torch

from tests.parity.sections import models
from tests.sweeps import page
from tests.sweeps.models import judging, training
from tests.sweeps.models.__main__ import is_behind
from tests.sweeps.models.catalogue import MODELS
from tests.tiers import slow

FOUND = {
    "title": "Tea",
    "about": "Cups compared with cups.",
    "made_by": "make sweep-tea",
    "tables": [{"title": "Cups", "columns": ["cup", "ml"], "rows": [["small | white", 90], ["large", 250]]}],
}


def test_a_sweeps_results_become_a_section_after_those_of_make_parity(tmp_path):
    path = tmp_path / "parity.md"
    path.write_text(f"# Parity\n\n## {models.TITLE}\n\nold\n")
    page.save("tea", FOUND, tmp_path / "results", path)
    text = path.read_text()
    assert text.index(f"## {models.TITLE}\n\nold\n") < text.index("## Tea\n\nCups compared with cups.")
    assert "| cup | ml |\n| --- | ---: |\n| small \\| white | 90 |\n| large | 250 |" in text
    page.save("tea", {**FOUND, "about": "Cups."}, tmp_path / "results", path)
    assert path.read_text() == text.replace("Cups compared with cups.", "Cups.")


@pytest.mark.parametrize("found", page.load(), ids=lambda found: found["made_by"])
def test_the_page_shows_the_results_that_are_kept(found):
    assert page.section_text(found).strip() in page.PAGE.read_text(), "run `python -m tests.sweeps.page`"


@pytest.mark.parametrize(
    "name", [name if name == "llama" else slow(name) for name, model in MODELS.items() if model.in_ci]
)
def test_a_model_trains_as_in_eager_with_two_batch_sizes(name):
    row = judging.judged(name, by_inductor=False, beside_torch=False)
    assert "ours" in row, row
    assert row["graphs"], "nothing was compiled"
    assert "error" not in row["recording"], row
    if row["ours"]["status"] != "equal":  # it may be what torch's gives
        row = judging.judged(name, by_inductor=False)
        assert not is_behind({"key": name, **row}), row


def test_a_model_that_is_further_from_eager_than_torchs_is_behind():
    def row(ours, torchs, key="a", **kept):
        return {"key": key, "ours": {"status": ours}, "torch": {"status": torchs}, "recording": kept}

    assert is_behind(row("raised", "equal"))
    assert is_behind(row("close", "equal"))
    assert not is_behind(row("close", "equal", "a on Inductor"))
    assert not is_behind(row("raised", "raised"))
    assert is_behind(row("equal", "equal", error="save: OSError"))
    assert is_behind({"key": "a", "crashed": True})


def test_a_difference_is_told_from_the_size_of_a_tensors_numbers():
    expected = {"step 0: loss": torch.tensor([1.0, 100.0]), "step 0: mean": torch.tensor(float("nan"))}
    assert training.difference(expected, dict(expected)) == ("equal", "")
    near = {**expected, "step 0: loss": torch.tensor([1.01, 100.0])}
    assert training.difference(expected, near)[0] == "close"
    far = {**expected, "step 0: loss": torch.tensor([2.0, 100.0])}
    assert training.difference(expected, far) == ("wrong", "step 0: loss is off by 1.0e-02")
    assert training.difference(expected, {**expected, "step 0: mean": torch.tensor(1.0)})[0] == "wrong"
