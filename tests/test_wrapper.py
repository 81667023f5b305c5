"""The wrapper that you read is the wrapper that runs: it can be seen, stepped, and it behaves as eager does."""

from __future__ import annotations

import gc
import linecache
import re
import sys
import traceback
import weakref
from pathlib import Path

import pytest
import torch

import aotviz
from aotviz.frontends.functions import aot_module, aot_module_simplified
from aotviz.lowerings import run_graph
from aotviz.torch_private.partitioners import default_partition
from tests.doors import alone
from tests.graphs_made import graphs_made
from tests.processes import run_script

torch.set_num_threads(1)


def compiled(fn, **options):
    return aotviz.compile(fn, backend="eager", **options)


def leaf(*shape):
    return torch.ones(*shape, requires_grad=True)


def lines_run(function, *args):
    """The source lines of generated files that run during `function(*args)`."""
    seen = []

    def trace(frame, event, argument):
        if not frame.f_code.co_filename.startswith("<aotviz "):
            return None
        if event == "line":
            seen.append(linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip())
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function(*args)
    finally:
        sys.settrace(before)
    return seen


KEPT = """
import gc, linecache
import torch
import aotviz

def programs():
    return [name for name in linecache.cache if name.startswith("<aotviz ")]

held = aotviz.compile(lambda x: x * 2, backend="eager", record=False)
held(torch.ones(2))
for number in range(20):
    f = aotviz.compile(lambda x: (x + number).sin().sum(), backend="eager", record=False)
    f(torch.ones(3, requires_grad=True)).backward()
    name = programs()[-1]
    assert linecache.getlines(name), name
    del f
    torch._dynamo.reset()
gc.collect()
left = programs()
assert len(left) <= 2, left
"""


def test_linecache_forgets_a_program_that_is_freed(tmp_path: Path) -> None:
    script = tmp_path / "compiles.py"
    script.write_text(KEPT)
    done = run_script(script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_source_is_what_linecache_has_under_the_programs_file_name():
    f = compiled(lambda x: x * 2)
    f(torch.ones(2))
    assert "".join(linecache.getlines(f.program.filename)) == f.source
    assert f.program.filename.startswith("<aotviz ")
    linecache.checkcache()
    assert linecache.getlines(f.program.filename)


def test_the_end_of_a_slice_is_a_name_in_the_source():
    compiled = aotviz.compile(lambda x: x[1:], backend="eager")
    x = torch.arange(4.0)
    assert compiled(x).tolist() == [1, 2, 3]
    assert "slice_op(x, 0, 1, end)" in compiled.source
    assert str(sys.maxsize) not in compiled.source


def test_an_error_inside_shows_the_line_of_the_wrapper():
    def failing(graph_module, example_inputs):
        def run(*args):
            raise ArithmeticError("inside the graph")

        return run

    f = aotviz.compile(lambda x: x * 2, backend=failing)
    with pytest.raises(ArithmeticError) as caught:
        f(leaf(2))
    frames = traceback.extract_tb(caught.value.__traceback__)
    ours = [frame for frame in frames if frame.filename == f.program.filename]
    assert [frame.line for frame in ours][-1] == "out = compiled_forward([*inputs])"
    assert re.fullmatch(r"lambda_\d+_0", ours[0].name)


def test_a_debugger_steps_through_the_lines_of_the_forward_and_the_backward():
    f = compiled(lambda x, w: (x.mul_(2), (x * w).sum())[1])
    f(torch.ones(2), leaf(2))
    results = []
    forward = lines_run(lambda: results.append(f(torch.ones(2), leaf(2))))
    assert "x.copy_(out[0])" in forward
    assert "out = compiled_forward([*inputs])" in forward
    source = f.source.splitlines()
    assert set(forward) <= {line.strip() for line in source}
    positions = [next(i for i, line in enumerate(source) if line.strip() == one) for one in forward]
    assert len(positions) >= 4


def test_without_gradients_no_autograd_function_runs():
    f = compiled(lambda x: x * 2)
    lines = lines_run(f, leaf(2))
    f(leaf(2))
    with torch.no_grad():
        assert not f(leaf(2)).requires_grad
    assert all("ctx" not in line for line in lines_run(f, torch.ones(2))), lines


NAMES = [
    "out", "args", "kwargs", "saved", "inputs", "ctx", "gradients", "grad_mode", "result", "run", "i", "history",
    "apply", "compiled_forward", "class", "lambda", "print", "match", "größe", "变量", "x²", "ﬁ", "fi", "a b", "a\nb",
    "a-b", "1st", "{0}", "%s", "", "'", '"', "\\", "# x", "self", "TensorAlias", "zeros", "_", "__mangled", "torch",
]  # fmt: skip


def by_keyword(**tensors):
    total = 0
    for number, name in enumerate(sorted(tensors), 1):
        tensors[name].mul_(number)
        total = total + tensors[name].sum()
    return total, {name: tensors[name][:1] for name in tensors}


@pytest.mark.parametrize("gradients", [False, True])
def test_any_names_at_once_do_not_collide_with_the_wrappers_own(gradients):
    def run(fn):
        leaves = {name: torch.full((2,), float(i), requires_grad=gradients) for i, name in enumerate(NAMES)}
        tensors = {name: value.clone() for name, value in leaves.items()}
        total, views = fn(**tensors)
        if gradients:
            total.backward()
        grads = [None if value.grad is None else value.grad.tolist() for value in leaves.values()]
        return total.item(), {name: view.tolist() for name, view in views.items()}, grads

    f = compiled(by_keyword)
    assert run(f) == run(by_keyword)
    assert run(f) == run(by_keyword)
    assert len(f.recording.compilations) == 1


@pytest.mark.parametrize("name", ["out", "saved", "args", "ctx", "ünï", "print"])
def test_a_positional_argument_of_the_wrappers_own_name_is_told_apart(name):
    fn = eval(f"lambda {name}, w: ({name}.mul_(2), {name} * w)[1]")
    f, x, w = alone(fn), torch.ones(2), leaf(2)
    assert f(x, w).tolist() == [2, 2]
    assert x.tolist() == [2, 2]
    assert f"{name}_1" in f.source or f"({name}, w)" in f.source


def boxed_program(fn, args, watch):
    """A boxed program of `fn` whose graph looks, when it runs, whether what `watch` points at is alive."""
    alive = []

    def looking(graph_module, example_inputs):
        inner = run_graph(graph_module, example_inputs)

        def run(values):
            kept = inner(values)
            gc.collect()
            alive.append([one() is not None for one in watch])
            return kept

        run._boxed_call = True
        return run

    return aot_module_simplified(fn, args, looking), alive


def test_a_boxed_argument_is_freed_while_the_graph_runs_where_nothing_needs_it_later():
    watch = []
    program, alive = boxed_program(lambda x, y: (x + 1, y.mul_(2)), [torch.ones(2), torch.ones(2)], watch)
    values = [torch.ones(2), torch.ones(2)]
    watch.extend(weakref.ref(value) for value in values)
    given, values = values, None
    program.boxed(given)
    assert given == []
    assert alive == [[False, True]], "x is gone; y is written after the graph"


def two_results(x, w):
    return (x @ w).sin(), (x * 2 + w).cos()


@pytest.mark.every(3)
@pytest.mark.parametrize("record", [True, False])
@pytest.mark.parametrize("hook", [None, lambda gradient: gradient * 2])
@pytest.mark.parametrize(
    "door",
    [
        lambda record: alone(two_results, record=record),
        lambda record: compiled(two_results, record=record),
        lambda record: aot_module(TwoResults(), run_graph, record=record),
    ],
    ids=["aot_function", "compile", "aot_module"],
)
def test_a_compiled_function_that_is_dropped_after_a_backward_is_freed(door, hook, record):
    def step():
        results = door(record)(leaf(2, 2), leaf(2, 2))
        if hook is not None:
            results[0].register_hook(hook)
        sum(results).sum().backward()

    with graphs_made() as graphs:
        step()
    torch._dynamo.reset()
    gc.collect()
    assert not list(graphs)


class TwoResults(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(2))

    def forward(self, x, w):
        return two_results(x * self.scale, w)


def test_a_saved_view_does_not_keep_its_base_object():
    f = compiled(lambda x, w: (x * w).sum())
    base = torch.ones(4)
    out = f(base[:2], leaf(2))
    saved = out.grad_fn.saved_tensors
    assert all(tensor._base is None for tensor in saved)
    assert any(tensor.data_ptr() == base.data_ptr() for tensor in saved)


def test_a_saved_input_that_is_overwritten_before_the_backward_raises_as_in_eager():
    f, x, w = compiled(lambda x, w: (x * w).sum()), torch.ones(2), leaf(2)
    out = f(x, w)
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()


def test_version_counters_leaves_and_requires_grad_are_eagers():
    def fn(x, buffer, w):
        x.mul_(2).add_(1)
        with torch.no_grad():
            buffer.add_(1)
            buffer.mul_(1)
        return x * w, x.detach(), x, buffer.view(-1)

    def facts(function):
        x, buffer, w = leaf(2).clone(), torch.zeros(2, 2), leaf(2)
        result = function(x, buffer, w)
        return [(t._version, t.is_leaf, t.requires_grad, t._base is buffer) for t in (x, buffer, w, *result)]

    assert facts(compiled(fn)) == facts(fn)


def donating():
    return compiled(lambda x: x.sin().exp().sum(), partition_fn=default_partition)


def test_retain_graph_twice_keeps_what_is_donated_otherwise():
    f, x = donating(), leaf(2)
    out = f(x)
    assert f.program.lowered.call.donated
    first, second = (torch.autograd.grad(out, x, retain_graph=True)[0] for _ in range(2))
    (last,) = torch.autograd.grad(out, x)
    eager = torch.autograd.grad(x.sin().exp().sum(), x)[0]
    for gradient in (first, second, last):
        assert torch.allclose(gradient, eager)
    late = f.recording[0].stages
    assert list(late["stage"]).count("lower backward") == 2, "one that keeps, one that donates"
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(out, x)


def test_a_transform_inside_the_function_is_compiled():
    f = compiled(lambda x: torch.func.vmap(lambda row: row.sin().sum())(x))
    x = torch.ones(3, 2)
    assert torch.allclose(f(x), x.sin().sum(1))


@pytest.mark.parametrize("around", ["forward", "backward", "both"])
def test_autocast_around_either_half_gives_eagers_gradients(around):
    def gradients(fn):
        x, w = torch.full((2, 2), 0.5), torch.full((2, 2), 0.3, requires_grad=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=around != "backward"):
            out = fn(x, w)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=around != "forward"):
            out.sum().backward()
        return out.dtype, w.grad.dtype, w.grad.tolist()

    assert gradients(compiled(lambda x, w: x @ w)) == gradients(lambda x, w: x @ w)


def test_a_gradient_of_another_layout_is_brought_into_the_one_that_was_compiled_for():
    f, x = compiled(lambda x: x * 2), leaf(2, 3)
    f(x).backward(torch.arange(6.0).view(3, 2).t())
    assert x.grad.tolist() == [[0, 4, 8], [2, 6, 10]]


def test_an_output_that_nobody_uses_sends_no_gradient():
    f, x, y = compiled(lambda x, y: (x * 2, y * 2)), leaf(2), leaf(2)
    f(x, y)[0].sum().backward()
    assert x.grad.tolist() == [2, 2]
    assert y.grad is None
