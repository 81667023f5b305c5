"""The changes that would lower the peak most: each is made here, and measured beside what was computed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import aotviz
from aotviz.explain import peaks
from aotviz.lowerings import run_graph
from aotviz.recording.schedules import Schedule
from tests.measured_bytes import differences
from tests.oracle.models import FAMILIES, MORE, training_step
from tests.recorder.test_plans_beside import blocks
from tests.test_in_eager import given, moved
from tests.tiers import slow

QUICK = ("convolutions", "autoencoder")
CUTS = ("default", "min-cut")
MODELS = [
    *((name, cut) for name in QUICK for cut in CUTS),
    *(slow(*row) for row in zip(("gpt2", "bert", "swin", "transformer", "xlnet", "lstm"), CUTS * 3, strict=True)),
]


def stepped(model: nn.Module, inputs: dict[str, Any], partition_fn: Any) -> tuple[Any, list[torch.Tensor], list[str]]:
    """The compilation, the results and gradients of its first step, and where the plan of another one is wrong."""
    inputs = dict(inputs)
    args = inputs.pop("", ())
    compiled = aotviz.aot_module(model, run_graph, partition_fn=partition_fn)
    leaves = torch.utils._pytree.tree_leaves((args, inputs))
    given = [one for one in (*leaves, *model.parameters(), *model.buffers()) if isinstance(one, torch.Tensor)]
    step, seeds = training_step(lambda: compiled(*args, **inputs))

    def cleared() -> list[torch.Tensor]:
        gradients = [one.grad for one in given if one.grad is not None]
        for one in given:
            one.grad = None
        return gradients

    cleared()
    torch.manual_seed(1)
    with torch.random.fork_rng():
        results = [one.detach().clone() for one in step()]
    found = results + cleared()
    return compiled.recording[0], found, differences(compiled.recording[0], step, [*given, *seeds])


@pytest.mark.parametrize(("name", "partitioner"), MODELS)
def test_each_change_has_the_peak_that_was_computed_after_each_node_and_the_same_gradients(
    name: str, partitioner: str
) -> None:
    torch.manual_seed(0)
    model, inputs = {**FAMILIES, **MORE}[name]()
    model.eval()
    full = f"{partitioner.replace('-', '_')}{'_rematerialization' * (partitioner == 'min-cut')}_partition"
    recorded, wanted, _ = stepped(model, inputs, full)
    changes = [one for one in recorded.peak_changes(6) if one.schedule is not None]
    assert changes
    for change in changes:
        made, found, differ = stepped(model, inputs, aotviz.policy(change))
        assert made.memory().peak.nbytes == change.peak == recorded.memory().peak.nbytes - change.saves, change.name
        assert not differ, change.name
        for a, b in zip(found, wanted, strict=True):
            assert torch.allclose(a, b, atol=1e-5), change.name


class OnTwoDevices(nn.Module):
    """Tensors on "meta", which stands for an accelerator, and on the CPU, whose peak is lower."""

    def __init__(self) -> None:
        super().__init__()
        self.far = nn.Sequential(*(layer for _ in range(3) for layer in (nn.Linear(64, 64), nn.GELU()))).to("meta")
        self.near = nn.Sequential(*(layer for _ in range(2) for layer in (nn.Linear(16, 16), nn.Tanh(), nn.GELU())))

    def forward(self, far: torch.Tensor, near: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.far(far).square().sum(), self.near(near).square().sum()


def test_where_there_are_several_devices_the_changes_are_those_of_one_of_them() -> None:
    model = OnTwoDevices()
    inputs = {"": (torch.empty(32, 64, device="meta"), torch.randn(32, 16))}
    with aotviz.record() as recording:
        recorded, _, differ = stepped(model, inputs, "default_partition")
    assert not differ
    memory = recorded.memory()
    assert memory.devices == ("meta", "cpu")
    with pytest.raises(LookupError, match="0 devices are 'cuda': memory is on meta, cpu"):
        recorded.peak_changes(device="cuda")
    found = {device: recorded.peak_changes(device=device) for device in memory.devices}
    assert [one.name for one in recorded.peak_changes()] == [one.name for one in found["meta"]]
    for device, changes in found.items():
        before = memory.on(device)
        assert changes.sentences[0].startswith(f"The peak on `{device}` is ")
        on = {one.name for one in before.all_holders}
        assert any(change.schedule is not None for change in changes)
        for change in changes:
            assert on.issuperset(change.values)
            assert change.peak == before.peak.nbytes - change.saves
            if change.schedule is not None:
                made, _, differ = stepped(model, inputs, aotviz.policy(change))
                assert made.memory().on(device).peak.nbytes == change.peak
                assert not differ, change.name
    records = peaks.of_one(recording, recording[0].id)
    assert [(one.device, one.peak) for one in records] == [(d, memory.on(d).peak.nbytes) for d in memory.devices]
    assert [[one.what for one in record.changes] for record in records] == [
        [one.what for one in changes] for changes in found.values()
    ]


class Cast(nn.Module):
    """The gradient of the input of a layer reads its weight, which autocast copies. The caller may hold the second
    result and the input while the backward runs."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64), nn.Linear(64, 64))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            y = self.layers(x)
        return y.float().square().sum(), (y.float() * 2).detach()


@pytest.mark.parametrize("partitioner", ["default", "min-cut"])
def test_what_the_caller_lets_go_of_and_a_cast_are_made_and_measured_too(partitioner: str) -> None:
    found = aotviz.plans(Cast(), torch.randn(8, 64), budgets=[1], partitioners=[partitioner], changes=9, measure=True)
    table = found.table
    assert table.measured_peak.tolist() == table.peak.tolist()
    names = table.partitioner.tolist()[1:]
    assert "keep the cast 2 parameters in bfloat16" in names
    assert {"let go x", "let go output[1]"} <= set(names)
    assert (table.peak[1:] < table.peak[0]).all()


def test_the_best_changes_are_the_first_of_more_of_them() -> None:
    model = aotviz.aot_module(Cast(), run_graph, partition_fn="default_partition")
    model(torch.randn(64, 64, requires_grad=True))[0].backward()
    more = model.recording[0].peak_changes(9)
    assert len(more) == 3
    for count in (1, 2, 3):  # of two changes with one effect, only one is counted
        assert [one.name for one in model.recording[0].peak_changes(count)] == [one.name for one in more[:count]]


def test_a_value_that_is_still_held_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from aotviz.frontends import plans

    kept: list[Any] = []
    copied = plans._copied
    monkeypatch.setattr(plans, "_copied", lambda value: kept.append(copied(value)) or kept[-1])
    table = aotviz.plans(Cast(), torch.randn(8, 64), partitioners=["default"], changes=9, measure=True).table
    (wrong,) = table.wrong[table.partitioner == "let go x"]
    assert wrong.startswith("the peak: the value that the caller lets go of is still held in the backward")


def test_a_parameter_keeps_its_dtype_when_the_plans_are_made() -> None:
    model = Cast()
    aotviz.plans(model, torch.randn(8, 64), partitioners=["default"], changes=9, measure=True)
    assert {one.dtype for one in model.parameters()} == {torch.float32}


def test_what_draws_random_numbers_is_neither_moved_nor_run_again(clean_dynamo: None) -> None:
    one = [nn.TransformerEncoderLayer(32, 2, 64, batch_first=True, dropout=0.5) for _ in range(2)]
    found = aotviz.plans(nn.Sequential(*one), torch.randn(4, 16, 32), partitioners=["default"], changes=6, measure=True)
    kinds = {name.split()[0] for name in found.table.partitioner[1:]}
    assert {"checkpoint", "recompute"} <= kinds
    assert found.table.measured_peak.tolist() == found.table.peak.tolist()
    for change in found[0].peak_changes(9):
        again = set(change.schedule.backward if change.schedule else ()) & {
            n.name for n in found[0].graph("forward").rows
        }
        assert not any("dropout" in name for name in again)


def test_an_order_that_frees_earlier_is_found() -> None:
    """Two wide values, each needed for its sum only: one after the other, they are never alive together."""

    def f(x: torch.Tensor) -> torch.Tensor:
        a, b = x.expand(64, 4).exp(), x.expand(64, 4).sin()
        return a.sum(0) + b.sum(0)

    g = aotviz.aot_function(f, run_graph)
    g(torch.ones(4))
    (change,) = g.recording[0].peak_changes()
    assert change.kind == "reorder"
    assert change.peak == (64 * 4 + 3 * 4) * 4  # one of the wide ones, the input and two sums
    assert "(1 of 7 nodes move)" in change.what


def test_a_change_of_another_program_is_refused_by_name() -> None:
    f = aotviz.aot_module(blocks(), run_graph, partition_fn="default_partition")
    f(torch.randn(4, 16, 32)).sum().backward()
    change = f.recording[0].peak_changes()[0]
    other = aotviz.aot_function(lambda x: x.tanh().sum(), run_graph, partition_fn=aotviz.policy(change))
    with pytest.raises(
        ValueError, match=rf"{re.escape(change.name)} was computed for another program: this one has no node"
    ):
        other(torch.ones(1000, requires_grad=True))


def test_a_schedule_that_moves_what_is_random_is_refused() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (torch.rand_like(x) * x).sin() * torch.randn_like(x)

    f_compiled = aotviz.aot_function(f, run_graph, partition_fn="default_partition")
    f_compiled(torch.ones(9, requires_grad=True)).sum().backward()
    program = f_compiled.recording[0]._program({})
    from aotviz.recording import peak_changes, schedules

    recorded = schedules.schedule_of(*program.halves)
    names = [*recorded.forward]
    a, b = (names.index(name) for name in names if "rand" in name)
    names[a], names[b] = names[b], names[a]
    change = peak_changes.Change(
        "reorder", "forward", "", 0, program.memory, schedule=Schedule(tuple(names), *recorded[1:])
    )
    g = aotviz.aot_function(f, run_graph, partition_fn=aotviz.policy(change, otherwise="default"))
    with pytest.raises((ValueError, KeyError)):
        g(torch.ones(9, requires_grad=True))


def test_a_change_of_the_calling_code_is_no_partitioner() -> None:
    found = aotviz.plans(Cast(), torch.randn(8, 64), partitioners=["default"])
    change = next(one for one in found[0].peak_changes(9) if one.kind == "let go")
    with pytest.raises(ValueError, match="is a change of the calling code, which no partitioner can make: Let go of"):
        aotviz.policy(change)


def test_it_is_a_part_of_the_key_of_the_cache(tmp_path: Any, clean_dynamo: None) -> None:
    net, x = blocks(), torch.randn(4, 16, 32)
    f = aotviz.compile(net, backend="eager", partition_fn="default", dynamic=False)
    f(x).sum().backward()
    first, second, *_ = f.recording[0].peak_changes()
    outcomes = []
    for change in (first, first, second):
        torch._dynamo.reset()
        g = aotviz.compile(net, backend="eager", partition_fn=aotviz.policy(change), cache=tmp_path, dynamic=False)
        g(x).sum().backward()
        outcomes.append(g.recording.cache_lookups.outcome.tolist())
    assert outcomes == [["miss"], ["hit"], ["miss"]]


def test_they_are_computed_from_a_file_and_from_a_log_too(tmp_path: Any) -> None:
    from tests import corpus

    f = aotviz.compile(blocks(), backend="eager", partition_fn="default", dynamic=False)
    f(torch.randn(4, 16, 32)).sum().backward()
    f.recording.save(tmp_path / "f.aotviz")
    loaded = aotviz.load(tmp_path / "f.aotviz")[0].peak_changes()
    assert loaded.sentences == f.recording[0].peak_changes().sentences
    assert isinstance(loaded[0].schedule, Schedule)
    log = aotviz.read_trace(corpus.folder("ranks"), index=False)
    assert log["rank 0: 0/0"].peak_changes().sentences[0].startswith("The peak is ")


def test_a_saved_recording_has_the_same_changes_for_a_page(tmp_path: Path) -> None:
    model = aotviz.aot_module(Cast(), run_graph, partition_fn="default_partition")
    model(torch.randn(64, 64, requires_grad=True))[0].backward()
    model.recording.save(tmp_path / "cast.aotviz")
    read = aotviz.load(tmp_path / "cast.aotviz")
    assert peaks.of_all(read) == peaks.of_all(model.recording) != []


def test_a_cast_that_also_moves_to_another_device_is_no_change_and_the_page_is_made(tmp_path: Path) -> None:
    weight = torch.nn.Parameter(torch.randn(64, 64))

    def f(x: torch.Tensor) -> torch.Tensor:
        return (x @ weight.to(device="meta", dtype=torch.bfloat16)).tanh().sum()

    compiled = aotviz.compile(f, backend="eager", cache=False)
    compiled(torch.ones(64, 64, device="meta", dtype=torch.bfloat16))
    for device in ("meta", "cpu"):
        compiled.recording[0].peak_changes(device=device)
    compiled.recording.to_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size > 100_000


def test_a_function_that_ran_in_eager_has_no_peak_and_says_so() -> None:
    compiled = torch.compile(moved, backend="aotviz_eager")
    with aotviz.record() as recording, pytest.warns(aotviz.RanInEager):
        compiled(given())
    (compilation,) = recording.compilations
    with pytest.raises(
        LookupError, match=r"has no graph that runs: it ran in eager \(.*: stage .joint. refused it: .*\bt_\b"
    ):
        compilation.peak_changes()
