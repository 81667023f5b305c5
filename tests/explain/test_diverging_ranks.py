"""Four real ranks that diverge in order, schedule and tensors (programs/ranks_diverge.py), and odd file names."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import aotviz
from tests import corpus
from tests.explain.logs import recording

COPIES = ("train_rank_0.log", "train_rank_1.log", "train_rank_2.log")
CACHE_HIT = (
    'V1124 21:42:00.000000 7 a.py:1] {"artifact": {"name": "fx_graph_cache_hit", "encoding": "json"}, "rank": 1, '
    '"frame_id": 0, "frame_compile_id": 0, "attempt": 0, "has_payload": "99914b932bd37a50b983c5e7c90ae93b"}\n\t{}\n'
)


@pytest.fixture
def copied(tmp_path) -> Path:
    shutil.copytree(corpus.folder("ranks_diverge"), tmp_path, dirs_exist_ok=True)
    return tmp_path


def change(folder: Path, rank: int, text: str, new: str) -> None:
    (log,) = folder.glob(f"*_rank_{rank}_*")
    content = log.read_text()
    assert re.search(text, content)
    log.write_text(re.sub(text, new, content))


def differences(folder: Path) -> dict[str, str]:
    table = aotviz.read_trace(folder, index=False).rank_differences()
    return dict(zip(table.kind, table.why, strict=True))


def test_four_ranks_differ_in_what_the_program_does_and_in_nothing_else() -> None:
    table = recording("ranks_diverge").rank_differences().set_index("kind")
    assert list(table.index) == ["collectives", "execution order", "tensor metadata"]
    why = table.why
    assert "ranks 0, 1 and 3 run `all_reduce`; rank 2 runs `all_reduce`, `all_reduce`" in why["collectives"]
    assert why["execution order"] == (
        "Ranks 0 and 1 run graphs in a different order from the second on: rank 0 runs `shift`, rank 1 runs `square`."
    )
    assert "In `scale`" in why["tensor metadata"]
    assert (
        "returns `float32[4, 4], strides [4, 1]` on rank 0, `float32[8, 8], strides [8, 1]` on rank 3"
        in (why["tensor metadata"])
    )


def test_what_may_hang_is_explained_first() -> None:
    first, second = recording("ranks_diverge").explain().points[:2]
    assert "different collectives in `reduce_loss`" in first.text
    assert "in a different order from the second on" in second.text
    assert "same order on all ranks" in second.fix


def test_runs_and_operations_are_tables() -> None:
    runs = recording("ranks_diverge").graph_runs()
    assert list(runs[runs["rank"] == 0].function) == ["scale", "shift", "square"]
    assert list(runs[runs["rank"] == 1].function) == ["scale", "square", "shift"]
    operations = recording("ranks_diverge").estimates()
    reduced = operations[(operations["rank"] == 2) & (operations.kind == "collective")]
    assert list(reduced.function) == ["reduce_loss", "reduce_loss"]
    assert operations[operations["rank"] == 3].outputs.iloc[0] == ("float32[8, 8], strides [8, 1]",)


def test_estimates_name_the_fastest_and_the_slowest_rank(copied) -> None:
    """Inductor estimates nothing on a CPU (it logs 0.0), so the figures are put into the real logs."""
    for rank, nanoseconds in enumerate((2000, 1000, 2000, 3000)):
        change(copied, rank, r'"estimated_runtime_ns": 0(\.0)?', f'"estimated_runtime_ns": {nanoseconds}')
    told = differences(copied)["estimated time"]
    assert re.search(r"Rank 3 is the slowest and rank 1 the fastest by Inductor's estimate: \S+ µs and \S+ µs", told)


def test_an_order_that_the_cache_made_doubtful_is_said_to_be_so(copied) -> None:
    (log,) = copied.glob("*_rank_1_*")
    with log.open("a") as file:
        file.write(CACHE_HIT)
    assert "This may be wrong" in differences(copied)["execution order"]


def test_the_number_of_a_device_is_no_difference_between_ranks(copied) -> None:
    for rank in range(4):
        change(copied, rank, r"device\(type='cpu'\)", f"device(type='cuda', index={rank})")
        change(copied, rank, r"\]cpu", f"]cuda:{rank}")
    assert set(differences(copied)) == {"collectives", "execution order", "tensor metadata"}


@pytest.mark.parametrize("damage", ['{"ops": 3}', "{", '{"graph_execution_order": [3]}', '{"ops": [{"outputs": [7]}]}'])
@pytest.mark.parametrize("name", ["graph_execution", "inductor_runtime_and_tensor_meta"])
def test_a_record_in_another_format_says_nothing(name, damage, tmp_path) -> None:
    head = f'{{"artifact": {{"name": "{name}", "encoding": "json"}}, "rank": 0, "has_payload": "0"}}'
    (tmp_path / "a.log").write_text(f"V0701 12:00:00.000000 7 a.py:1] {head}\n\t{damage}\n")
    found = aotviz.read_trace(tmp_path, index=False)
    assert len(found.graph_runs()) == len(found.estimates()) == 0


def test_logs_whose_names_alone_tell_the_ranks_apart_are_several_ranks(tmp_path) -> None:
    (log,) = corpus.folder("ranks").glob("*_rank_0_*")
    for name in COPIES:
        shutil.copy(log, tmp_path / name)
    found = aotviz.read_trace(tmp_path, index=False)
    assert {c.data.rank for c in found} == {0, 1, 2}
    assert found["rank 2: 0/0"].data.name == "step"
    assert found.notes == [
        "the names of 3 logs say ranks 0, 1, 2, but their records all say rank 0: the ranks are taken from the names"
    ]
    assert len(found.rank_differences()) == 0


def test_the_name_says_the_rank_where_the_records_do_not(tmp_path) -> None:
    (log,) = corpus.folder("ranks").glob("*_rank_1_*")
    (tmp_path / "train_rank_5.log").write_text(log.read_text().replace('"rank": 1, ', ""))
    found = aotviz.read_trace(tmp_path, index=False)
    assert {c.data.rank for c in found} == {5}
    assert not found.notes


def test_a_name_that_contradicts_its_records_is_noted(tmp_path) -> None:
    (log,) = corpus.folder("ranks").glob("*_rank_1_*")
    shutil.copy(log, tmp_path / "train_rank_5.log")
    found = aotviz.read_trace(tmp_path, index=False)
    assert {c.data.rank for c in found} == {1}
    (note,) = found.notes
    assert note.endswith("the file's name says rank 5, its records say rank 1: the rank is taken from the records")


def test_a_rank_that_found_what_another_compiled_is_named_with_what_it_waits_for(copied) -> None:
    for rank in (0, 1, 2, 3):
        (log,) = copied.glob(f"*_rank_{rank}_*")
        text = CACHE_HIT.replace('"rank": 1', f'"rank": {rank}')
        with log.open("a") as file:
            file.write(text.replace("_hit", "_miss") if rank == 2 else text)
    table = aotviz.read_trace(copied, index=False).rank_differences().set_index("kind")
    assert table.why["cache"].startswith("Ranks 0, 1 and 3 found `")
    assert table.why["cache"].endswith(
        "` in the cache, rank 2 did not and had to compile. Ranks 0, 1 and 3 wait for rank 2 at the next collective: "
        "if that exceeds its timeout, the job fails."
    )
    assert "waits at the next collective" in table.fix["cache"]
    for rank in (0, 1, 3):  # all compiled it: no rank waits
        change(copied, rank, "fx_graph_cache_hit", "fx_graph_cache_miss")
    assert "cache" not in differences(copied)
