"""The planned memory of a compilation: it is what a call needs, to the byte, at every node."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import aotviz
from aotviz.lowerings import run_graph
from aotviz.torch_private import configs
from tests import corpus, processes
from tests.measured_bytes import differences, run_watched
from tests.oracle import programs as oracle
from tests.oracle.models import FAMILIES, MORE
from tests.parity.sections import modules
from tests.sweeps import planned_memory
from tests.tiers import slow

PARTITIONERS = ["default_partition", "min_cut_rematerialization_partition"]
ROOT = Path(__file__).resolve().parents[1]
QUICK = ("bert", "gpt2")
MODELS = [
    *QUICK,
    *("gptj", "gpt_neox", "roberta", "distilbert", "albert", "electra", "xlnet", "transformer", "lstm", "gru"),
    *("convolutions", "autoencoder", "clip", "opt", "swin"),
]


def leaf(*shape: int) -> torch.Tensor:
    return torch.linspace(-1, 1, torch.Size(shape).numel()).reshape(shape).requires_grad_()


def writes_and_views(x, y):
    x.add_(1)
    return x, (x * y).sum(), y.view(-1)[2:], y.exp().t()


def saved_twice(x):
    y = x.tanh()
    return y.t() @ y, x.split(2)[0] * 2


def unused_items(x):
    return torch.nn.functional.dropout(x.topk(2).values.sort().indices * x[:, :2], 0.5)


def frozen_weight() -> nn.Module:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GELU())
    model[0].weight.requires_grad_(False)
    return model


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "a chain": (lambda x: x.exp().sin().sum(), (leaf(4, 4),)),
    "writes and views": (writes_and_views, (torch.ones(4, 4), leaf(4, 4))),
    "saved twice": (saved_twice, (leaf(4, 3),)),
    "items that nobody reads": (unused_items, (leaf(3, 4),)),
    "only a forward": (lambda x: x.exp().sin().cumsum(0)[1:], (torch.ones(4, 4),)),
    "a perceptron": (nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout(0.1), nn.Linear(4, 4)), (torch.ones(3, 4),)),
    "buffers": (nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.GELU()), (torch.ones(2, 3, 8, 8),)),
    "a convolution whose weight is frozen": (frozen_weight(), (torch.ones(2, 3, 8, 8),)),
    "attention": (nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (torch.ones(2, 5, 16),)),
}


def compared(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], partition_fn: str, again: Any = None) -> list[str]:
    """Where plan and measurement differ for the second step of a program; the first one compiles it. `again` are the
    arguments of the second step, if it cannot have the same ones."""
    is_module = isinstance(fn, nn.Module)
    compiled = (aotviz.aot_module if is_module else aotviz.aot_function)(fn, run_watched, partition_fn=partition_fn)
    tensors = [one for one in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
    tensors += [*fn.parameters(), *fn.buffers()] if is_module else []

    def step(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
        returned = torch.utils._pytree.tree_leaves(compiled(*args, **kwargs))
        results = [one for one in returned if isinstance(one, torch.Tensor)]
        differentiable = [one for one in results if one.requires_grad]
        seeds.extend(torch.ones_like(one) for one in differentiable[len(seeds) :])
        if differentiable:
            torch.autograd.backward(differentiable, seeds)
        return results

    seeds: list[torch.Tensor] = []
    step(args, kwargs)
    for one in tensors:
        one.grad = None  # the engine then takes the gradients as they are
    args, kwargs = again or (args, kwargs)
    tensors += [one for one in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
    return differences(compiled.recording[0], lambda: step(args, kwargs), [*tensors, *seeds], watched=True)


@pytest.mark.parametrize("partition_fn", PARTITIONERS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_plan_is_what_is_measured_after_each_node(name: str, partition_fn: str) -> None:
    fn, args = PROGRAMS[name]
    assert not compared(fn, args, {}, partition_fn)


@pytest.mark.parametrize("name", [name if name in QUICK else slow(name) for name in MODELS])
def test_the_plan_of_a_model_is_what_is_measured_after_each_node(name: str) -> None:
    torch.manual_seed(0)
    model, inputs = {**FAMILIES, **MORE}[name]()
    inputs = dict(inputs)
    assert not compared(model, inputs.pop("", ()), inputs, PARTITIONERS[1])


NO_GRAPH = {
    "CTCLoss",
    "GaussianNLLLoss",
    "FractionalMaxPool2d",
    "FractionalMaxPool3d",
}  # they ask for a value, or raise
PARTS = 8


@pytest.mark.every(PARTS)
@pytest.mark.parametrize("part", range(PARTS))
def test_the_plan_of_each_module_of_torch_is_what_is_measured_after_each_node(part: int) -> None:
    """The first inputs of each module of module_db, in training and in evaluation."""
    differ, ran = {}, 0
    names = [name for name in modules.groups() if name not in NO_GRAPH][part::PARTS]
    for key, trial in (one for name in names for one in modules.trials(name, most=2)):
        if trial is None:
            continue
        setup = trial.builds[0]()
        with contextlib.suppress(aotviz.Refused):  # a momentum of None asks how many batches there were
            found = compared(setup.fn, setup.args, setup.kwargs, PARTITIONERS[1])
            ran += 1
            differ |= {key: found} if found else {}
    assert not differ
    assert ran > 250 // PARTS - 10


NOT_COMPARED = {
    "grad_mode_is_switched_off_inside": "the first step leaves grad mode off, so the second has no backward",
}


@pytest.mark.slow
@pytest.mark.parametrize("partition_fn", PARTITIONERS)
def test_the_plan_of_each_program_of_the_oracle_is_what_is_measured_after_each_node(partition_fn: str) -> None:
    differ, ran = {}, 0
    for name, trial in oracle.PROGRAMS.items():
        if name in NOT_COMPARED:
            continue
        first, second = trial.builds[0](), trial.builds[0]()
        again = (second.args, second.kwargs)  # a leaf may be written, or the backward behind an input have run
        with contextlib.suppress(RuntimeError), torch.enable_grad(), first.context():  # it is refused, in eager too
            found = compared(first.fn, first.args, first.kwargs, partition_fn, again)
            ran += 1
            differ |= {name: found} if found else {}
    assert not differ
    assert ran > 200


HARD = {
    "data_is_assigned": "the caller holds the new storage of `x`",
    "parameter_is_set_under_no_grad": "the same",
    "non_leaf_input_is_mutated_by_a_parameter": "autograd runs `mul` too, in the backward of what made `x`",
    "convolution_and_batch_norm": "the wrapper runs `detach` too",
}


@pytest.mark.parametrize("partition_fn", PARTITIONERS)
@pytest.mark.parametrize("name", HARD)
def test_the_plan_of_a_program_with_other_storages_or_operators_is_what_is_measured(
    name: str, partition_fn: str
) -> None:
    first, second = (oracle.PROGRAMS[name].builds[0]() for _ in range(2))
    assert not compared(first.fn, first.args, first.kwargs, partition_fn, (second.args, second.kwargs))


def test_a_plan_that_keeps_what_is_freed_is_found() -> None:
    """The comparison itself: without the moment at which a value is read last, it fails."""
    compiled = aotviz.aot_function(lambda x: x.exp().sin().cos(), run_graph)
    x = torch.ones(4)
    compiled(x)
    assert not differences(compiled.recording[0], lambda: compiled(x), [x])
    holds = []

    def keeps(graph_module: Any, _inputs: Any) -> Any:
        def run(args: list[Any]) -> Any:
            holds.append(args[0].exp())
            return graph_module(*args)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    held = aotviz.aot_function(lambda x: x.exp().sin().cos(), keeps)
    held(x)
    assert differences(held.recording[0], lambda: held(x), [x])


def test_the_peak_says_where_it_is_and_who_holds_the_memory() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide = nn.Linear(4, 64)

        def forward(self, x):
            return self.wide(x).relu().square().sum()

    model = aotviz.aot_module(Block(), run_graph)
    model(torch.ones(8, 4)).backward()
    memory = model.recording[0].memory()
    peak = memory.peak
    moments = memory.moments
    assert peak.nbytes == moments.alive.max() == moments.alive[peak.at]
    assert (peak.phase, peak.source.partition(" ")[2]) == ("backward", "return self.wide(x).relu().square().sum()")
    holders = memory.holders()
    assert holders.nbytes.sum() == peak.nbytes
    assert dict(holders.groupby("kind").nbytes.sum())["parameter"] == (4 * 64 + 64) * 4
    assert set(holders[holders.kind == "parameter"].name) == {"wide.weight", "wide.bias"}
    assert memory.plot().layout.title.text.startswith(f"{memory.name}: at most ")
    with pytest.raises(IndexError, match=r"there is no moment 999: the moments of Block.* are 0 to \d+"):
        memory.holders(999)


def test_symbolic_sizes_are_those_of_the_recorded_call_or_others() -> None:
    f = aotviz.compile(lambda x: torch.cat([x, x[1:]]).exp().sum(), backend="eager", dynamic=True)
    f(leaf(4)).backward()
    compilation = f.recording[0]
    (symbol,) = {size for shape in compilation.inputs["shape"] for size in shape if isinstance(size, str)}
    g = aotviz.compile(lambda x: torch.cat([x, x[1:]]).exp().sum(), backend="eager", dynamic=False)
    g(leaf(4)).backward()
    assert compilation.memory().peak.nbytes == g.recording[0].memory().peak.nbytes
    g(leaf(64)).backward()
    assert compilation.memory(sizes={symbol: 64}).peak.nbytes == g.recording[1].memory().peak.nbytes
    assert compilation.memory().holders(0).name[0] == "x"


def test_a_size_that_depends_on_data_must_be_given() -> None:
    with configs.MODULES[configs.DYNAMO].patch(capture_dynamic_output_shape_ops=True):
        f = aotviz.compile(lambda x: (x.nonzero() * 2).sum(), backend="eager")
        f(torch.ones(5))
    compilation = f.recording[0]
    with pytest.raises(ValueError, match=r"the size 'u1' is not known: give the value of u1, as in sizes="):
        compilation.memory()
    assert compilation.memory(sizes={"u1": 5}).peak.nbytes == 20 + 2 * 40


def test_what_dynamo_passes_as_inputs_are_the_parameters_and_buffers() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    f = aotviz.compile(model, backend="eager")
    f(torch.ones(5, 3)).sum().backward()
    g = aotviz.aot_module(model, run_graph)
    g(torch.ones(5, 3)).sum().backward()
    by_kind = [one.recording[0].memory().holders(0).groupby("kind").nbytes.sum().to_dict() for one in (f, g)]
    assert by_kind[0] == by_kind[1]
    assert by_kind[0]["parameter"] == sum(4 * one.numel() for one in model.parameters())
    assert by_kind[0]["buffer"] == sum(one.nbytes for one in model.buffers())


def test_a_saved_file_has_the_same_plan(tmp_path) -> None:
    f = aotviz.compile(lambda x: x.exp().sin().sum(), backend="eager")
    f(leaf(4)).backward()
    f.recording.save(tmp_path / "f.aotviz")
    loaded = aotviz.load(tmp_path / "f.aotviz")[0].memory()
    assert loaded.moments.equals(f.recording[0].memory().moments)


def test_a_log_of_two_ranks_has_a_plan_for_each(tmp_path) -> None:
    """The second rank compiled the same function for five rows too, with a symbolic size: for four rows, it needs what
    the first program needs."""
    log = aotviz.read_trace(corpus.folder("ranks"), index=False)
    first, static, dynamic = (log[name].memory() for name in ("rank 0: 0/0", "rank 1: 0/0", "rank 1: 0/1"))
    assert first.moments.equals(static.moments)
    (symbol,) = log["rank 1: 0/1"].data.sizes
    assert log["rank 1: 0/1"].data.sizes == {symbol: 5}
    again = log["rank 1: 0/1"].memory(sizes={symbol: 4})
    assert again.peak.nbytes == static.peak.nbytes < dynamic.peak.nbytes
    assert static.peak.source.partition(" ")[2] in corpus.source("ranks")
    for name in ("rank 0: 0/0", "rank 1: 0/0"):
        inputs = {(one.kind, math.prod(one.shape) * 4) for one in log[name].data.inputs}
        found = {(one.kind, one.nbytes) for one in log[name].memory().all_holders}
        assert {one for one in inputs if one[0] == "parameter"} <= found
        parameters = {one.name for one in log[name].memory().all_holders if one.kind == "parameter"}
        assert not any(set(change.values) & parameters for change in log[name].peak_changes(9))


def test_a_job_of_torchs_own_has_the_plan_of_the_same_program_here(tmp_path) -> None:
    """Torch's backend aot_eager runs the graphs of the min-cut partitioner operator by operator, as this one does."""
    script = tmp_path / "job.py"
    script.write_text(JOB)
    assert not processes.run([script], {**os.environ, "TORCH_TRACE": str(tmp_path / "trace")}).returncode
    (compilation,) = aotviz.read_trace(tmp_path / "trace", index=False)
    names: dict[str, Any] = {}
    exec(JOB.rpartition("torch.compile")[0].rpartition("\n")[0], names)
    model = aotviz.compile(names["model"], backend="eager", partition_fn=PARTITIONERS[1])
    model(names["x"]).sum().backward()
    here, there = model.recording[0].memory(), compilation.memory()
    columns = ["target", "alive", "parameter", "buffer", "saved", "gradient"]
    assert here.moments[columns].values.tolist() == there.moments[columns].values.tolist()


JOB = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))
x = torch.randn(16, 8)
torch.compile(model, backend="aot_eager")(x).sum().backward()
"""


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD, torch.optim.RMSprop])
def test_a_moment_of_an_optimizers_step_has_its_line_in_torch_optim(kind: type[torch.optim.Optimizer]) -> None:
    """Dynamo compiles `step` as a function of its own, so no line of it is the user's."""
    net = nn.Linear(8, 4)
    optimizer = kind(net.parameters(), lr=0.1)
    net(torch.ones(2, 8)).sum().backward()
    update = aotviz.compile(lambda: optimizer.step(), backend="eager", cache=False)
    update()
    compilation = update.recording[-1]
    nodes = compilation.graph("inference").nodes.set_index("name")
    moments = compilation.memory().moments
    assert len(moments) > 1
    for node, line in zip(moments.node, moments.source_line, strict=True):
        path, _, number = line.rpartition(":")
        assert Path(path).parent == Path(torch.optim.__file__).parent
        written = Path(path).read_text(encoding="utf-8").splitlines()[int(number) - 1]
        assert written.strip() in nodes.source_code[node]


def test_what_saved_tensor_hooks_that_are_graphs_pack_is_in_the_plan() -> None:
    """Packed to half of the bytes at the end of the forward, and back at the beginning of the backward."""
    pack = torch.fx.symbolic_trace(lambda x: x.to(torch.bfloat16))
    unpack = torch.fx.symbolic_trace(lambda x: x.to(torch.float32))
    x, seed = leaf(8, 8), torch.ones(())
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        f = aotviz.aot_function(lambda x: x.exp().sin().tanh().sum(), run_graph, partition_fn=PARTITIONERS[0])
        f(x).backward(seed)
    x.grad = None

    def step() -> torch.Tensor:
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            result = f(x)
        result.backward(seed)
        return result

    saved = f.recording[0].saved_tensors
    assert saved.hook.str.startswith("packed from").any()
    packed = set(saved.name[saved.hook != ""])
    assert {one.nbytes for one in f.recording[0].memory().all_holders if one.name in packed} == {2 * 64}
    assert not differences(f.recording[0], step, [x, seed])


def test_the_tables_of_the_page_are_what_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    """A row of each; `python -m tests.sweeps.planned_memory` makes all."""
    page = (ROOT / "docs" / "memory.md").read_text(encoding="utf-8")
    *_, row = planned_memory.models(["autoencoder"])
    assert row in page
    rows = [*planned_memory.changes(["autoencoder"])][2:]
    assert len(rows) == 3
    for row in rows:
        assert row in page.replace("`", "").replace("| autoencoder |", "| `autoencoder` |")
