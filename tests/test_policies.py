"""`aotviz.policy`: a table that says what is saved and what is recomputed is a partitioner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import aotviz
from aotviz.lowerings import run_graph
from aotviz.torch_private import versions
from tests.measured_bytes import differences

RULES: dict[str, dict[str, str]] = {
    "a module": {"*.self_attn.*": "recompute"},
    "each layer": {"layers.*": "recompute"},
    "an operator": {"aten.native_dropout": "recompute"},
    "a size": {">= 8 KiB": "recompute"},
    "all": {"*": "recompute"},
    "the first that matches": {"layers.1": "save", "*.linear1": "recompute", "aten.relu": "save", "*": "recompute"},
}  # fmt: skip


def model() -> nn.Module:
    """Two layers with attention, dropout, and a list around them."""
    torch.manual_seed(0)

    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            made = (nn.TransformerEncoderLayer(32, 2, 64, batch_first=True, dropout=0.2) for _ in range(2))
            self.layers = nn.ModuleList(made)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x)
            return x

    return Layers()


def step(run: Callable[..., Any], net: nn.Module) -> list[torch.Tensor]:
    """The result and the gradients of a step, and the random number after it."""
    torch.manual_seed(1)
    net.zero_grad(set_to_none=True)
    result = run(torch.linspace(-1, 1, 4 * 8 * 32).reshape(4, 8, 32))
    result.square().sum().backward()
    return [result.detach(), *(one.grad for one in net.parameters() if one.grad is not None), torch.rand(3)]


@pytest.mark.parametrize("otherwise", ["default", "min-cut"])
@pytest.mark.parametrize("name", RULES)
def test_the_results_are_eagers_and_the_same_random_numbers_are_drawn(
    name: str, otherwise: str, clean_dynamo: None
) -> None:
    net = model()
    compiled = aotviz.compile(net, backend="eager", partition_fn=aotviz.policy(RULES[name], otherwise))
    for mine, eagers in zip(step(compiled, net), step(net, net), strict=True):
        assert torch.equal(mine, eagers)
    here = compiled.recording[0]
    assert len(here.recomputed) > 5
    assert any("your policy: " in why or "recompute" in why for why in here.saved_tensors.why)


@pytest.mark.parametrize("name", ["a module", "each layer", "an operator", "a size"])
def test_the_plan_of_a_policy_is_what_is_measured(name: str) -> None:
    net = model()
    compiled = aotviz.aot_module(net, run_graph, partition_fn=aotviz.policy(RULES[name]))
    x, seeds = torch.randn(4, 8, 32), [torch.ones(4, 8, 32)]

    def run() -> Any:
        torch.autograd.backward([result := compiled(x)], seeds)
        return result

    run()
    net.zero_grad(set_to_none=True)
    assert not differences(compiled.recording[0], run, [x, *seeds, *net.parameters()])


def test_each_layer_of_a_list_is_recomputed_by_itself_as_by_a_checkpoint(clean_dynamo: None) -> None:
    """What goes from one layer to the next is saved, and nothing else of the layers."""
    net = model()
    compiled = aotviz.compile(net, backend="eager", partition_fn=aotviz.policy(RULES["each layer"]))
    step(compiled, net)
    saved = compiled.recording[0].saved_tensors
    values = saved[(saved.memory_of == "") & ~saved.why.str.contains("random state")]
    assert values.held_bytes.sum() == 4 * 8 * 32 * 4

    checkpointed = model()

    class Checkpoints(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in checkpointed.layers:  # type: ignore[union-attr]
                x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)
            return x

    other = aotviz.compile(Checkpoints(), backend="eager", partition_fn="default")
    step(other, checkpointed)
    assert other.recording[0].saved_tensors.held_bytes.sum() == saved.held_bytes.sum()


def test_its_effect_is_a_row_of_what_if_and_of_plans(clean_dynamo: None) -> None:
    net = model()
    f = aotviz.compile(net, backend="eager", partition_fn="default")
    step(f, net)
    rules = aotviz.policy({"*.self_attn.*": "recompute"})
    table = f.recording[0].what_if(["default", rules]).table
    assert table.partitioner.tolist() == ["default", "policy *.self_attn.*: recompute"]
    assert table.saved_bytes[1] < table.saved_bytes[0]
    assert table.peak[1] < table.peak[0]
    assert table.recomputed[1] > 0
    torch._dynamo.reset()
    compiled = aotviz.compile(net, backend="eager", partition_fn=rules)
    step(compiled, net)
    assert compiled.recording[0].saved_tensors.held_bytes.sum() == table.saved_bytes[1]
    found = aotviz.plans(net, torch.randn(4, 8, 32), partitioners=[rules], measure=True)
    assert found.table.wrong.tolist() == [""]


@pytest.mark.parametrize("backend", ["aotviz", "aotviz_eager"])
def test_torch_compile_takes_it_as_an_option(backend: str, clean_dynamo: None) -> None:
    """Inductor's own numbers differ from eager's, so here nothing is random."""
    net = model().eval()
    options = {"partition_fn": aotviz.policy({"*.self_attn.*": "recompute"}), "cache": False}
    compiled = torch.compile(net, backend=backend, options=options)
    with aotviz.record() as recording:
        mine = step(compiled, net)
    for a, b in zip(mine, step(net, net), strict=True):
        assert torch.allclose(a, b, atol=1e-4)
    assert len(recording[0].recomputed) > 5


def test_it_is_a_part_of_the_key_of_the_cache(tmp_path: Any, clean_dynamo: None) -> None:
    net, outcomes = model(), []
    tables = ({"aten.relu": "recompute"}, {"aten.relu": "recompute"}, {"aten.relu": "save"})
    for rules, otherwise in [*((one, "default") for one in tables), (tables[0], "min-cut")]:
        torch._dynamo.reset()
        rule = aotviz.policy(rules, otherwise)
        compiled = aotviz.compile(net, backend="eager", partition_fn=rule, cache=tmp_path)
        results = step(compiled, net)
        assert all(torch.equal(a, b) for a, b in zip(results, step(net, net), strict=True))
        outcomes.append(compiled.recording.cache_lookups.outcome.tolist())
    assert outcomes == [["miss"], ["hit"], ["miss"], ["miss"]]


@pytest.mark.skipif(not versions.has("a trace takes generators"), reason="torch can't trace a generator")
def test_what_draws_from_the_users_generator_is_saved() -> None:
    generator = torch.Generator()

    def f(x: torch.Tensor) -> torch.Tensor:
        return (x.exp() * torch.rand(4, generator=generator)).tanh().sum()

    x = torch.ones(4, requires_grad=True)
    generator.manual_seed(0)
    (wanted,) = torch.autograd.grad(f(x), x)
    after = torch.rand(2, generator=generator)
    compiled = aotviz.aot_function(f, run_graph, partition_fn=aotviz.policy({"*": "recompute"}))
    generator.manual_seed(0)
    compiled(x)
    generator.manual_seed(0)
    (found,) = torch.autograd.grad(compiled(x), x)
    assert torch.equal(found, wanted)
    assert torch.equal(torch.rand(2, generator=generator), after)
    saved = compiled.recording[0].saved_tensors.set_index("name").why
    assert saved["rand"] == "your policy: '*': 'recompute', but it cannot run twice with the same result"


def test_a_checkpoint_of_the_users_is_left_as_it_is(clean_dynamo: None) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.utils.checkpoint.checkpoint(lambda x: x.sin().exp(), x, use_reentrant=False).tanh().sum()

    compiled = aotviz.compile(f, backend="eager", partition_fn=aotviz.policy({"*": "save"}))
    compiled(torch.ones(3, requires_grad=True)).backward()
    assert {"sin", "exp"} & set(compiled.recording[0].recomputed.name)


def test_a_pattern_that_matches_nothing_is_told_with_the_modules_that_there_are(clean_dynamo: None) -> None:
    net = model()
    compiled = aotviz.compile(net, backend="eager", partition_fn=aotviz.policy({"*.attn.*": "recompute"}))
    with pytest.warns(
        UserWarning, match=r"no value of this graph matches '\*.attn.\*'. Modules in it: layers.0.self_a"
    ):
        step(compiled, net)


def test_what_cannot_be_is_refused_by_name(clean_dynamo: None) -> None:
    with pytest.raises(ValueError, match="the policy for 'h' is 'keep'; it can be 'save', 'recompute', 'offload'"):
        aotviz.policy({"h": "keep"})
    with pytest.raises(ValueError, match="no partitioner 'best'"):
        aotviz.policy({}, otherwise="best")


def test_offload_moves_a_saved_value_to_the_cpu_and_back_within_the_graphs(clean_dynamo: None) -> None:
    """Tensors without memory stand for those of an accelerator: the graphs are made, and none of them runs."""
    f = aotviz.compile(lambda x: x.sin().exp().sum(), backend="eager", partition_fn="default")
    f(torch.ones(1000, device="meta", requires_grad=True)).backward()
    offload = aotviz.policy({"aten.exp": "offload"}, otherwise="default")
    plan = f.recording[0].what_if(offload)
    forward, backward = (plan.graph(role).nodes.set_index("name") for role in ("forward", "backward"))
    moved = forward[forward.target == "prims.device_put.default"]
    assert [*moved.index, *moved.device] == ["cpu_offload_detach", "cpu"]
    back = backward[backward.target == "prims.device_put.default"]
    assert [*back.index, *back.device] == ["gpu_reload_detach", "meta"]
    saved = plan.saved_tensors.set_index("name")
    assert saved.consumers["cpu_offload_detach"] == ("gpu_reload_detach",)
    holders = {one.name: one for one in plan.memory().all_holders}
    assert holders["cpu_offload_detach"].kind == "saved"
    assert holders["exp"].kind == "intermediate"
    assert holders["exp"].held_until == (plan.memory().moments.phase == "forward").sum() - 1  # while it is moved
    assert holders["gpu_reload_detach"].nbytes == 4000


@pytest.mark.parametrize("budget", [0.1, 0.0])
def test_what_a_policy_saves_is_saved_under_each_memory_budget(budget: float) -> None:
    """torch's min-cut partitioner saves inputs only at 0."""
    net = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 4))
    rules = aotviz.policy({"aten.gelu": "save"}, otherwise="min-cut")
    with torch._functorch.config.patch(activation_memory_budget=budget):
        model = aotviz.compile(net, backend="eager", partition_fn=rules)
        x = torch.ones(16, 8)
        model(x).sum().backward()
    found = [one.grad for one in net.parameters()]
    expected = torch.autograd.grad(net(x).sum(), [*net.parameters()])
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
    saved = model.recording[0].saved_tensors
    assert saved[saved.held_bytes > 0].name.tolist() == ["gelu", "gelu_1"]
