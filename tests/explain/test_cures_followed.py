"""What is advised where it depends on more than one guard: at the limit, in a library, in an export."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import aotviz


def compiled(fn: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return torch.compile(fn, backend="eager", **options)


def test_nothing_is_said_to_be_kept_where_the_limit_is_reached() -> None:
    torch._dynamo.reset()
    with torch._dynamo.config.patch(recompile_limit=2), aotviz.watch() as log:
        step = compiled(lambda x, flag: x * 2 if flag is None else x)
        for kind in (torch.float32, torch.float64, torch.float16):
            step(torch.ones(2, dtype=kind), None)
    said = log.explain()
    assert "reached the recompile limit of 2" in " ".join(str(said).split())
    assert "kept" not in said.fix
    assert "x.to(torch.float32)" in said.fix


def test_a_mark_on_one_of_two_inputs_that_share_a_size_raises_as_is_said() -> None:
    torch._dynamo.reset()
    step = compiled(lambda x, y: x + y)
    with aotviz.watch() as log:
        for rows in (3, 4):
            step(torch.ones(rows), torch.ones(rows))
    assert "If one of two sizes that have to be equal is not marked, the call raises" in log.explain().fix
    torch._dynamo.reset()
    x, y = torch.ones(3), torch.ones(3)
    torch._dynamo.mark_dynamic(x, 0)
    with pytest.raises(Exception, match=r"You marked .* as dynamic but your code specialized it"):
        step(x, y)


def test_what_a_library_calls_args_is_not_what_the_user_marks() -> None:
    torch._dynamo.reset()
    gelu = compiled(F.gelu)
    with aotviz.watch() as log:
        for rows in (3, 4):
            gelu(torch.ones(rows, 2))
    fix = log.explain().fix
    assert "`torch._dynamo.mark_dynamic(tensor, 0)`, where `tensor` is what you pass as `args[0]`" in fix
    torch._dynamo.reset()
    with aotviz.watch() as log:
        for rows in (3, 4):
            tensor = torch.ones(rows, 2)
            torch._dynamo.mark_dynamic(tensor, 0)
            gelu(tensor)
    assert len(log) == 1


@torch._dynamo.disable
def excluded(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def test_where_no_graph_was_made_that_is_the_first_point() -> None:
    torch._dynamo.reset()
    with aotviz.watch() as log:
        compiled(lambda x: excluded(x))(torch.ones(2))
    first = log.explain().sentences[0]
    assert first.startswith("Nothing was compiled: Dynamo made no graph in 1 attempt, because")
    assert "torch.compiler.disable" in first
    with aotviz.watch() as log:
        compiled(lambda x: excluded(x * 2))(torch.ones(2))
    assert not any("Nothing was compiled" in text for text in log.explain().sentences)


def test_functions_inside_one_wrapper_of_dynamos_are_functions() -> None:
    torch._dynamo.reset()
    gelu, norm = compiled(F.gelu), compiled(F.layer_norm)
    with aotviz.watch() as log:
        gelu(torch.ones(4, 8))
        norm(torch.ones(4, 8), (8,))
        gelu(torch.ones(5, 8))
    said = log.explain()
    assert said.title.startswith("3 compilations of 2 functions, 1 of them a recompile")
    assert "`args[0]` had size 4 and now has size 5" in said.sentences[0]


def test_breaks_inside_a_library_are_one_point_and_nobody_is_told_to_mend_them() -> None:
    parameter = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    parameter.grad = torch.ones(3)
    torch._dynamo.reset()
    with aotviz.watch() as log:
        compiled(lambda: optimizer.step())()
    said = str(log.explain())
    assert "inside `torch.optim.optimizer`" in " ".join(said.split())
    assert "Remove" not in said


EXPORTED = """
import torch

class Branching(torch.nn.Module):
    def forward(self, x):
        {first}
        {check}
        if {condition}:
            return x.sum() * 2
        return x.sum()
"""


@pytest.mark.parametrize(
    ("first", "condition", "named"),
    [
        ("y = x.nonzero()", "y.shape[0] > 3", ""),
        ("y = x[x > 0]", "y.numel() > 3", ""),
        ("n = x.sum().int().item()", "n > 3", ""),
        ("y, = x.nonzero(as_tuple=True)", "y.numel() > 3", "n = y.numel(); "),
        ("pass", "x.sum().int().item() > 3", "n = x.sum().int().item(); "),
    ],
)
def test_the_check_that_is_advised_lets_the_export_pass(first: str, condition: str, named: str, tmp_path: Path) -> None:
    def exported(check: str) -> object:
        path = tmp_path / f"branching{len(check)}.py"
        if first == "pass" and check != "pass":  # the number is given its name where it is read
            path.write_text(EXPORTED.format(first=first, condition="n > 3", check=check))
        else:
            path.write_text(EXPORTED.format(first=first, condition=condition, check=check))
        made: dict[str, Any] = {}
        exec(compile(path.read_text(), str(path), "exec"), made)
        return torch.export.export(made["Branching"](), (torch.ones(6),))

    torch._dynamo.reset()
    with aotviz.watch() as log, pytest.raises(torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode):
        exported("pass")
    fix = log.explain().fix
    advised = re.search(r"`(torch\._check\(.*?\))` or", fix)
    assert advised is not None, fix
    assert ("with `n` for the number" in fix) == bool(named)
    assert exported(named + advised[1])


def test_each_export_has_symbols_of_its_own(tmp_path: Path) -> None:
    class First(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            apples = x.sum().int().item()
            return x * (2 if apples > 3 else 1)

    class Second(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            pears = x.prod().int().item()
            return x * (2 if pears < 9 else 1)

    torch._dynamo.reset()
    with aotviz.watch() as log:
        for module in (First(), Second()):
            with pytest.raises(torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode):
                torch.export.export(module, (torch.ones(6),))
    told = {("apples" in text, "pears" in text) for text in log.explain().sentences if "has to know" in text}
    assert told == {(True, False), (False, True)}


def compares(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    return y @ w


def branches(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    if y.shape[1] == 6:
        y = y * 2
    return y.cos() * w.sum()


@pytest.mark.parametrize(("fn", "code"), [(compares, "return y @ w"), (branches, "if y.shape[1] == 6:")])
def test_the_line_that_fixed_a_size_is_named_and_the_mark_that_is_advised_works(
    fn: Callable[..., Any], code: str
) -> None:
    def called(mark: Callable[[torch.Tensor, int], object], both: bool = False) -> torch.Tensor:
        torch._dynamo.reset()
        x, w = torch.ones(2, 6), torch.ones(6, 3)
        mark(x, 1)
        if both:
            mark(w, 0)
        result: torch.Tensor = compiled(fn)(x, w)
        return result

    mark = torch._dynamo.mark_dynamic
    with aotviz.watch() as log, pytest.raises(torch.fx.experimental.symbolic_shapes.ConstraintViolationError):
        called(mark)
    first = log.explain().points[0]
    assert "`x.shape[1]` was marked as dynamic, and this line made it the constant 6" in first.text
    assert first.code == code
    assert "`torch._dynamo.maybe_mark_dynamic(x, 1)`" in first.fix
    assert "mark that tensor's dimension as well" in first.fix
    called(torch._dynamo.maybe_mark_dynamic)
    if fn is compares:
        called(mark, both=True)


@pytest.mark.slow
def test_the_blocks_of_a_model_of_transformers_share_programs_without_the_key_value_cache() -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"n_layer": 6, "n_head": 2, "n_embd": 16, "vocab_size": 32, "n_positions": 64}

    def called(uses_cache: bool) -> aotviz.Recording:
        torch._dynamo.reset()
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes))
        model.config.use_cache = uses_cache
        for block in model.transformer.h:
            block.compile(backend="eager")
        with aotviz.watch() as log:
            for length in (8, 12, 16):
                model(torch.zeros(2, length, dtype=torch.long))
        return log

    log = called(True)
    first = log.explain().points[0]
    assert "`self.attn.layer_idx`" in first.text
    assert "it reached the recompile limit at" in first.text
    assert "`model.config.use_cache = False`" in first.fix
    assert (len(log), len(called(False))) == (9, 2)
