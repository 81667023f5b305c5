"""The board of storages says what shares memory with what, where in it, and who writes to it."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import msgspec
import pytest
import torch

import aotviz
from aotviz.reading.recording import Compilation, RecordingError
from aotviz.recording import files
from aotviz.recording.schema import AliasTensor, RecordingData, StorageRecord
from aotviz.torch_private.partitioners import min_cut_rematerialization_partition
from tests.doors import alone


def puzzle(w, same, a, b, steps):
    a.mul_(2)
    steps.add_(1)
    y = (w * same).sin() + b.sum()
    v = y.view(-1)
    return v[2:6], y.t(), b[1:], a


def compiled_puzzle() -> Compilation:
    f = alone(puzzle)
    w, memory = torch.ones(2, 4, requires_grad=True), torch.arange(8.0)
    f(w, w, memory[:5], memory[3:], torch.zeros((), dtype=torch.int64))
    return f.recording[0]


def named(storage: StorageRecord) -> dict[str, AliasTensor]:
    return {" = ".join(tensor.names) or tensor.node: tensor for tensor in storage.tensors}


def test_inputs_over_one_memory_are_on_one_storage_at_their_own_places() -> None:
    shared = compiled_puzzle().data.storages[1]
    tensors = named(shared)
    assert shared.nbytes == 32
    assert (tensors["a = output[3]"].offset, tensors["a = output[3]"].shape) == (0, [5])
    assert (tensors["b"].offset, tensors["b"].stride) == (3, [1])


def test_the_members_of_a_synthetic_base_are_views_of_it() -> None:
    shared = compiled_puzzle().data.storages[1]
    assert shared.tensors[0].role == "base"
    assert shared.tensors[0].shape == [8]
    assert [shared.tensors[t.view_of].names for t in (named(shared)["b"], named(shared)["a = output[3]"])] == [
        ["base of a, b"],
        ["base of a, b"],
    ]


def test_an_output_is_followed_through_its_views_to_an_intermediate() -> None:
    made = next(s for s in compiled_puzzle().data.storages if s.tensors[0].role == "intermediate")
    first = named(made)["output[0]"]
    between = made.tensors[first.view_of]
    assert (first.step, first.offset) == ("slice(0, 2, 6)", 2)
    assert (between.step, between.view_of) == ("view([-1])", 0)
    assert named(made)["output[1]"].stride == [1, 4]
    assert made.tensors[0].source.endswith("y = (w * same).sin() + b.sum()")


def test_writes_come_in_the_users_order_with_their_lines() -> None:
    writes = compiled_puzzle().writes
    assert writes.operator.tolist() == ["mul_", "add_"]
    assert [text.split()[-1] for text in writes.source] == ["a.mul_(2)", "steps.add_(1)"]
    graph = compiled_puzzle().graph("forward", "metadata").nodes
    assert set(writes.node) <= set(graph.name)


def test_a_write_to_an_intermediate_and_a_move_are_seen() -> None:
    def f(x):
        buffer = torch.zeros(4)
        buffer[1:3].add_(x)
        x.unsqueeze_(0)
        return buffer.sum()

    compiled = alone(f)
    compiled(torch.ones(2))
    writes = compiled.recording[0].writes
    assert writes[["operator", "kind"]].values.tolist() == [["add_", "data"], ["unsqueeze_", "metadata"]]
    storage = compiled.recording[0].data.storages[writes.storage[0]]
    assert storage.nbytes == 16
    assert storage.tensors[writes.tensor[0]].offset == 1


def test_a_write_under_no_grad_says_so() -> None:
    def f(x):
        with torch.no_grad():
            x.add_(1)
        return x * 2

    compiled = alone(f)
    compiled(torch.ones(2, requires_grad=True) * 1)
    assert compiled.recording[0].writes.grad_mode.tolist() == [False]


def test_symbolic_sizes_are_text() -> None:
    compiled = alone(lambda x: x[1:].view(-1), dynamic=True)
    compiled(torch.ones(4, 6))
    storage = compiled.recording[0].data.storages[0]
    assert storage.nbytes is None
    assert any(isinstance(size, str) for tensor in storage.tensors for size in tensor.shape)


def test_tables_of_a_call_without_tensors_have_their_columns() -> None:
    compiled = alone(lambda n: torch.full((2,), n))
    compiled(3.0)
    assert {"operator", "source", "kind"} <= set(compiled.recording[0].writes.columns)


def test_saved_tensors_name_their_readers_in_the_backward() -> None:
    compiled = alone(lambda x: x.sin().tanh())
    compiled(torch.ones(3, requires_grad=True))
    saved = compiled.recording[0].saved_tensors
    backward = set(compiled.recording[0].graph("backward").nodes.name)
    assert all(row and set(row) <= backward for row in saved.consumers)


def test_a_circle_of_views_in_a_file_is_refused(tmp_path: Path) -> None:
    f = alone(lambda x: x.view(-1))
    f(torch.ones(2, 2))
    data = msgspec.to_builtins(f.recording.data)
    data["compilations"][0]["storages"][0]["tensors"][0][6] = 1
    path = tmp_path / "circle.aotviz"
    path.write_bytes(files.MAGIC + (1).to_bytes(2, "big") + gzip.compress(msgspec.msgpack.encode(data)))
    with pytest.raises(RecordingError, match="storage 0, tensor 0: points at 1"):
        aotviz.load(path)


def test_a_recording_without_storages_still_opens() -> None:
    f = alone(lambda x: x + 1)
    f(torch.ones(2))
    data = msgspec.to_builtins(f.recording.data)
    del data["compilations"][0]["storages"]
    assert msgspec.convert(data, RecordingData).compilations[0].storages == []


def test_what_the_backward_computes_again_is_told_from_what_is_saved() -> None:
    partition_fn = min_cut_rematerialization_partition
    compiled = alone(lambda x: x.sin().cos().sum(), partition_fn=partition_fn)
    compiled(torch.ones(3, requires_grad=True))
    compilation = compiled.recording[0]
    again, backward = compilation.recomputed, list(compilation.graph("backward").nodes.name)
    assert again.producer.tolist() == ["aten.sin.default"]
    assert again.nbytes.tolist() == [12]
    assert backward[again.made_at[0]] == again.name[0]
    assert backward[again.dies_at[0]] == again.consumers[0][-1]
    assert compilation.saved_tensors.dies_at.tolist() == [backward.index(compilation.saved_tensors.consumers[0][-1])]


def test_a_saved_view_of_an_input_lies_in_the_inputs_memory() -> None:
    compiled = alone(lambda x, w: (x @ w).tanh())
    compiled(torch.ones(2, 3, requires_grad=True), torch.ones(3, 4, requires_grad=True))
    owners = {row.memory_of for row in compiled.recording[0].data.saved_tensors}
    assert owners == {"", "x", "w"}


def test_what_is_kept_counts_to_its_module_also_where_the_backward_made_it() -> None:
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(8, 8))

        def forward(self, x):
            return torch.mm(x.tanh().view(8, 8), self.weight).view(2, 4, 8)

    net = torch.nn.Sequential(Block(), Block())
    compiled = alone(net)
    compiled(torch.ones(2, 4, 8)).sum().backward()
    saved = compiled.recording[0].saved_tensors
    own = saved[saved.memory_of == ""]
    made = compiled.recording[0].graph("joint").nodes.set_index("name")
    assert made.loc[own.name, "is_backward"].any(), "else this tests nothing"
    assert set(own.module) == {"0", "1"}


def test_a_node_makes_bytes_unless_it_is_an_input_or_a_view() -> None:
    made = compiled_puzzle().graph("forward").nodes.set_index("target").made_bytes
    assert made.dtype == "Int64"
    assert set(made["aten.view.default"]) == {0}
    assert made["aten.sin.default"] == 2 * 4 * 4
    assert made["primals_1"] == made["output"] == 0


def test_the_bytes_of_a_symbolic_size_are_missing_and_the_items_of_a_tuple_count_for_the_node_that_makes_it() -> None:
    f = aotviz.compile(lambda x: torch.topk(x.sin(), 2)[0].exp(), backend="eager", dynamic=True)
    f(torch.ones(3, 4))
    made = f.recording[0].graph("inference").nodes.set_index("target").made_bytes
    assert made[["aten.sin.default", "aten.topk.default", "aten.exp.default"]].isna().all()
    torch._dynamo.reset()
    fixed = aotviz.compile(lambda x: torch.topk(x.sin(), 2)[0].exp(), backend="eager", dynamic=False)
    fixed(torch.ones(3, 4))
    made = fixed.recording[0].graph("inference").nodes.set_index("target").made_bytes
    assert made["aten.topk.default"] == 3 * 2 * (4 + 8)
    assert made["operator.getitem"] == 0


def test_a_slice_without_an_end_ends_at_end_wherever_a_person_reads_and_its_wrapper_still_runs() -> None:
    def tail(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.ops.aten.slice.Tensor(x.view(-1), 0, 2).sin(), x.view(-1)[2:]

    given = torch.arange(6.0).reshape(2, 3)
    with aotviz.record() as recorded:
        found = aotviz.compile(tail, backend="eager")(given)
    assert all(torch.equal(one, other) for one, other in zip(found, tail(given), strict=True))
    (compilation,) = recorded
    tables = compilation.storages, compilation.outputs, compilation.inputs, compilation.evidence
    graphs = [compilation.graph(role, stage.name) for stage in compilation.data.stages for role in stage.graphs]
    told = [table.to_string() for table in tables] + [str(graph) for graph in graphs]
    told += [graph.nodes.to_string() for graph in graphs]
    assert not [text for text in told if str(sys.maxsize) in text]
    assert any("slice(0, 2, end)" in text for text in told)
    assert any("aten.slice.Tensor(" in text for text in map(str, graphs))
