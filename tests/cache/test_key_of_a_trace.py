"""The key of a program that `aot_function` and its family trace: what was traced, and the gradients it will have."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from aotviz.cache import key
from aotviz.cache.key import Key, Uncacheable
from aotviz.frontends.compiling import entered, first_stages
from aotviz.frontends.requests import request_for, root_of
from aotviz.lowerings import EAGER, lowering_named
from aotviz.options import Export, Options
from aotviz.recorder.sessions import Session
from tests.cache.captured import differing, module_of
from tests.cache.mutations import mutated_sources, other


def of(fn: Any, *args: Any, options: Options | None = None) -> Key:
    request = request_for(fn, args, {}, options or EAGER.options(), root_module=root_of(fn))
    with entered(request, Session(False, "a test")) as stages:
        form: Any = request
        for stage in first_stages()[:2]:
            form, _ = stages.step(form, (stage,))
        return key.of_trace(form)


PROGRAM = """
import torch

class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        ctx.factor = 5.0
        return x.sin() * w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g * x.cos() * w * ctx.factor, (g * x.sin()).sum(0)

def call(x, w):
    y = Function.apply(x, w)
    with torch.no_grad():
        z = x * 2.0
    x.add_(1.0)
    return {"loss": (y + z).sum(), "view": y.view(-1), "z": z}
"""


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.ones(3, 4), torch.ones(4, requires_grad=True)


def of_program(source: str, folder: Path, name: str) -> Key:
    return of(module_of(source, folder, name).call, *inputs())


def test_the_same_program_has_the_same_key(tmp_path):
    renamed = PROGRAM.replace("Function(", "Other(").replace("Function.apply", "Other.apply").replace("call(x", "run(a")
    renamed = renamed.replace("x * 2.0", "a * 2.0").replace("apply(x,", "apply(a,").replace("    x.add_", "    a.add_")
    one, two = (module_of(source, tmp_path, name) for source, name in ((PROGRAM, "traced"), (renamed, "renamed")))
    assert not differing(of(one.call, *inputs()), of(two.run, *inputs()))


@pytest.mark.parametrize(("what", "source"), mutated_sources(PROGRAM), ids=lambda value: value[:40].split("\n")[0])
def test_a_piece_of_a_program(what, source, tmp_path):
    before = of_program(PROGRAM, tmp_path, "traced_before")
    assert {"program", "autograd"} & differing(before, of_program(source, tmp_path, "traced_after"))


def test_what_is_computed_without_gradients():
    def one(x, w):
        with torch.no_grad():
            y = x * w
        return y + x * w

    def other(x, w):
        y = x * w
        with torch.no_grad():
            z = x * w
        return y + z

    assert differing(of(one, *inputs()), of(other, *inputs()))


def test_detached():
    assert differing(of(lambda x, w: x * w.sin(), *inputs()), of(lambda x, w: x * w.detach().sin(), *inputs()))


CHANGED: dict[str, Any] = {
    "decompositions": {torch.ops.aten.silu.default: lambda x: x * x.sigmoid()},
    "joint_custom_pass": lambda graph, inputs: None,
    "partition_fn": lowering_named("inductor").options().partition_fn,
    "backward_autocast": ({"device_type": "cpu"},),
    "export": Export(kind="simple"),
    "joint_pass": lambda graph, inputs: None,
}
FIELDS = [one.name for one in dataclasses.fields(Options) if not one.name.endswith("_compiler")]


@pytest.mark.parametrize("name", FIELDS)
def test_an_option(name):
    options = EAGER.options()
    value = CHANGED[name] if name in CHANGED else other(getattr(options, name))
    before, after = (of(torch.sin, torch.ones(2), options=one) for one in (options, replace(options, name, value)))
    assert {"backend" if name == "backend" else "options"} <= differing(before, after)


def replace(options: Options, name: str, value: Any) -> Options:
    return dataclasses.replace(options, **{name: value})


@pytest.mark.parametrize("name", ["fw_compiler", "bw_compiler", "inference_compiler"])
def test_a_compiler_of_the_users_has_no_key(name):
    options = replace(EAGER.options(), name, lambda graph, inputs: graph)
    with pytest.raises(Uncacheable, match="is a Python function whose result cannot be stored"):
        of(torch.sin, torch.ones(2), options=options)


def test_inductor_and_its_settings():
    found = [
        of(torch.sin, torch.ones(2), options=lowering_named("inductor", settings).options())
        for settings in ({}, {"max_autotune": True}, {})
    ]
    assert not differing(found[0], found[2])
    assert differing(found[0], found[1]) == {"Inductor's settings"}


def test_a_module_and_its_values():
    found = [of(torch.nn.BatchNorm1d(4), torch.ones(3, 4)) for _ in range(2)]
    assert not differing(*found)
    assert differing(found[0], of(torch.nn.BatchNorm1d(4).eval(), torch.ones(3, 4)))


def hooked(x, w):
    y = x * w
    y.register_hook(lambda g: g * 2)
    return y


@pytest.mark.parametrize(
    ("fn", "args"),
    [(hooked, inputs()), (torch.add, (torch.ones(2),) * 2), (lambda x, y: x.add_(y), torch.ones(4).split(2))],
)
def test_what_would_be_traced_again_has_no_key(fn, args):
    with pytest.raises(Uncacheable):
        of(fn, *args)
