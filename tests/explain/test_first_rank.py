"""Of many ranks, the one that parts from the others first is named in the first sentence, with the guard and the
collective."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import aotviz
from aotviz.__main__ import main
from tests import corpus

RANKS = 8
SECOND = '\t"torch.ops._c10d_functional.all_reduce_.default",\n\t"torch.ops._c10d_functional.wait_tensor.default",\n'


def job(folder: Path, name: str, logs: dict[int, int], change: str = "") -> Path:
    """Logs of eight ranks: those of a real job's rank 0, and of other ranks of it for those in `logs`."""
    for rank in range(RANKS):
        real = logs.get(rank, 0)
        (log,) = corpus.folder(name).glob(f"*_rank_{real}_*")
        content = log.read_text().replace(f'"rank": {real}, ', f'"rank": {rank}, ')
        if real and change:
            assert change in content
            content = content.replace(change, "")
        (folder / f"dedicated_log_torch_trace_rank_{rank}_x.log").write_text(content)
    return folder


def first_sentence(folder: Path) -> str:
    text = aotviz.read_trace(folder, index=False).explain().sentences[0]
    return re.split(r"\.\s", text)[0]


def test_the_rank_that_runs_another_collective_is_named_with_the_guard_that_differs(tmp_path: Path) -> None:
    assert first_sentence(job(tmp_path, "ranks_diverge", {5: 2})) == (
        f"Rank 5 is the first that runs other collectives: in `reduce_loss` (corpus/ranks_diverge.py:"
        f"{corpus.line('ranks_diverge', 'def reduce_loss') - 1}), `twice` is True where it is False on ranks 0 to 4, "
        "6 and 7, and its second collective is `all_reduce` where that of ranks 0 to 4, 6 and 7 is missing"
    )


def test_of_several_ranks_that_do_the_same_the_first_is_named_with_the_rest(tmp_path: Path) -> None:
    told = first_sentence(job(tmp_path, "ranks_diverge", {3: 2, 5: 2, 6: 2}))
    assert told.startswith("Rank 3 is the first that runs other collectives, as ranks 5 and 6: in `reduce_loss`")


def test_a_rank_that_compiles_again_is_named_with_its_guard_and_where_the_others_wait(tmp_path: Path) -> None:
    told = first_sentence(job(tmp_path, "ranks", {6: 1}, change=SECOND))
    assert told == (
        f"Rank 6 is the first that differs: it compiled `step` (corpus/ranks.py:{corpus.line('ranks', 'def step') - 1})"
        " again because dimension 0 of `x` had size 4 and now has size 5, and ranks 0 to 5 and 7 wait at `all_reduce` "
        "of `reduce_loss`"
    )


def test_ranks_that_do_the_same_are_not_set_apart(tmp_path: Path) -> None:
    assert "is the first that" not in str(aotviz.read_trace(job(tmp_path, "ranks", {}), index=False).explain())


def test_a_folder_of_ranks_is_explained_and_reported_by_one_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job(tmp_path, "ranks_diverge", {5: 2})
    assert main(["explain", str(tmp_path)]) == 0
    assert "- Rank 5 is the first that runs other collectives: in `reduce_loss`" in capsys.readouterr().out
    page = tmp_path / "page.html"
    assert main(["report", str(tmp_path), "-o", str(page)]) == 0
    assert "Rank 5 is the first that runs other collectives" in page.read_text()
