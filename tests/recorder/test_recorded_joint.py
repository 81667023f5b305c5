"""Plans of a recording whose function is in another process: they are those of the live function."""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from msgspec.structs import replace
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import aotviz
from aotviz.reading.recording import Recording
from tests import processes
from tests.oracle.models import FAMILIES
from tests.tiers import slow

PARTITIONERS, BUDGETS = ["min-cut", "default"], [1, 0.5, 0.1, 0]
COLUMNS = [
    "partitioner",
    "budget",
    "saved",
    "saved_bytes",
    "recomputed",
    "recomputed_flop",
    "peak_forward",
    "peak",
    "at",
]


pytestmark = pytest.mark.usefixtures("clean_dynamo")


def leaf(*shape: int) -> torch.Tensor:
    return torch.linspace(-1, 1, torch.Size(shape).numel()).reshape(shape).requires_grad_()


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "a chain": (lambda x: x.sin().cos().sum(), (leaf(8),)),
    "views of an input": (lambda x: (x.view(-1)[2:], (x.exp() * x).sum()), (leaf(4, 4),)),
    "random numbers": (nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.1), nn.Linear(16, 4)), (torch.ones(4, 8),)),
    "buffers that are written": (nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)), (torch.ones(2, 3, 8, 8),)),
    "a constant": (lambda x: (x.exp() * torch.tensor([2.0, 3.0])).sin().sum(), (leaf(2),)),
    "attention": (nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (torch.ones(2, 5, 16),)),
    "several results of an operator": (lambda x: x.topk(2).values.sort().values * x[:, :2], (leaf(3, 4),)),
}


def checkpointed(layer: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return lambda x: checkpoint(layer, x, use_reentrant=False, **options).square().sum()


def region(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() @ x.exp()).tanh().cos() * x


def tagging(products: CheckpointPolicy, rest: CheckpointPolicy) -> Callable[..., Any]:
    def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        return products if op is torch.ops.aten.mm.default else rest

    return lambda: create_selective_checkpoint_contexts(policy)


SAVE, KEEP = CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE
AGAIN, RATHER_AGAIN = CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE
PROGRAMS |= {
    "a checkpoint": (checkpointed(region), (leaf(4, 4),)),
    "two checkpoints": (lambda x: checkpointed(region)(checkpoint(region, x, use_reentrant=False)), (leaf(4, 4),)),
    "products are saved": (checkpointed(region, context_fn=tagging(SAVE, RATHER_AGAIN)), (leaf(4, 4),)),
    "products are recomputed": (checkpointed(region, context_fn=tagging(AGAIN, KEEP)), (leaf(4, 4),)),
    "all is recomputed": (checkpointed(region, context_fn=tagging(AGAIN, AGAIN)), (leaf(4, 4),)),
    "dropout in a checkpoint": (checkpointed(nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5))), (leaf(4, 4),)),
}


def recorded(fn: Callable[..., Any], args: tuple[Any, ...], **options: Any) -> Recording:
    compiled = aotviz.compile(fn, backend="eager", **options)
    found = torch.utils._pytree.tree_leaves(compiled(*args))
    sum(one.float().sum() for one in found if isinstance(one, torch.Tensor) and one.requires_grad).backward()
    return compiled.recording


def from_file(recording: Recording, folder: Path) -> Recording:
    recording.save(folder / "r.aotviz")
    return aotviz.load(folder / "r.aotviz")


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_plans_from_a_file_are_those_of_the_live_function(name: str, tmp_path: Path) -> None:
    recording = recorded(*PROGRAMS[name])
    live, plans = (one[0].what_if(PARTITIONERS, BUDGETS) for one in (recording, from_file(recording, tmp_path)))
    assert plans.table[COLUMNS].equals(live.table[COLUMNS])
    for ours, theirs in zip(plans, live, strict=True):
        assert ours.saved_tensors.name.tolist() == theirs.saved_tensors.name.tolist()
        assert ours.recomputed.name.tolist() == theirs.recomputed.name.tolist()
        for role in ("forward", "backward"):
            assert ours.graph(role).nodes.target.tolist() == theirs.graph(role).nodes.target.tolist()


@pytest.mark.parametrize("name", [slow("bert"), slow("gpt2"), slow("t5")])
def test_the_plans_of_a_model_from_a_file_are_those_of_the_live_function(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, inputs = FAMILIES[name]()
    inputs = dict(inputs)
    recording = recorded(lambda: model(*inputs.get("", ()), **{k: v for k, v in inputs.items() if k}), ())
    live, plans = (one[-1].what_if(PARTITIONERS, BUDGETS) for one in (recording, from_file(recording, tmp_path)))
    assert plans.table[COLUMNS].equals(live.table[COLUMNS])


ELSEWHERE = """
import json, sys
import aotviz
plans = aotviz.load(sys.argv[1])[0].what_if(["min-cut", "default"], [1, 0.1], sizes=json.loads(sys.argv[2]))
print(json.dumps([[int(row[name]) for name in ("saved_bytes", "peak")] for _, row in plans.table.iterrows()]))
"""


def test_another_process_has_the_plans_also_for_other_sizes(tmp_path: Path) -> None:
    def loss(x: torch.Tensor) -> torch.Tensor:
        return (x.exp().sin() @ x.cos()).sum()

    recording = recorded(loss, (leaf(4, 4),), dynamic=True)
    recording.save(tmp_path / "r.aotviz")
    (symbol,) = recording[0].data.sizes
    for size in (4, 16):
        plans = recording[0].what_if(["min-cut", "default"], [1, 0.1], sizes={symbol: size})
        live = [[int(one) for one in row] for row in plans.table[["saved_bytes", "peak"]].values]
        done = processes.run(["-c", ELSEWHERE, tmp_path / "r.aotviz", json.dumps({symbol: size})])
        assert json.loads(done.stdout) == live


def test_a_policy_is_tried_on_a_file(tmp_path: Path) -> None:
    recording = recorded(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)), (torch.ones(4, 8),))
    policy = aotviz.policy({"1": "recompute"}, otherwise="default")
    live, there = (one[0].what_if(policy) for one in (recording, from_file(recording, tmp_path)))
    assert there.saved_tensors.name.tolist() == live.saved_tensors.name.tolist()
    assert there.recomputed.name.tolist() == live.recomputed.name.tolist() != []


def test_what_a_file_does_not_have_is_refused_by_name(tmp_path: Path) -> None:
    recording = recorded(*PROGRAMS["a checkpoint"])
    data = from_file(recording, tmp_path).data
    (old,) = data.compilations
    without = [replace(graph, checkpoint={}) for graph in old.graphs]
    with pytest.raises(LookupError, match="it is of a version that did not record checkpoints"):
        Recording(replace(data, compilations=[replace(old, graphs=without)]))[0].what_if("default")
    own = aotviz.policy({">= 1 MiB": "save"}, otherwise="default")
    with pytest.warns(UserWarning, match="no value of this graph matches"):
        recording = recorded(lambda x: x.sin().exp().sum(), (leaf(4),), partition_fn=own)
    with pytest.raises(LookupError, match="with its own partitioner: name another one"):
        from_file(recording, tmp_path)[0].what_if(memory_budget=0.5)


@pytest.mark.parametrize(
    "target", ["aten.from_file.default", "aten.save.default", "os.system", "aten.__class__.mro", "aten.sin.__call__"]
)
def test_no_other_name_of_a_file_is_looked_up_than_that_of_an_operator(target: str, tmp_path: Path) -> None:
    data = recorded(lambda x: x.sin().exp().sum(), (leaf(4),)).data
    strings = [target if text == "aten.sin.default" else text for text in data.strings]
    hostile = Recording(msgspec.convert(msgspec.to_builtins(replace(data, strings=strings)), type(data)))
    with pytest.raises(LookupError, match="which is no operator of torch's own"):
        hostile[0].what_if("default")


ATTACK = "x=__import__('builtins').__dict__.setdefault('aotviz_was_attacked', 1)"


@pytest.mark.parametrize("text", ["primals_1", "tangents_1", "sin", "pin_memory"])
def test_no_text_of_a_file_becomes_code(text: str) -> None:
    """fx writes the targets of placeholders and the names of keyword arguments into the code of a module."""
    data = recorded(lambda x: (x.sin() * torch.zeros_like(x)).exp().sum(), (leaf(4),)).data
    raw = msgspec.to_builtins(data)
    assert text in data.strings or text == "pin_memory"

    def attacked(value: Any) -> Any:
        if isinstance(value, dict):
            return {ATTACK if key == text else key: attacked(part) for key, part in value.items()}
        if isinstance(value, list):
            return [attacked(part) for part in value]
        return ATTACK if value == text else value

    hostile = Recording(msgspec.convert(attacked(raw), type(data)))
    try:
        with pytest.raises(LookupError, match="is not a name"):
            hostile[0].what_if("default")
    finally:
        assert not vars(builtins).pop("aotviz_was_attacked", None)
