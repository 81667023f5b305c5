"""`aotviz.bisect` on real faults: each kind of thing that a user can bring is broken once, and must be found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import aotviz
from aotviz.ir import verify
from aotviz.lowerings import run_graph
from aotviz.torch_private.partitioners import default_partition
from tests.processes import run_script

aten = torch.ops.aten


def step(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    hidden = x @ w
    hidden = torch.nn.functional.gelu(hidden)
    return (hidden.sin() * 3).sum()


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(4, 3), torch.randn(3, 2, requires_grad=True)


def tanh_gelu(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    return 0.5 * x * (1 + torch.tanh(0.8 * (x + 0.045 * x**3)))


def half_gelu(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    return aten.mul.Tensor(x, 0.5).half()


def nan_gelu(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    return aten.log.default(aten.minimum.default(x, aten.neg.default(x)))


def line_of(text: str) -> str:
    lines = Path(__file__).read_text().splitlines()
    return f"{__file__}:{next(n for n, line in enumerate(lines, 1) if text in line)}"


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    found = aotviz.bisect(step, *inputs(), repro=None)
    assert not found
    assert "nothing differs" in str(found)


@pytest.mark.parametrize(
    ("decomposition", "what"),
    [(tanh_gelu, "values differ by up to"), (half_gelu, "dtype float32 expected, float16"), (nan_gelu, "8 NaN where")],
)
def test_a_wrong_decomposition_is_found(decomposition: Any, what: str) -> None:
    options = {"decompositions": {aten.gelu.default: decomposition, aten.t.default: aten.t.default}}
    found = aotviz.bisect(step, *inputs(), options=options, repro=None)
    assert (found.stage, found.node, found.operator) == ("trace", "gelu", "aten.gelu.default")
    assert found.place == line_of("functional.gelu(hidden)")
    assert "gelu(hidden)" in found.code
    assert what in found.what


def turns_a_product(joint: Any, inputs: Any, **options: Any) -> Any:
    """A partitioner that has a bug: in the backward, one product becomes a sum."""
    forward, backward = default_partition(joint, inputs, **options)
    node = next(n for n in backward.graph.nodes if n.target is aten.mul.Tensor and isinstance(n.args[1], torch.fx.Node))
    node.target = aten.add.Tensor
    backward.recompile()
    return forward, backward


def saves_the_wrong_value(joint: Any, inputs: Any, **options: Any) -> Any:
    """Another: it saves the sine in the place of what the sine was taken of."""
    forward, backward = default_partition(joint, inputs, **options)
    output = next(iter(reversed(forward.graph.nodes)))
    nodes = {n.name: n for n in forward.graph.nodes}
    output.args = (tuple(nodes["sin"] if r is nodes["gelu"] else r for r in output.args[0]),)
    forward.recompile()
    renamed = next(n for n in backward.graph.nodes if n.name == "gelu")
    renamed._rename("sin")
    backward.recompile()
    return forward, backward


def test_a_partitioner_that_changes_the_backward_is_found() -> None:
    found = aotviz.bisect(step, *inputs(), options={"partition_fn": turns_a_product}, repro=None)
    assert found.stage == "partition"
    assert found.operator == "aten.add.Tensor"
    assert "it was aten.mul.Tensor" in found.what


def test_a_partitioner_that_saves_the_wrong_value_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "ALWAYS", False)  # as for users; our tests are told that the form is malformed
    found = aotviz.bisect(step, *inputs(), options={"partition_fn": saves_the_wrong_value}, repro=None)
    assert found.stage == "partition"
    assert found.node == "cos"


def test_a_pass_of_torchs_settings_is_found() -> None:
    """The trace below it is right: the pass is not in it."""

    def swaps(joint: Any, inputs: Any) -> Any:
        for node in joint.graph.find_nodes(op="call_function", target=aten.sub.Tensor):
            node.args = (node.args[1], node.args[0])
        joint.recompile()
        return joint

    def difference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x.exp() - y).relu().sum()

    with torch._functorch.config.patch(joint_custom_pass=swaps):
        found = aotviz.bisect(difference, torch.ones(2, requires_grad=True), torch.ones(2), repro=None)
    assert (found.stage, found.node, found.operator) == ("partition", "sub", "aten.sub.Tensor")
    assert found.place == line_of("(x.exp() - y).relu()")
    assert found.tried[0] == ("traced", "right")


def cosine_for_sine(graph: Any, example_inputs: Any) -> Any:
    """A backend that has a bug: it takes the cosine where the graph asks for the sine."""
    for node in graph.graph.nodes:
        if node.target is aten.sin.default:
            node.target = aten.cos.default
    graph.recompile()
    return run_graph(graph, example_inputs)


def forgets_a_gradient(graph: Any, example_inputs: Any) -> Any:
    """Another: its last result is zero."""
    run = run_graph(graph, example_inputs)

    def call(args: list[Any]) -> Any:
        *first, last = run(args)
        return [*first, last * 0 if isinstance(last, torch.Tensor) else last]

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


def test_a_backend_that_computes_something_else_is_found() -> None:
    found = aotviz.bisect(step, *inputs(), options={"backend": cosine_for_sine}, repro=None)
    assert (found.stage, found.node, found.operator) == ("lower", "sin", "aten.sin.default")
    assert found.place == line_of("hidden.sin() * 3")
    assert [rung for rung, verdict in found.tried if verdict == "right"] == ["traced"]


def test_a_backend_that_spoils_a_result_is_found() -> None:
    found = aotviz.bisect(step, *inputs(), options={"backend": forgets_a_gradient}, repro=None)
    assert found.stage == "lower"
    assert found.what.startswith(("forward graph", "backward graph"))


@torch.library.custom_op("aotviz_test_bisect::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x, x])


@twice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def uses_twice(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    return twice(y) * 2


def test_a_fake_implementation_that_disagrees_with_the_real_one_is_found() -> None:
    found = aotviz.bisect(uses_twice, torch.ones(3), repro=None)
    assert found.stage == "trace"
    assert found.operator == "aotviz_test_bisect.twice.default"
    assert "shape (3,), but the operator returns (6,)" in found.what
    assert found.place == line_of("return twice(y) * 2")


@pytest.mark.parametrize(
    ("fn", "options"),
    [
        (step, {"decompositions": {aten.gelu.default: tanh_gelu}}),
        (nn.Sequential(nn.Linear(3, 2), nn.GELU()), {"backend": cosine_for_sine, "decompositions": None}),
    ],
    ids=["function", "module"],
)
def test_the_repro_runs_alone_and_finds_the_fault_again(fn: Any, options: Any, tmp_path: Path) -> None:
    script = tmp_path / "fault.py"
    if isinstance(fn, nn.Module):
        fn = nn.Sequential(fn, Sine())
        found = aotviz.bisect(fn, inputs()[0], options=options, repro=script)
    else:
        found = aotviz.bisect(fn, *inputs(), options=options, repro=script)
    assert found.repro == script
    again = run_script(script, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert f"stage {found.stage!r}, node {found.node!r}" in again.stdout


class Sine(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sin()


def test_what_fails_in_eager_is_said_to() -> None:
    with pytest.raises(RuntimeError, match="fails in eager"):
        aotviz.bisect(step, torch.ones(2), torch.ones(3), repro=None)


def test_a_repro_with_something_to_fill_in_says_so_and_a_notebook_shows_the_fault(tmp_path: Path) -> None:
    script, options = tmp_path / "found.py", {"decompositions": {aten.sin.default: lambda x: torch.cos(x)}}
    found = aotviz.bisect(step, *inputs(), options=options, repro=script)
    assert "aten.sin.default" in found._repr_html_()
    assert "<lambda>" not in found._repr_html_()
    ran = run_script(script, cwd=tmp_path)
    assert ran.returncode == 1
    assert "repro_option_0_0: put" in ran.stderr
    assert "Traceback" not in ran.stderr


PROGRAM = '''
from __future__ import annotations

import sys
from dataclasses import dataclass

import torch
from torch import nn

import aotviz
from beside import LIMIT

aten, SCALE, TABLE = torch.ops.aten, 3.0, {"a": torch.Size([2])}


def helper(x):
    """Named by a function, and by no caller."""
    return x.sin() * SCALE + TABLE["a"].numel() + LIMIT


def by_a_helper(x):
    return helper(x).sum()


@dataclass
class Settings:
    factor: float = SCALE


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.settings = Settings(2.0)
        self.linear = nn.Linear(2, 2)

    def forward(self, x):
        return helper(self.linear(x)) * self.settings.factor


model = nn.Sequential(Block(), nn.ReLU())


def by_a_global(x):
    return model(x)


@torch.library.custom_op("repro_test::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * 2


@twice.register_fake
def _(x):
    return torch.empty_like(x)


def twice_backward(ctx, gradient):
    return gradient * 2


twice.register_autograd(twice_backward)
library = torch.library.Library("repro_test", "FRAGMENT")
library.define("thrice(Tensor x) -> Tensor")
library.impl("thrice", lambda x: x.sin() * 3, "CompositeImplicitAutograd")


def by_operators(x):
    return twice(x) + torch.ops.repro_test.thrice(x)


def cosine(x):
    return torch.cos(x)


if __name__ == "__main__":
    wrong = {aten.sin.default: cosine}
    functions = {"helper": by_a_helper, "class": model, "global": by_a_global, "operator": by_operators}
    print("the program runs", file=sys.stderr)
    x = torch.tensor([[0.3, 0.7]], requires_grad=True)
    name = sys.argv[1]
    found = aotviz.bisect(functions[name], x, options={"decompositions": wrong}, repro=sys.argv[2])
    print(found.stage, found.node)
'''


@pytest.mark.parametrize("what", ["helper", "class", "global", "operator"])
def test_the_script_of_a_program_runs_alone(what: str, tmp_path: Path) -> None:
    program, script, elsewhere = tmp_path / "train.py", tmp_path / "out" / "fault.py", tmp_path / "elsewhere"
    program.write_text(PROGRAM)
    (tmp_path / "beside.py").write_text("LIMIT = 0.5\n")
    elsewhere.mkdir()
    first = run_script(program, what, str(script), cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    stage, node = first.stdout.split()
    assert stage == "trace"
    again = run_script(script, cwd=elsewhere)
    assert again.returncode == 0, again.stderr
    assert f"stage {stage!r}, node {node!r}" in again.stdout
    assert "the program runs" not in again.stderr


def test_what_can_not_be_saved_is_named_and_the_fault_is_found_all_the_same(tmp_path: Path) -> None:
    class Local(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sin()

    options = {"decompositions": {aten.sin.default: torch.cos}}
    found = aotviz.bisect(Local(), torch.ones(3), options=options, repro=tmp_path / "fault.py")
    assert found.node == "sin"
    assert found.repro is not None
    ran = run_script(found.repro, cwd=tmp_path)
    assert ran.returncode == 1
    assert "put the call's inputs and modules here" in ran.stderr
    assert "Local" in ran.stderr
    assert "Traceback" not in ran.stderr
