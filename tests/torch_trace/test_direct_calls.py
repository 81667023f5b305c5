"""Logs of jobs that call AOTAutograd, Inductor or `torch.compiler.precompile` themselves: each call is one entry."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import aotviz
from tests.processes import run

WITHOUT_DYNAMO = """
import torch
from functorch.compile import aot_function, make_boxed_func
from torch._dynamo import lookup_backend

compiler = lambda graph, _: make_boxed_func(graph.forward)
for function in (torch.sin, torch.cos):
    x = torch.ones(3, requires_grad=True)
    aot_function(function, fw_compiler=compiler, bw_compiler=compiler)(x).sum().backward()
graph = torch.fx.symbolic_trace(lambda x: x.sin() + 1)
lookup_backend("inductor")(graph, [torch.ones(3)])(torch.ones(3))
lookup_backend("aot_eager")(graph, [torch.ones(3, requires_grad=True)])(torch.ones(3, requires_grad=True))
"""
PRECOMPILED = """
import sys
import torch
from torch.compiler import precompile

def step(model, x):
    loss = model(x).square().mean()
    loss.backward()
    return loss

model, x = torch.nn.Linear(4, 1), torch.randn(8, 4)
if hasattr(precompile, "capture"):
    with precompile.capture(step, artifact_path=sys.argv[1], cache_path=sys.argv[2]) as captured:
        captured(model, x)
else:
    precompile(step, model, x)
"""


def logged(folder: Path, program: str) -> aotviz.Recording:
    file = folder / "job.py"
    file.write_text(program)
    environment = {**os.environ, "TORCH_TRACE": str(folder / "logs"), "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}
    done = run([file, folder / "step.py", folder / "step.bin"], environment)
    assert done.returncode == 0, done.stderr
    return aotviz.read_trace(folder / "logs")


def test_each_call_of_aotautograd_is_one_entry_also_in_a_loop(tmp_path):
    recording = logged(tmp_path, WITHOUT_DYNAMO)
    assert [one.id for one in recording] == ["AOTAutograd", *(f"AOTAutograd {i}" for i in (2, 3, 4))]
    operators = [
        {node.target for node in one.graph(graph).rows if node.op == "call_function"}
        for one, graph in zip(recording, ("joint", "joint", "inference", "joint"), strict=True)
    ]
    assert "aten.neg.default" in operators[1] - operators[0]  # of the gradient of cos
    assert "aten.add.Tensor" in operators[2] & operators[3]
    assert [list(one.stages.stage).count("joint") for one in recording] == [1, 1, 0, 1]


def test_a_step_that_is_precompiled_is_one_entry_with_all_its_stages(tmp_path):
    pytest.importorskip("torch._precompile")
    (one,) = logged(tmp_path, PRECOMPILED)
    assert (one.id, one.kind, one.name) == ("precompile", "precompile", "torch.compiler.precompile")
    assert {"inference", "joint passes", "lower"} <= set(one.stages.stage)
    operators = {node.target for node in one.graph("inference").rows if node.op == "call_function"}
    assert any(target.startswith(("aten.mm", "aten.addmm")) for target in operators)
