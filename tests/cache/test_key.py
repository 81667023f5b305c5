"""Two programs that compile to the same have the same key: other names, another file, another process."""

from __future__ import annotations

import json
import operator
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from aotviz.cache import key, settings_in_keys
from aotviz.cache.content import Content, Uncacheable, of_function
from aotviz.lowerings import Inductor, OneCompiler
from aotviz.torch_private import configs
from aotviz.torch_private import surroundings_of_a_key as torchs
from tests.cache.captured import Captured, captured, differing, keys, module_of

ROOT = Path(key.__file__).parents[2]

PROGRAM = """
import torch

class {function}(torch.autograd.Function):
    @staticmethod
    def forward({ctx}, {a}, {b}):
        {ctx}.save_for_backward({a}, {b})
        return {a}.sin() * {b}

    @staticmethod
    def backward({ctx}, {grad}):
        {a}, {b} = {ctx}.saved_tensors
        return {grad} * {a}.cos() * {b}, {grad} * {a}.sin()

class {module}(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.{layer} = torch.nn.Linear(4, 4)

    def forward(self, {a}, {b}):
        {local} = {function}.apply(self.{layer}({a}), {b})
        return torch.utils.checkpoint.checkpoint(lambda {other}: {other}.exp().relu(), {local}, use_reentrant=False)
"""
NAMES = {
    "function": "Times", "ctx": "ctx", "a": "x", "b": "w", "grad": "g", "module": "Block", "layer": "fc",
    "local": "y", "other": "z",
}  # fmt: skip


def of_program(folder: Path, name: str, **names: str) -> key.Key:
    made = module_of(PROGRAM.format(**(NAMES | names)), folder, name)
    block = getattr(made, (NAMES | names)["module"])()
    (found,) = keys(block, torch.ones(3, 4), torch.ones(3, 4, requires_grad=True))
    return found


@pytest.mark.parametrize("renamed", NAMES)
def test_a_renamed_function_argument_module_or_variable_keeps_the_key(renamed, tmp_path):
    before = of_program(tmp_path, "program_before")
    assert not differing(before, of_program(tmp_path, "program_after", **{renamed: NAMES[renamed] + "_renamed"}))


def test_another_file_and_other_lines_keep_the_key(tmp_path):
    (tmp_path / "deep").mkdir()
    before = of_program(tmp_path, "program_before")
    made = module_of("\n" * 50 + PROGRAM.format(**NAMES), tmp_path / "deep", "elsewhere")
    (after,) = keys(made.Block(), torch.ones(3, 4), torch.ones(3, 4, requires_grad=True))
    assert not differing(before, after)


def test_other_values_and_other_addresses_keep_the_key():
    def scale(x, w):
        return (x * w).sum()

    (one,) = keys(scale, torch.ones(3), torch.ones(3, requires_grad=True))
    (other,) = keys(scale, torch.zeros(3), torch.rand(3).requires_grad_())
    assert not differing(one, other)


def test_twelve_equal_blocks_that_are_compiled_apart_have_one_key():
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.attention, self.out = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

        def forward(self, x):
            return x + self.out(self.attention(x).softmax(-1))

    x, found = torch.ones(2, 8, requires_grad=True), []
    for block in [Block() for _ in range(12)]:
        found += keys(block, x)
        x = block(x)
    assert len(found) == 12
    assert len({one.digest for one in found[1:]}) == 1
    assert differing(found[0], found[1]) == {"inputs"}  # the first has an input that is a leaf


def test_names_of_symbols_and_the_sizes_of_the_call_keep_the_key():
    def scale(x, y):
        return x * 2 + y.sum()

    (first,) = keys(scale, torch.ones(5, 4), torch.ones(3, 7), dynamic=True)
    for size, other in ((9, 6), (50, 2)):
        (now,) = keys(scale, torch.ones(size, 4), torch.ones(3, other), dynamic=True)
        assert not differing(first, now)
    assert "(s0, s1) strides (s1, 1)" in first.ingredients["inputs"]


def test_the_symbol_of_a_float_that_dynamo_passes_as_a_tensor_is_in_the_key():
    found = []

    def backend(module, inputs):
        found.append(Captured(module, inputs).key())
        return module.forward

    torch._dynamo.reset()
    compiled = torch.compile(lambda x, s: x * s, backend=backend)
    for number in (0.5, 0.6):
        compiled(torch.ones(3), number)
    torch._dynamo.reset()
    assert "holds s0" in found[1].ingredients["inputs"]


def test_what_dynamo_guards_about_sizes_is_in_the_key():
    def plain(x):
        return x * 2

    def guarded(x):
        return x * 2 if x.shape[0] > 10 else x

    (one,), (other,) = (keys(fn, torch.ones(20, 4), dynamic=True) for fn in (plain, guarded))
    assert differing(one, other) == {"symbols"}
    assert "s0 in [11, " in other.ingredients["symbols"]


SCRIPT = """
import json, sys
sys.path[:0] = {path!r}
import torch
from pathlib import Path
from typing import Any
from tests.cache import test_key
from tests.cache.captured import keys, module_of
from aotviz.lowerings import lowering_named
made = module_of(test_key.PROGRAM.format(**test_key.NAMES), Path({folder!r}), "program_in_a_process")

def pass_over_joint(graph, inputs, kinds=frozenset(["a", "b", "c"])):
    names = {{"add", "mul", "sub", "div"}}
    return [node for node in graph.graph.nodes if node.name in names or node.name in kinds]

torch._functorch.config.joint_custom_pass = pass_over_joint
inputs = torch.ones(3, 4), torch.ones(3, 4, requires_grad=True)
found = [key for name in ("eager", "inductor") for dynamic in (None, True)
         for key in keys(made.Block(), *inputs, lowering=lowering_named(name), dynamic=dynamic)]
print(json.dumps([dict(key.ingredients) | {{"digest": key.digest}} for key in found]))
"""


@pytest.mark.slow
def test_keys_are_equal_in_other_processes_whatever_the_seed_of_hashes(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(path=[str(ROOT)], folder=str(tmp_path)))
    results = []
    for seed in ("0", "1", "12345"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, str(script)], capture_output=True, text=True, env=environment, check=True, cwd=tmp_path
        )
        results.append(json.loads(done.stdout.splitlines()[-1]))
    assert len(results[0]) == 4
    assert results[0] == results[1] == results[2]


def test_the_ingredients_have_names_in_a_fixed_order():
    (found,) = keys(torch.sin, torch.ones(2))
    assert list(found.ingredients)[:6] == ["program", "inputs", "symbols", "memory layout", "options", "backend"]
    assert {"Inductor's settings", "grad mode", "autocast", "torch", "aotviz", "processor", "Python"} <= set(
        found.ingredients
    )


def test_the_text_of_a_program_has_no_name_of_the_users(tmp_path):
    found = of_program(tmp_path, "program_named", layer="my_layer", a="my_argument", function="MyFunction")
    told = "\n".join(found.ingredients.values())
    assert not any(name in told for name in ("my_layer", "my_argument", "MyFunction", "program_named", str(tmp_path)))


# What is no ingredient


@pytest.mark.skipif(torch.__version__[:4] != "2.13", reason="other releases lack some")
@pytest.mark.parametrize("module", settings_in_keys.LEFT_OUT)
def test_settings_that_are_left_out_exist_in_torch(module):
    unknown = settings_in_keys.LEFT_OUT[module].keys() - torchs.MODULES[module].get_config_copy().keys()
    assert not unknown, f"{module} has no {sorted(unknown)}"


def test_settings_that_matter_without_inductor_exist_in_torch():
    assert set(settings_in_keys.READ_WITHOUT_INDUCTOR) <= configs.names_of_inductor()


@pytest.mark.parametrize(
    ("module", "name"),
    [(module, name) for module, names in settings_in_keys.LEFT_OUT.items() for name in names],
)
def test_a_setting_that_is_left_out_keeps_the_key(module, name, program):
    held = torchs.MODULES[module]
    if isinstance(getattr(held, name, None), bool):
        value = getattr(held, name)
        with held.patch({name: not value}):
            assert not differing(program.key(lowering=INDUCTOR), program.before)


INDUCTOR = Inductor({})


@pytest.fixture(scope="module")
def program():
    found = captured(lambda x, w: (x @ w).relu().sum(), torch.ones(2, 3), torch.ones(3, 4, requires_grad=True))
    object.__setattr__(found, "before", found.key(lowering=INDUCTOR))
    return found


@pytest.mark.parametrize("name", key.NOT_IN_KEYS)
def test_an_option_that_does_not_decide_what_is_compiled_keeps_the_key(name, program):
    assert not differing(program.key(lowering=INDUCTOR, **{name: "other"}), program.before)


def test_the_data_of_parameters_and_buffers_that_are_lifted_keeps_the_key():
    module = torch.nn.Sequential(torch.nn.Linear(3, 3))
    module.register_buffer("offset", torch.zeros(3))
    graph = torch.fx.symbolic_trace(module)
    graph.register_buffer("offset", torch.zeros(3))
    one = Captured(graph, [torch.ones(2, 3)])
    before = one.key()
    with torch.no_grad():
        for tensor in (*graph.parameters(), *graph.buffers()):
            tensor.add_(1)
    assert not differing(before, one.key())


# What has no key


def refused(*args, **kwargs):
    with pytest.raises(Uncacheable) as caught:
        keys(*args, **kwargs)
    return caught.value


def test_a_compiler_of_the_users_has_no_key():
    def mine(graph, inputs):
        return graph

    error = refused(torch.sin, torch.ones(2), lowering=OneCompiler("mine", mine))
    assert error.reason == "backend 'mine' is a Python function whose result cannot be stored"


def test_a_pass_with_unknown_content_asks_for_a_uuid():
    held = object()

    def my_pass(joint, inputs, **arguments):
        return held

    error = refused(torch.sin, torch.ones(2), options={"partition_fn": my_pass})
    assert error.reason.startswith("option 'partition_fn': ")
    assert "my_pass depends on held" in error.reason
    assert error.told.endswith("give it a method uuid() that returns its version")
    assert error.where.endswith("in my_pass")
    assert Path(__file__).name in error.where


def test_a_pass_with_a_uuid_has_a_key():
    class Pass:
        version = "1"

        def __init__(self, version):
            self.held, self.version = object(), version

        def __call__(self, joint, inputs, **arguments):
            return self.held

        def uuid(self):
            return self.version

    one, other, again = (keys(torch.sin, torch.ones(2), options={"partition_fn": Pass(v)})[0] for v in "121")
    assert differing(one, other) == {"options"}
    assert not differing(one, again)


def test_an_active_mode_has_no_key():
    class Logging(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    found = captured(torch.sin, torch.ones(2))
    with Logging(), pytest.raises(Uncacheable, match=r"a mode of class .*Logging is active"):
        found.key()


def test_a_function_that_imports_or_reads_the_environment_has_no_content():
    def imports():
        import tests.cache.captured as mine

        return mine

    def reads():
        return os.environ["X"]

    with pytest.raises(Uncacheable, match=r"imports tests\.cache\.captured"):
        of_function(imports)
    with pytest.raises(Uncacheable, match="reads the environment"):
        of_function(reads)


def test_a_generator_in_a_graph_has_no_key_and_its_line_is_told():
    found = captured(lambda x: x * 2, torch.ones(2))
    (call,) = found.module.graph.find_nodes(op="call_function", target=operator.mul)
    call.args = (call.args[0], torch.Generator())
    with pytest.raises(Uncacheable, match="Generator") as caught:
        found.key()
    assert Path(__file__).name in caught.value.where


# Content of functions


def test_a_function_of_torch_that_pretends_is_described_by_its_content():
    import functools

    @functools.wraps(torch.nn.functional.gelu)
    def mine(x):
        return x

    assert of_function(mine).startswith("function ")


def test_functions_that_call_each_other_have_content():
    def even(n):
        return n == 0 or odd(n - 1)

    def odd(n):
        return n != 0 and even(n - 1)

    assert of_function(even) != of_function(odd)


def test_values_of_different_types_differ():
    values = [1, 1.0, True, "1", b"1", (1,), [1], {1}, frozenset([1]), {1: 1}, 1j, None, torch.float32, slice(1), ...]
    values += [-0.0, 0.0, float("nan"), range(1), torch.Size([1]), torch.device("cpu"), "cpu", "torch.float32", int]
    assert len({Content().value(value) for value in values}) == len(values)


def test_a_class_of_a_script_without_a_name_is_described_by_its_code() -> None:
    """Such a class says that it is one of "builtins"."""
    texts = []
    for factor in (2, 3):
        space: dict[str, Any] = {}
        exec(f"class Loud:\n    def backward(self): return {factor}", space)
        assert space["Loud"].__module__ == "builtins"
        texts.append(Content().value(space["Loud"]))
    assert texts[0] != texts[1]
