"""link: one Python function, and a reason for each group of its lines."""

from __future__ import annotations

import ast

import pytest
import torch

from tests.stages.support import stage_alone

torch.set_num_threads(1)


def leaf(*shape):
    return torch.ones(*shape, requires_grad=True)


def plain(x, w):
    return (x * w).sin()


def busy(x, w, buffer):
    x.mul_(2)
    with torch.no_grad():
        buffer.add_(1)
    y = (x * w).exp()
    return y.view(-1), y.t(), w.t(), x, {"loss": y.sum()}


def inference(x):
    x.t_()
    return x + 1, x[0]


def grad_mode(x):
    torch.set_grad_enabled(False)
    return x + 1


CALLS = {
    "plain": (plain, (torch.ones(2), leaf(2))),
    "busy": (busy, (leaf(2, 2).clone(), leaf(2, 2), torch.zeros(2))),
    "inference": (inference, (torch.ones(2, 3),)),
    "duplicates": (lambda a, b: a.mul_(2) + b, (torch.ones(2),) * 2),
}


@pytest.fixture(params=CALLS)
def program(request):
    fn, args = CALLS[request.param]
    return stage_alone("link", fn, *args)[1]


def test_the_source_defines_one_function_and_at_most_one_autograd_function(program):
    body = ast.parse(program.source).body
    functions = [node.name for node in body if isinstance(node, ast.FunctionDef)]
    classes = [node for node in body if isinstance(node, ast.ClassDef)]
    assert functions == [program.function.__name__]
    assert len(classes) <= 1
    assert program.function.__code__.co_filename == program.filename


def test_every_note_points_at_lines_of_code(program):
    lines = program.source.splitlines()
    assert program.notes
    for note in program.notes:
        assert note.fact
        assert all(lines[i].strip() and not lines[i].strip().startswith("#") for i in range(note.first - 1, note.last))


def test_every_comment_of_the_source_is_the_fact_of_a_note_about_the_lines_below_it(program):
    lines = program.source.splitlines()
    noted = {(note.first, note.fact) for note in program.notes}
    comments = [number for number, line in enumerate(lines, 1) if line.strip().startswith("# ")]
    assert comments
    for number in comments:
        code = next(n for n in range(number, len(lines)) if not lines[n].strip().startswith("#")) + 1
        assert (code, lines[number - 1].strip()[2:]) in noted


def test_the_facts_of_the_call_stand_in_its_source():
    fn, args = CALLS["busy"]
    _, program = stage_alone("link", fn, *args)
    facts = {note.fact: program.source.splitlines()[note.first - 1].strip() for note in program.notes}
    assert facts["x is written"].startswith("x.copy_(out[0]")
    assert "buffer" in facts["buffer is written"]
    assert facts["output[2] is a view of an input"] == "out_2 = w.t()"
    assert facts["output[1] is a view of an intermediate that is also an output"] == "out_1 = out[3].t()"
    assert any(note.subject == "buffer" for note in program.notes)


def test_what_is_known_at_compile_time_has_no_branch():
    _, program = stage_alone("link", lambda x: x + 1, torch.ones(2))
    ifs = [node for node in ast.walk(ast.parse(program.source)) if isinstance(node, ast.If)]
    assert {ast.unparse(node.test) for node in ifs} == {"transformed()"}


def test_the_function_that_is_returned_runs_and_the_argument_is_no_part_of_it():
    argument, program = stage_alone("link", plain, torch.ones(2), leaf(2))
    out = program.function(torch.zeros(2), leaf(2))
    assert out.tolist() == [0, 0]
    assert out.requires_grad
    assert program.lowered is argument


def test_a_grad_mode_that_the_call_leaves_behind_is_left_behind():
    _, program = stage_alone("link", grad_mode, torch.ones(2))
    try:
        program.function(torch.ones(2))
        assert not torch.is_grad_enabled()
    finally:
        torch.set_grad_enabled(True)


def test_the_source_is_counted_in_the_evidence():
    _, program = stage_alone("link", plain, torch.ones(2), leaf(2))
    (reason,) = program.evidence
    assert reason.text == f"{program.source.count(chr(10))} lines; {len(program.notes)} groups of them have a comment"
