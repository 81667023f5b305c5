"""`aotviz.policy({...: "offload"})`, where no accelerator is: tensors on "meta" stand for its tensors.

The graphs are those of torch's own activation offloading. What they compute is compared with eager, on a CPU that
stands for both devices; what they hold is compared with real storages, those of each device by themselves.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import fx, nn
from torch.utils._python_dispatch import TorchDispatchMode

import aotviz
from aotviz.lowerings import run_graph
from aotviz.recorder.live_storages import LiveStorages
from aotviz.recording import measured_bytes

PUT = torch.ops.prims.device_put.default


class NoCopies(TorchDispatchMode):
    """A move between devices makes memory there. Nothing is copied, because "meta" has no data."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is PUT:
            return torch.empty_like(args[0], device=args[1])
        return func(*args, **(kwargs or {}))


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(8, 32), nn.Linear(32, 32), nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.second(torch.sigmoid(self.first(x))))
        return self.third(hidden.relu()).square().sum()


def on_cpu(module: fx.GraphModule) -> fx.GraphModule:
    """A graph for "meta", for a CPU that stands for the accelerator. A move still makes another tensor."""
    made = copy.deepcopy(module)
    for node in made.graph.nodes:
        if node.target is PUT:
            node.target, node.args, node.kwargs = torch.clone, node.args[:1], {}
        elif node.kwargs.get("device") == torch.device("meta"):
            node.kwargs = {**node.kwargs, "device": torch.device("cpu")}
    made.recompile()
    return made


RULES = {
    "an operator": {"aten.sigmoid": "offload"},
    "two operators": {"aten.sigmoid": "offload", "aten.tanh": "offload"},
    "all that torch moves": {"*": "offload"},
    "moved, and computed again": {"aten.sigmoid": "offload", "aten.tanh": "recompute"},
}


@pytest.mark.parametrize("otherwise", ["default", "min-cut"])
@pytest.mark.parametrize("name", RULES)
def test_offloaded_values_give_eagers_gradients_and_are_where_the_plan_says(name: str, otherwise: str) -> None:
    torch.manual_seed(0)
    real, given = Layers(), torch.randn(16, 8)
    net = copy.deepcopy(real).to("meta")
    halves: list[fx.GraphModule] = []

    def keep(module: fx.GraphModule, inputs: Any) -> Any:
        halves.append(module)
        return run_graph(module, inputs)

    policy = aotviz.policy(RULES[name], otherwise=otherwise)
    compiled = aotviz.aot_module(net, keep, partition_fn=policy)
    x = torch.empty(16, 8, device="meta")
    seed = torch.empty((), device="meta")
    with NoCopies():
        compiled(x).backward(seed)
        net.zero_grad()
        with LiveStorages([x, seed, *net.parameters()]) as mode:
            result = compiled(x)
            result.backward(seed)
            mode.close()
    memory = compiled.recording[0].memory()
    assert set(memory.devices) == {"meta", "cpu"}
    for device in memory.devices:
        rows, found = measured_bytes.compared(memory.on(device), mode.ran)
        assert not found, (device, found)
        assert max(row.measured[0] for row in rows) > 0
    assert max(one.alive for one in memory.on("cpu").rows) == memory.on("cpu").peak.nbytes > 0
    assert not any("device_put" in one.what for one in compiled.recording[0].peak_changes(9))

    forward, backward = map(on_cpu, halves)
    results = forward(*real.parameters(), given)
    names = [node.name for node in forward.graph.find_nodes(op="output")[0].args[0]]
    kept = dict(zip(names, results, strict=True))
    inputs = dict(
        zip([one.name for one in forward.graph.find_nodes(op="placeholder")], [*real.parameters(), given], strict=True)
    )
    taken = [node.name for node in backward.graph.find_nodes(op="placeholder")]
    values = [torch.ones(()) if one.startswith("tangents_") else kept.get(one, inputs.get(one)) for one in taken]
    gradients = [one for one in backward(*values) if one is not None]
    loss = real(given)
    torch.testing.assert_close(results[0], loss)
    for mine, eagers in zip(gradients, torch.autograd.grad(loss, [*real.parameters()]), strict=True):
        torch.testing.assert_close(mine, eagers)


def test_plans_beside_each_other_have_the_peaks_of_the_accelerator(clean_dynamo: None) -> None:
    net = Layers().to("meta")
    f = aotviz.compile(net, backend="eager", partition_fn="default")
    f(torch.empty(1024, 8, device="meta")).backward()
    offload = aotviz.policy({"aten.sigmoid": "offload", "aten.tanh": "offload"})
    plans = f.recording[0].what_if(["default", offload])
    table = plans.table
    assert plans.accelerators == ("meta",)
    assert table.peak_forward[1] < table.peak_forward[0]
    one = 1024 * 32 * 4
    assert table.saved_bytes[0] - table.saved_bytes[1] == 2 * one
    assert table.peak_cpu.tolist() == [0, 3 * one]  # torch copies the sigmoid, and a detached alias of it, each
    assert table.peak.tolist() == [plans[0].memory().peak.nbytes, plans[1].memory().on("meta").peak.nbytes]
    assert plans.sentences[0] == "The peaks are those of meta; `peak_cpu` is that of the CPU."


def test_what_torch_does_not_move_has_the_reason(clean_dynamo: None) -> None:
    net = nn.TransformerEncoderLayer(32, 2, 64, batch_first=True).to("meta")
    f = aotviz.compile(net, backend="eager", partition_fn="default")
    f(torch.empty(4, 8, 32, device="meta")).sum().backward()
    cut = f.recording[0].what_if(aotviz.policy({"*": "offload"}))
    saved = cut.saved_tensors
    forward = cut.graph("forward").nodes.set_index("name")
    moved = saved[saved.name.str.startswith("cpu_offload_")]
    assert len(moved)
    assert set(moved.why) == {"your policy: '*': 'offload'"}
    for name, why in zip(saved.name, saved.why, strict=True):
        if "but torch leaves it on its device: " in why:
            reason = why.rpartition(": ")[2]
            is_item = forward.target[name] == "operator.getitem"
            assert is_item == (reason == "it is one of several results of an operator"), name
    assert any("several results" in why for why in saved.why)


def test_what_is_on_the_cpu_stays_there_and_a_warning_says_that_nothing_moves(clean_dynamo: None) -> None:
    """A script with such a policy runs on a laptop, too."""
    f = aotviz.compile(
        lambda x: x.sin().exp().sum(), backend="eager", partition_fn=aotviz.policy({"aten.exp": "offload"})
    )
    x = torch.ones(3, requires_grad=True)
    with pytest.warns(UserWarning, match="'offload' moves nothing here, because the values are on the CPU already"):
        f(x).backward()
    torch.testing.assert_close(x.grad, x.detach().sin().exp() * x.detach().cos())
    saved = f.recording[0].saved_tensors.set_index("name")
    assert saved.why["detach"] == "your policy: 'aten.exp': 'offload', but it is on the CPU already"
    assert f.recording[0].memory().devices == ("cpu",)


def test_a_plan_of_a_program_with_symbolic_sizes_has_the_sizes_of_the_call(clean_dynamo: None) -> None:
    model = aotviz.compile(nn.Sequential(nn.Linear(4, 8), nn.Sigmoid(), nn.Linear(8, 2)), backend="eager", dynamic=True)
    model(torch.ones(6, 4)).sum().backward()
    plans = model.recording[0].what_if(["default", "min-cut"])
    for plan, cut in zip(plans.plans, plans, strict=True):
        assert cut.memory().peak.nbytes == plan.peak
        kinds = dict.fromkeys(one.kind for one in cut.memory().all_holders)
        assert "parameter" in kinds
        (symbol,) = model.recording[0].data.sizes
        assert cut.memory(sizes={symbol: 60}).peak.nbytes > plan.peak
