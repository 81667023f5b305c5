"""`Compilation.what_if` with lists: plans side by side, from a recording alone."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import aotviz
from aotviz.lowerings import run_graph
from aotviz.recording import costs, plans
from aotviz.recording.compilation import Compilation
from aotviz.recording.plans import Plans
from aotviz.torch_private import versions

BUDGETS = [1, 0.7, 0.5, 0.3, 0.1]


def blocks(width: int = 32, count: int = 3) -> nn.Module:
    one = [nn.TransformerEncoderLayer(width, 2, 2 * width, batch_first=True, dropout=0.0) for _ in range(count)]
    return nn.Sequential(*one)


def recorded(model: Any, *inputs: torch.Tensor) -> Any:
    f = aotviz.compile(model, backend="eager", dynamic=False)
    f(*inputs).sum().backward()
    return f


def test_there_is_a_row_for_each_plan_and_a_budget_is_only_for_who_reads_it() -> None:
    f = recorded(blocks(), torch.randn(4, 16, 32))
    found = f.recording[0].what_if(["min-cut", "default"], BUDGETS)
    assert isinstance(found, Plans)
    table = found.table
    assert table.partitioner.tolist() == ["min-cut"] * 5 + ["default"]
    assert table.budget.tolist()[:5] == BUDGETS
    assert table.budget.isna().tolist()[5]
    assert table.recomputed_flop.tolist()[4] > table.recomputed_flop.tolist()[0] == table.recomputed_flop.tolist()[5]
    for plan, row in zip(found, table.itertuples(), strict=True):
        assert isinstance(plan, Compilation)
        moments = plan.memory().moments
        # what the compiled program's inputs are (parameter, buffer) changes no sum
        assert row.peak == moments.alive.max() == max(row.peak_forward, row.peak_backward)
        assert row.saved_bytes == plan.saved_tensors.held_bytes.sum()
    figure = found.plot()
    assert "knee" in [trace.name for trace in figure.data]
    pairs = found.reversals[["plan", "than"]].drop_duplicates()
    assert len(figure.layout.annotations) == len(pairs) > 0
    assert all(
        f"more than {than}" in note.text for note, than in zip(figure.layout.annotations, pairs.than, strict=True)
    )


def test_a_single_plan_stays_a_compilation() -> None:
    f = recorded(blocks(), torch.randn(4, 16, 32))
    assert isinstance(f.recording[0].what_if("default"), Compilation)
    assert len(f.recording[0].what_if(memory_budget=[0.5])) == 1


def test_the_recomputed_flop_are_what_torch_counts() -> None:
    """What the backward runs more than the plan that recomputes no product."""
    model = nn.Sequential(*(nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) for _ in range(3)))
    x = torch.randn(4, 32)
    found = recorded(model, x).recording[0].what_if(["min-cut"], [1.0, 0.0])
    counted = []
    for budget in (1.0, 0.0):
        with torch._functorch.config.patch(activation_memory_budget=budget):
            g = aotviz.compile(model, backend="eager", dynamic=False, cache=False)
            out = g(x).sum()
        with FlopCounterMode(display=False) as mode:
            out.backward()
        counted.append(mode.get_total_flops())
    more = found.table.recomputed_flop[1] - found.table.recomputed_flop[0]
    assert counted[1] - counted[0] == more > 0


def test_what_is_recomputed_from_a_random_state_counts_too() -> None:
    model, x = blocks(count=1), torch.randn(4, 16, 32)
    plan = recorded(model, x).recording[0].what_if(["min-cut"], [0.0])[0]
    backward = plan.graph("backward")
    found = zip(backward.rows, costs.costs(backward, {}), strict=True)
    again = "aten._scaled_dot_product_flash_attention_for_cpu.default"
    if not versions.has("attention on a CPU is recomputed without a state"):
        again = "higher_order.run_with_rng_state"
    (attention,) = (one.flop for node, one in found if node.target == again)
    assert attention == 2 * (2 * 4 * 2 * 16 * 16 * 16)  # two products, of 4 sequences of 16, in 2 heads of width 16


class OneOperator(nn.Module):
    def __init__(self, operator: Any) -> None:
        super().__init__()
        self.operator = operator

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return self.operator(*args)


OPERATORS: dict[str, tuple[Any, tuple[torch.Tensor, ...]]] = {
    "mm": (torch.mm, (torch.ones(3, 4), torch.ones(4, 5))),
    "the same twice": (lambda x: x @ x, (torch.ones(3, 3),)),
    "addmm": (torch.addmm, (torch.ones(5), torch.ones(3, 4), torch.ones(4, 5))),
    "bmm": (torch.bmm, (torch.ones(2, 3, 4), torch.ones(2, 4, 5))),
    "baddbmm": (torch.baddbmm, (torch.ones(2, 3, 5), torch.ones(2, 3, 4), torch.ones(2, 4, 5))),
    "convolution": (lambda x, w: torch.conv2d(x, w, padding=1), (torch.ones(2, 3, 8, 8), torch.ones(5, 3, 3, 3))),
    "grouped": (lambda x, w: torch.conv1d(x, w, groups=2), (torch.ones(2, 4, 8), torch.ones(6, 2, 3))),
    "transposed": (nn.functional.conv_transpose2d, (torch.ones(2, 3, 8, 8), torch.ones(3, 5, 3, 3))),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
def test_the_flop_of_a_graph_are_what_torch_counts(name: str) -> None:
    operator, inputs = OPERATORS[name]
    inputs = tuple(one.clone().requires_grad_() for one in inputs)
    f = aotviz.aot_function(operator, run_graph)
    f(*inputs).sum().backward()
    with FlopCounterMode(display=False) as mode:
        f(*inputs).sum().backward()
    here = f.recording[0]
    found = sum(one.flop for role in ("forward", "backward") for one in costs.costs(here.graph(role), {}))
    assert found == mode.get_total_flops() > 0


def test_attention_counts_as_the_two_products_that_it_is_made_of() -> None:
    """torch counts none on a CPU; the same formula is checked for the kernels that it does count."""
    q, k, v = (torch.ones(2, 3, n, 8, requires_grad=True) for n in (5, 7, 7))
    f = aotviz.aot_function(nn.functional.scaled_dot_product_attention, run_graph)
    f(q, k, v).sum().backward()
    forward, backward = (f.recording[0].graph(role) for role in ("forward", "backward"))
    from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

    wanted = sdpa_flop_count(q.shape, k.shape, v.shape)
    assert sum(one.flop for one in costs.costs(forward, {})) == wanted
    wanted = sdpa_backward_flop_count(q.shape, q.shape, k.shape, v.shape)
    assert sum(one.flop for one in costs.costs(backward, {})) == wanted


def test_knees_are_the_inner_corners_of_the_lower_hull() -> None:
    """Each is below every line between a faster and a slower plan; no other plan is."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        points = [tuple(map(float, one)) for one in torch.randint(0, 20, (7, 2), generator=generator)]
        knees = plans.corners(points)
        lowest = min(points, key=lambda one: (one[1], one[0]))
        fastest = min(points)
        for i, (time, peak) in enumerate(points):
            if (time, peak) in (lowest, fastest):
                continue
            lines = [
                a[1] + (time - a[0]) * (b[1] - a[1]) / (b[0] - a[0])
                for a, b in itertools.permutations(points, 2)
                if a[0] < time < b[0]
            ]
            first = all(peak < other[1] or time < other[0] for other in points if other != (time, peak))
            below = first and all(peak < line for line in lines)
            assert below == any(points[k] == (time, peak) for k in knees), (points, i)


def test_a_smaller_budget_with_a_higher_peak_is_told_with_what_makes_it_so() -> None:
    """Attention with dropout: under a budget a mask is made again while more gradients are alive."""
    from tests.oracle.models import FAMILIES

    model, inputs = FAMILIES["gpt2"]()
    f = aotviz.compile(model, backend="eager", dynamic=False)
    f(**inputs)
    found = f.recording[0].what_if(["min-cut"], [1, 0.7])
    one, other = found.table.peak.tolist()
    assert other > one  # the riddle
    rows = found.reversals
    assert rows.nbytes.sum() == other - one
    assert set(rows.plan) == {"min-cut, budget 0.7"}
    assert any(text.startswith("min-cut, budget 0.7 needs ") and "`mul" in text for text in found.sentences)
    alive = found[1].memory().holders().set_index("name").nbytes
    only = rows[rows.nbytes > 0].set_index("name").nbytes
    assert (alive[only.index].to_numpy() >= only.to_numpy()).all()


def test_symbolic_sizes_are_those_of_the_call_or_others() -> None:
    f = aotviz.compile(lambda x: x.exp().sin().sum(), backend="eager", dynamic=True)
    f(torch.ones(8, requires_grad=True)).backward()
    assert f.recording[0].what_if(["default"]).table.saved_bytes.tolist() == [32]
    (symbol,) = {size for shape in f.recording[0].inputs["shape"] for size in shape if isinstance(size, str)}
    table = f.recording[0].what_if(["default"], sizes={symbol: 100}).table
    assert table.saved_bytes.tolist() == [400]
