"""A compiled program as a Python file of its own: it runs as the compiled function does, and says what it cannot do.

The programs of the oracle run from their files: a stage after "link" writes the file of each program, executes it in an
empty namespace, and puts its function in place of the compiled one. So every fact by which a compiled function is
compared with eager is compared here.
"""

from __future__ import annotations

import ast
import contextlib
import io
from collections import namedtuple
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import aotviz
from aotviz import pipeline
from aotviz.lowerings import run_graph
from aotviz.pipeline import Role, Stage
from aotviz.runtime.from_file import NotInTheFile, tensor_of, text_of
from aotviz.runtime.lowered import Program
from aotviz.standalone.spelled import CannotBeWritten
from aotviz.standalone.writing import written
from tests.doors import alone
from tests.oracle import compare, subclass_programs
from tests.oracle.higher_order import REGIONS
from tests.oracle.programs import PROGRAMS
from tests.processes import run_script
from tests.test_higher_order import assert_as_in_eager
from tests.test_wrapper import NAMES
from tests.tiers import in_turns, slow

DOORS = {"aot": compare.ours_aot, "compile": compare.ours_compile}

# Programs of which no file can be written, and why.
REFUSED: dict[str, str] = {}
# Programs that aot_function itself refuses, in these words.
NOT_COMPILED = {
    "closed_over_parameter": "without taking it as an argument",
    "closed_over_buffer_is_mutated": "without taking it as an argument",
    "dynamic_siblings": "do not overlap in memory as they did when this was compiled",
    "leaf_is_transposed_under_no_grad": "a metadata op (t_) changes the shape",
    "input_is_asked_for_gradients_inside": "though no input does",
    "value_is_read_before_the_mutation": "gradient cannot be computed, and eager fails too",
    "parameter_takes_a_step_after_its_use": "gradient cannot be computed, and eager fails too",
    "part_is_an_input_too_and_is_mutated": "overlap in memory inside a tensor subclass",
    "two_subclasses_share_a_part": "overlap in memory inside a tensor subclass",
}
# Programs whose `inputs()` make arguments that the program refuses: parts of subclasses do not share memory in them.
NO_EXAMPLE = {"overlapping_views_mutated": "do not overlap in memory as they did when this was compiled"}

Point = namedtuple("Point", "x y")


@dataclass
class Files:
    """The files of the programs that were compiled."""

    texts: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def put(self, program: Program) -> Program:
        try:
            text = written(program)
        except CannotBeWritten as error:
            self.refused.append(str(error))
            return program
        self.texts.append(text)
        return replace(program, function=executed(text)[program.function.__name__])


def executed(text: str, name: str = "written") -> dict[str, Any]:
    """The namespace of a file."""
    namespace: dict[str, Any] = {"__name__": name}
    exec(compile(text, "<a file>", "exec"), namespace)
    return namespace


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Files:
    """Every program that is compiled runs from its file."""
    made = Files()
    stages = (*pipeline.TRAINING, Stage("from its file", made.put, Role.LINK))
    monkeypatch.setattr(pipeline, "TRAINING", stages)
    monkeypatch.setattr(pipeline, "INFERENCE", pipeline.without_gradients(stages))
    return made


def agrees(name: str, program: Any, door: str, files: Files) -> None:
    verdict = compare.judge(program, DOORS[door]())
    if door == "aot" and name in NOT_COMPILED:
        assert NOT_COMPILED[name] in str(verdict.failure)
        return
    assert verdict.status == "equal", str(verdict)
    assert bool(files.refused) == (name in REFUSED), files.refused
    assert all(REFUSED[name] in reason for reason in files.refused)
    for text in files.texts:
        with contextlib.nullcontext() if name not in NO_EXAMPLE else pytest.raises(Exception, match=NO_EXAMPLE[name]):
            assert ran_as_a_script(text).startswith("results: [")


def ran_as_a_script(text: str) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), torch.random.fork_rng(devices=[]), torch.enable_grad():
        executed(text, "__main__")
    return printed.getvalue()


@pytest.mark.parametrize(("name", "door"), in_turns(PROGRAMS, DOORS, every=10))
def test_a_program_runs_from_its_file_as_in_eager(name: str, door: str, files: Files) -> None:
    agrees(name, PROGRAMS[name], door, files)


@pytest.mark.slow
@pytest.mark.parametrize("name", subclass_programs.PROGRAMS)
def test_a_program_on_subclasses_runs_from_its_file(name: str, files: Files) -> None:
    if name == "plain_and_subclass":
        pytest.skip("aotviz refuses one of its backwards, from a file or not")
    agrees(name, subclass_programs.PROGRAMS[name], "aot", files)


@pytest.mark.parametrize("name", ["cond_on_a_tensor", *map(slow, (n for n in REGIONS if n != "cond_on_a_tensor"))])
def test_an_operator_that_takes_functions_gets_functions_of_the_file(name: str, files: Files) -> None:
    assert_as_in_eager(name, lambda fn: torch.compile(fn, backend="aotviz_eager"))
    assert not files.refused


# --- one file, looked at ---


def step(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    x.add_(1)
    hidden = torch.nn.functional.dropout((x @ w).relu(), 0.5)
    return hidden.sum(), hidden, x[:1]


def leaf(*shape: int) -> torch.Tensor:
    return torch.ones(*shape, requires_grad=True)


def compiled_step() -> Any:
    torch._dynamo.reset()
    compiled = aotviz.compile(step, backend="eager")
    compiled(torch.ones(2, 3), leaf(3, 3))
    return compiled


def test_the_wrapper_is_in_the_file_as_it_runs_and_the_file_is_the_same_each_time():
    compiled = compiled_step()
    text = compiled.to_python()
    assert f"\n\n\n{compiled.source}" in text
    assert compiled.to_python() == text
    assert compiled_step().to_python() == text


def test_the_file_is_read_from_the_arguments_to_the_examples():
    text = compiled_step().to_python()
    found = ast.parse(text)
    assert ast.get_docstring(found).startswith("step [0/0]: a forward graph and a backward graph.")
    assert "\n    x: f32[2, 3], written\n    w: f32[3, 3], requires grad\n" in text
    functions = [node.name for node in found.body if isinstance(node, ast.FunctionDef)]
    assert functions[:3] == ["forward", "backward", "step_0_0"]
    assert functions[-1] == "inputs"
    assert "    # x.add_(1)\n    add = torch.ops.aten.add.Tensor(x, 1)" in text


def test_the_file_imports_torch_and_aotviz_alone():
    imported = [node for node in ast.walk(ast.parse(compiled_step().to_python())) if isinstance(node, ast.ImportFrom)]
    assert {node.module.partition(".")[0] for node in imported} <= {"torch", "aotviz"}


SCRIPTS = {
    "trained": (step, lambda: (torch.ones(2, 3), leaf(3, 3)), "results: [(), (2, 3), (1, 3)]\n"),
    "inference": (step, lambda: (torch.ones(2, 3), torch.ones(3, 3)), "results: [(), (2, 3), (1, 3)]\n"),
    "views of one tensor": (
        lambda a, b: (a.mul_(2), (a * b).sum())[1], lambda: (lambda m: (m[:3], m[1:]))(torch.ones(4)), "results: [()]\n"
    ),
    "nested": (lambda d: d["x"] * 2, lambda: ({"x": leaf(3)},), "results: [(3,)]\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", SCRIPTS)
def test_python_runs_the_file_in_a_process_of_its_own(name: str, tmp_path: Path) -> None:
    fn, make, expected = SCRIPTS[name]
    compiled = alone(fn)
    compiled(*make())
    script = tmp_path / "program.py"
    script.write_text(compiled.to_python(), encoding="utf-8")
    done = run_script(script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(expected)


def test_gradients_of_some_results_come_from_functions_of_their_own():
    compiled = alone(lambda x: (x.sin(), x.exp() * float("inf")))
    compiled(leaf(3))
    function = executed(compiled.to_python())[compiled.program.function.__name__]
    for k in range(2):
        for retain in (False, True):
            x, y = leaf(3), leaf(3)
            ours, eagers = function(x)[k], (y.sin(), y.exp() * float("inf"))[k]
            ours.sum().backward(retain_graph=retain)
            eagers.sum().backward()
            assert torch.equal(x.grad, y.grad)


def test_with_four_results_two_of_them_have_no_backward_in_the_file():
    compiled = alone(lambda x: (x.sin(), x.cos(), x.exp(), x * 2))
    compiled(leaf(3))
    function = executed(compiled.to_python())[compiled.program.function.__name__]
    x = leaf(3)
    first, second, *_ = function(x)
    with pytest.raises(NotInTheFile, match=r"no backward for the gradients of output\[0\], output\[1\] without"):
        (first + second).sum().backward()
    first.sum().backward()
    assert torch.equal(x.grad, torch.ones(3).cos())


def test_create_graph_gives_the_gradient_and_raises_where_it_is_differentiated():
    compiled = alone(lambda x: (x**3).sum())
    compiled(leaf(3))
    function = executed(compiled.to_python())[compiled.program.function.__name__]
    x = leaf(3)
    (gradient,) = torch.autograd.grad(function(x), x, create_graph=True)
    assert torch.equal(gradient, torch.full((3,), 3.0))
    with pytest.raises(NotInTheFile, match="no trace to differentiate them again"):
        gradient.sum().backward()


def test_a_hook_inside_of_the_backward_is_refused_when_it_would_be_called():
    compiled = alone(lambda x: (h := x.sin(), h.exp()))
    compiled(leaf(3))
    function = executed(compiled.to_python())[compiled.program.function.__name__]
    hidden, out = function(leaf(3))
    hidden.register_hook(lambda gradient: gradient * 2)
    with pytest.raises(NotInTheFile, match=r"a hook on output\[0\] changes a gradient inside the graph"):
        out.sum().backward()


def test_a_call_that_the_program_was_not_compiled_for_is_refused_as_by_the_compiled_function():
    compiled = alone(lambda x, y: (x.mul_(2), x + y)[1])
    memory = torch.ones(6)
    compiled(memory[:4], memory[2:])
    function = executed(compiled.to_python())[compiled.program.function.__name__]
    for call in (compiled.program.function, function):
        with pytest.raises(RuntimeError, match="do not overlap in memory as they did when this was compiled"):
            call(torch.ones(4), torch.ones(4))


def test_a_number_of_the_call_is_constant_in_the_file():
    compiled = alone(lambda x, times: x * times)
    x = torch.ones(4)
    assert compiled(x, 3.0).tolist() == [3.0] * 4
    function = executed(compiled.to_python())[compiled.program.function.__name__]
    assert function(x, 3.0).tolist() == function(x, 5.0).tolist() == [3.0] * 4


def test_parameters_of_a_module_are_made_once_and_get_their_gradients():
    module = torch.nn.Linear(3, 2)
    compiled = aotviz.aot_module(module, lambda graph, inputs: graph)
    compiled(torch.ones(4, 3))
    made = executed(compiled.to_python())
    weight, bias = made["held"]
    with torch.no_grad():
        weight.copy_(module.weight)
        bias.copy_(module.bias)
    x = torch.randn(4, 3)
    name = next(name for name in made if name.startswith("Linear") and callable(made[name]) and "autograd" not in name)
    result = made[name](x)
    result.sum().backward()
    module(x).sum().backward()
    assert torch.equal(result, module(x))
    assert torch.equal(weight.grad, module.weight.grad)


def test_inductors_graphs_run_operator_by_operator():
    compiled = aotviz.compile(lambda x, y: ((x * 2).sin().sum(), y.add_(1))[0], backend="inductor")
    compiled(leaf(3), torch.zeros(2))
    x, y = leaf(3), torch.zeros(2)
    (loss,) = executed(compiled.to_python())[compiled.program.function.__name__]([x, y])
    loss.backward()
    assert torch.allclose(x.grad, 2 * torch.full((3,), 2.0).cos())
    assert (y.tolist(), y._version) == ([1, 1], 1)


# --- values ---


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.uint8])
def test_a_constant_is_in_the_file_bit_for_bit(dtype: torch.dtype) -> None:
    values = [1.1, -0.0, float("inf"), 1e-30]
    compiled = alone(lambda x: (x * torch.tensor(values, dtype=torch.float64).to(dtype), x)[0])
    x = torch.ones(4, dtype=dtype)
    expected = compiled(x)
    result = executed(compiled.to_python())[compiled.program.function.__name__](x)
    assert text_of(result) == text_of(expected)


@pytest.mark.parametrize("count", [3, 1000])
def test_a_small_constant_is_a_literal_and_a_larger_one_a_text(count: int) -> None:
    values = torch.linspace(-1, 1, count).tolist()
    compiled = alone(lambda x: x * torch.tensor(values))
    x = torch.ones(count)
    expected = compiled(x)
    text = compiled.to_python()
    assert ("tensor_of(" in text) == (count > 64)
    assert torch.equal(executed(text)[compiled.program.function.__name__](x), expected)


def test_a_tensor_as_text_keeps_its_strides_and_every_bit():
    for made in (torch.tensor([[float("nan"), -0.0], [1.0, 2.0]]).t(), torch.zeros(0, 3), torch.tensor(2 + 1j)):
        again = tensor_of(text_of(made), made.dtype, tuple(made.shape), made.stride(), "cpu")
        assert (again.shape, again.stride(), text_of(again)) == (made.shape, made.stride(), text_of(made))


def test_a_constant_that_is_too_large_is_refused_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aotviz.standalone.spelled.MANY_BYTES", 400)
    values = torch.zeros(101).tolist()
    compiled = alone(lambda x: x * torch.tensor(values))
    compiled(torch.ones(1))
    with pytest.raises(CannotBeWritten, match=r"a constant of it, torch.float32\[101\], has more than 400 bytes"):
        compiled.to_python()


def test_a_class_of_the_result_is_imported_and_one_that_no_module_has_is_refused():
    compiled = alone(lambda x: Point(x * 2, x))
    x = torch.ones(2)
    compiled(x)
    text = compiled.to_python()
    assert f"from {__name__} import Point" in text
    assert type(executed(text)[compiled.program.function.__name__](x)) is Point

    Local = namedtuple("Local", "x y")
    compiled = alone(lambda x: Local(x * 2, x))
    compiled(x)
    with pytest.raises(CannotBeWritten, match=r"`out_spec` of its wrapper: it uses .*Local, which no file can import"):
        compiled.to_python()


def test_an_operator_of_the_users_is_called_by_name_and_the_head_says_so():
    with torch.library._scoped_library("written_out", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
        compiled = alone(lambda x: torch.ops.written_out.twice(x))
        compiled(torch.ones(2))
        text = compiled.to_python()
        about = ast.get_docstring(ast.parse(text))
        assert "runs it on example inputs, once the operators torch.ops.written_out are registered." in about
        assert "\n# import here what registers the operators torch.ops.written_out\n" in text
        assert executed(text)[compiled.program.function.__name__](torch.ones(2)).tolist() == [2, 2]


def test_a_program_without_a_recording_has_no_graphs_to_write():
    compiled = alone(lambda x: x * 2, record=False)
    compiled(torch.ones(2))
    with pytest.raises(CannotBeWritten, match="record=False"):
        compiled.to_python()


# --- names ---


def by_keyword(**tensors: torch.Tensor) -> torch.Tensor:
    return torch.stack([tensor.sin() for tensor in tensors.values()]).sum()


def test_names_of_a_program_never_become_code():
    compiled = alone(by_keyword)
    names = [*NAMES, "forward", "backward", "taking_a_list", '"""', "\\", '"""\nraise SystemExit\n"""', "{inputs}"]
    expected = compiled(**{name: leaf(2) for name in names})
    text = compiled.to_python()
    assert not [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name) and node.id == "SystemExit"]
    made = executed(text)
    args, kwargs = made["inputs"]()
    assert {*kwargs} == {*names}
    result = made["by_keyword"](*args, **{name: leaf(2) for name in names})
    assert torch.equal(result, expected)
    result.backward()


def test_a_function_may_be_called_torch_or_backward():
    for name in ("torch", "backward", "forward", "inputs", "compiled_forward", "tree_leaves"):
        namespace: dict[str, Any] = {}
        exec(f"def {name}(torch, forward): return (torch * forward).sum()", namespace)
        compiled = alone(namespace[name])
        compiled(leaf(2), leaf(2))
        assert ran_as_a_script(compiled.to_python()).startswith("results: [()]")


def test_each_program_of_a_function_that_breaks_has_a_file():
    def broken(a):
        b = a.sin()
        torch._dynamo.graph_break()
        return b.cos() * 2

    compiled = aotviz.compile(broken, backend="eager", cache=False)
    compiled(torch.ones(3))
    first, last = (compiled.to_python(one.name[-4:-1]) for one in compiled.recording)  # "broken [0/0]"
    assert "aten.sin.default" in first
    assert "aten.cos.default" in last
    assert last == compiled.to_python()
    with pytest.raises(KeyError, match=r"broken has no program '7/7'; there are \d+/0, \d+/0"):
        compiled.to_python("7/7")


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b", 'a"""\nb', "a\\"])
def test_no_name_of_a_function_ends_a_string_of_the_file(name):
    def function(x):
        return x.sin().sum()

    function.__name__ = function.__qualname__ = name
    compiled = aotviz.aot_function(function, run_graph, run_graph)
    compiled(torch.ones(3, requires_grad=True))
    text = compiled.to_python()
    compile(text.encode("utf-8"), "a file", "exec")


def test_a_variance_of_the_example_inputs_is_not_negative():
    model = nn.BatchNorm1d(4).eval()
    compiled = aotviz.compile(model, backend="eager", cache=False)
    compiled(torch.ones(2, 4))
    module = {"__name__": "a file"}
    exec(compiled.to_python(), module)
    (result,) = module[compiled.program.function.__name__](module["inputs"]())
    assert result.isfinite().all()
