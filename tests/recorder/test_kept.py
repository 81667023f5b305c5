"""Values that lie in one storage are kept once: in the table, in the texts, in the figure and in the workbench."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

import aotviz
from aotviz.lowerings import run_graph
from aotviz.recording import plots, sizes, tables, terminal
from aotviz.recording.compilation import Compilation
from aotviz.recording.saved import cost
from aotviz.recording.schema import SavedTensorRecord

LEDGER = Path(__file__).parents[2] / "extensions" / "core" / "test" / "kept.json"


def with_its_view(x: torch.Tensor) -> torch.Tensor:
    y = x.sin().tanh()
    return y.t() @ y


def with_three_parts(x: torch.Tensor) -> torch.Tensor:
    a, b, c = x.sin().chunk(3)
    return a * b * c


def one_part_of_three(x: torch.Tensor) -> torch.Tensor:
    return x.sin()[:2].tanh()


def with_one_expanded(x: torch.Tensor) -> torch.Tensor:
    return (x.t() @ x.sin().t().t()).expand(2, x.shape[1], x.shape[1]).sin()


class Kept:
    """A compiler for the forward that notes what storages its results keep alive, when it runs."""

    def __init__(self) -> None:
        self.storages: dict[int, int] = {}  # address of a storage -> its bytes

    def __call__(self, module: torch.fx.GraphModule, inputs: list[Any]) -> Callable[[list[Any]], Any]:
        descriptors = next(node for node in module.graph.nodes if node.op == "output").meta["desc"]

        def run(args: list[Any]) -> Any:
            given = {arg.untyped_storage().data_ptr() for arg in args if isinstance(arg, torch.Tensor)}
            results = module(*args)
            for result, descriptor in zip(results, descriptors, strict=True):
                if str(descriptor).startswith("saved") and isinstance(result, torch.Tensor):
                    storage = result.untyped_storage()
                    if storage.data_ptr() not in given:
                        self.storages[storage.data_ptr()] = storage.nbytes()
            args.clear()
            return results

        run._boxed_call = True  # type: ignore[attr-defined]
        return run


def ran(function: Any, *args: Any, partitioner: str = "default_partition") -> tuple[Compilation, int, Any]:
    """Its compilation, the bytes that a call of it kept for the backward, and what the call returned."""
    kept = Kept()
    compiled = aotviz.aot_function(function, fw_compiler=kept, bw_compiler=run_graph, partition_fn=partitioner)
    with aotviz.record() as recording:
        result = compiled(*args)
    return recording[0], sum(kept.storages.values()), result


def leaf() -> torch.Tensor:
    return torch.rand(6, 4, requires_grad=True)


@pytest.mark.parametrize("function", [with_its_view, with_three_parts, one_part_of_three, with_one_expanded])
@pytest.mark.parametrize("partitioner", ["default_partition", "min_cut_rematerialization_partition"])
def test_the_sum_is_what_a_call_keeps_in_memory(function: Any, partitioner: str) -> None:
    compilation, nbytes, _ = ran(function, leaf(), partitioner=partitioner)
    agree(compilation, nbytes)


def agree(compilation: Compilation, nbytes: int) -> None:
    """All that says how much is kept says `nbytes`."""
    table = compilation.saved_tensors
    assert table.held_bytes.sum() == nbytes
    amount = f", {re.escape(sizes.told(nbytes))}\\b" if nbytes else r"\b"
    said = re.compile("kept for the backward" + amount)
    assert said.search(terminal.saved(compilation.data))
    assert said.search(next(s.summary for s in compilation.data.stages if s.name == "partition"))
    figure = plots.saved_tensors(table, "f")
    assert said.search(figure.layout.title.text)
    assert figure.data[0]["values"][0] == nbytes
    assert nbytes or compilation.saved_tensors.memory_of.all(), "nothing but inputs"


def test_a_value_and_its_views_are_one_piece_of_memory_until_the_last_is_read() -> None:
    compilation, _, _ = ran(with_its_view, leaf())
    table = compilation.saved_tensors.set_index("name")
    assert table.held_bytes.to_dict() == {"primals_1": 0, "tanh": 96, "detach": 0, "t": 0}
    assert table.shares_with.to_dict() == {"primals_1": "", "tanh": "", "detach": "tanh", "t": "tanh"}
    assert table.memory_of.to_dict() == {"primals_1": "x", "tanh": "", "detach": "", "t": ""}
    together = table.loc[["tanh", "detach", "t"]]
    assert len(set(together.held_until)) == 1
    assert together.held_until["tanh"] >= max(together.dies_at) > together.dies_at["tanh"]


def test_the_parts_of_a_value_hold_all_of_it() -> None:
    compilation, _, _ = ran(with_three_parts, leaf())
    parts = compilation.saved_tensors[lambda table: table.producer.str.contains("split")]
    assert parts.saved_bytes.tolist() == [32, 32, 32]
    assert parts.held_bytes.tolist() == [96, 0, 0]
    (first,) = set(parts.shares_with) - {""}
    assert first == parts.name.iloc[0]


def test_a_symbolic_size_is_counted_as_one() -> None:
    compiled = aotviz.compile(with_its_view, backend="eager", dynamic=True, partition_fn="default_partition")
    compiled(leaf())
    table = compiled.recording[0].saved_tensors.set_index("name")
    assert table.held_bytes.isna().to_dict()["tanh"]
    assert table.held_bytes[table.shares_with != ""].tolist() == [0, 0]
    assert "and 1 of symbolic size" in terminal.saved(compiled.recording[0].data)


def test_gpt2_keeps_what_the_table_says() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=2, n_embd=64, n_head=4, vocab_size=128, n_positions=64, use_cache=False)
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(config).eval()  # without dropout
    ids = torch.randint(0, 128, (1, 64))
    kept = Kept()
    compiled = aotviz.aot_module(model, fw_compiler=kept, bw_compiler=run_graph)
    with aotviz.record() as recording:
        compiled(input_ids=ids, labels=ids)
    (compilation,) = recording
    agree(compilation, sum(kept.storages.values()))
    shared = compilation.saved_tensors[lambda table: table.shares_with != ""]
    assert len(shared) >= 2, "else this tests nothing"


def test_a_recording_that_knows_no_storages_counts_each_value() -> None:
    compilation, _, _ = ran(with_its_view, leaf())
    old = [
        msgspec.structs.replace(record, shares_with="", held_bytes=-1, held_until=-1)
        for record in compilation.data.saved_tensors
    ]
    table = tables.saved_tensors(old)
    assert table.held_bytes.tolist() == [0, 96, 96, 96]
    assert table.held_until.tolist() == table.dies_at.tolist()


def test_golden_the_workbench_counts_the_same_records_with_these_results() -> None:
    """The front end's tests read this file: `cost` in ledger.ts is `cost` in kept.py."""
    torch.manual_seed(0)
    records = [record for f in (with_its_view, with_three_parts) for record in ran(f, leaf())[0].data.saved_tensors]
    records.append(msgspec.structs.replace(records[0], memory_of="", held_bytes=-1))
    records.append(msgspec.structs.replace(records[1], held_bytes=-1))
    records.append(msgspec.structs.replace(records[1], held_bytes=None))
    cases = [{"record": msgspec.to_builtins(short(record)), "cost": cost(record)} for record in records]
    text = json.dumps(cases, indent=1) + "\n"
    if os.environ.get("AOTVIZ_UPDATE_GOLDENS"):
        LEDGER.write_text(text)
    assert LEDGER.read_text() == text, "run `make goldens`"


def short(record: SavedTensorRecord) -> SavedTensorRecord:
    """Without what speaks of this file's lines."""
    return msgspec.structs.replace(record, source="", module="", why="", why_donated="")


def test_what_lies_in_the_memory_of_two_inputs_is_said_to_be_in_the_firsts() -> None:
    compiled = aotviz.compile(lambda w, same: (w * same).sin(), backend="eager")
    memory = torch.rand(8)
    compiled(memory.view(2, 4).requires_grad_(), memory.view(2, 4))
    inputs = [row for row in compiled.recording[0].data.saved_tensors if row.memory_of]
    assert {row.producer for row in inputs} == {"w", "same"}
    assert {row.memory_of for row in inputs} == {"w"}
