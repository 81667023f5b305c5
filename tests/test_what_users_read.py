"""What a user reads when something is printed or goes wrong: one short text, in plain words."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import aotviz

ROOT = Path(__file__).resolve().parents[1]


def test_a_stopped_compilation_prints_its_stages_as_a_table() -> None:
    inputs = torch.ones(3, 4), torch.ones(4, 2, requires_grad=True)
    stopped = aotviz.trace_stages(lambda x, w: (x @ w).sin().sum(), *inputs, until="partition")
    text = repr(stopped)
    assert text == str(stopped)
    assert len(text) < 2000
    lines = text.splitlines()
    assert lines[0].endswith(", stopped after 'partition'>")
    assert lines[1].split() == ["stage", "ms", "nodes", "before", "after", "what", "changed"]
    assert [line.split()[0] for line in lines[3:]][:2] == ["flatten", "metadata"]
    assert lines[-1] == "to come: saved hooks, donated buffers, lower, link; resume() runs them"
    assert repr(stopped.resume_until("link")).endswith("\nresume() returns the function")


def test_an_empty_recording_says_to_call_the_function() -> None:
    compiled = aotviz.compile(lambda x: x.sin(), backend="eager")
    assert repr(compiled).endswith(", not compiled yet>")
    with pytest.raises(IndexError, match="nothing has been compiled yet: call the compiled function once"):
        compiled.recording[0]
    compiled(torch.ones(3))
    assert repr(compiled).endswith(", compiled once>")
    with pytest.raises(IndexError, match="no compilation 3: the recording has 1, from 0 on"):
        compiled.recording[3]
    compiled(torch.ones(3, dtype=torch.float64))
    assert repr(compiled).endswith(", compiled twice>")


MISMATCH = """
import torch, aotviz
def step(x, w):
    return (x @ w).sum()
try:
    {call}
except Exception as error:
    assert "{said}" in str(error), error
"""


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            "aotviz.compile(step, backend='eager')(torch.ones(3, 4), torch.ones(5, 2))",
            "cannot be multiplied",
        ),  # eager's
        ("aotviz.trace_stages(step, torch.ones(3, 4), torch.ones(5, 2))", "must have same reduction dim"),
    ],
)
def test_a_shape_mismatch_is_one_error_without_a_log(call: str, said: str) -> None:
    script = MISMATCH.format(call=call, said=said)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True)
    assert "attempting to run meta" not in done.stderr
    assert "fake_tensor.py" not in done.stderr


def test_torchs_own_compilations_log_as_before() -> None:
    from aotviz.torch_private import fake_tensors

    logger = logging.getLogger("torch._subclasses.fake_tensor")
    record = logger.makeRecord(
        logger.name, logging.ERROR, "f", 1, "failed while attempting to run meta for %s", (), None
    )
    (drops,) = [one for one in logger.filters if type(one).__module__ == fake_tensors.__name__]
    assert drops.filter(record)  # no frame of aotviz is on the stack


def test_a_refused_gradient_names_the_line_and_the_operator_in_our_words() -> None:
    def step(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = (x * w).sigmoid()
        y.add_(1)
        return y.sum()

    compiled = aotviz.compile(step, backend="eager", options={"on_refusal": "raise"})
    with pytest.raises(aotviz.Refused) as refused:
        compiled(torch.ones(3), torch.ones(3, requires_grad=True))
    said = str(refused.value)
    assert "it needs the result of Sigmoid at test_what_users_read.py:" in said
    assert "`y = (x * w).sigmoid()`, of shape [3], which is written in place afterwards." in said
    assert "Good luck" not in said
    assert "version" not in said
