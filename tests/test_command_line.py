"""`python -m aotviz`: the demo runs and is right, recordings are shown, and what is wrong is said in one line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import aotviz
from aotviz.__main__ import main
from aotviz.reading.recording import Recording
from tests.ui import fixture


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "made.aotviz"
    Recording(fixture.recording().data).save(path)
    return path


def test_demo_shows_every_stage_and_equals_eager(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--layers", "1", "--backend", "eager", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    for title in ("Agreement with eager", "Stages", "Inputs", "Outputs", "What runs on every call", "Written"):
        assert f"\n{title}\n" in printed
    assert "The compiled step equals eager" in printed
    stages = aotviz.load(tmp_path / "demo.aotviz")[-1].stages
    for stage in stages["stage"][stages["stage"] != "given"]:  # a graph that a late run starts from
        assert f"  {stage} ..." in printed, f"no progress line for {stage}"
    assert "<html" in (tmp_path / "demo.html").read_text()[:2000]


def test_show_prints_every_compilation(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(recording)]) == 0
    printed = capsys.readouterr().out
    assert f"{len(fixture.recording().data.compilations)} compilations" in printed


def test_report_writes_one_page_beside_the_file(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(recording)]) == 0
    assert recording.with_suffix(".html").exists()
    assert "made.html" in capsys.readouterr().out


def test_report_never_overwrites_the_recording(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = recording.read_bytes()
    assert main(["report", str(recording), "-o", str(recording)]) == 2
    assert recording.read_bytes() == before
    assert "another name" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["show", "report"])
@pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04 not ours"])
def test_a_bad_file_is_one_line_and_status_2(
    command: str, content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.aotviz"
    if content is not None:
        path.write_bytes(content)
    assert main([command, str(path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"aotviz {command}: ")
    assert "bad.aotviz" in said
    assert said.count("\n") == 1


def test_a_wrong_number_of_layers_is_one_line_and_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--layers", "0"]) == 2
    assert capsys.readouterr().err == "aotviz demo: --layers must be at least 1, and is 0\n"


def test_an_unknown_command_has_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["dmeo"])
    assert stopped.value.code == 2
    assert "dmeo" in capsys.readouterr().err


PROGRAM = """
import torch

def step(x, w):
    return (x @ w).sin().sum()

def step_inputs():
    return torch.ones(2, 3), torch.ones(3, requires_grad=True)

def other():
    return {"x": torch.ones(3), "w": torch.ones(3)}

number = 3
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "a_program.py"
    path.write_text(PROGRAM)
    return path


def test_verify_compares_a_function_of_a_file(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", f"{program}:step"]) == 0
    printed = capsys.readouterr().out
    assert "step: right" in printed
    assert "joint graph and torch's     same" in printed
    assert main(["verify", f"{program}:step", "--inputs", "other"]) == 0
    assert "inference graph and torch's  same" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "message"),
    [("", "names no function"), (":stop", "has no 'stop'; there are step"), (":number", "which can't be called")],
)
def test_verify_says_what_it_can_not_find(
    program: Path, name: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", f"{program}{name}"]) == 2
    assert message in capsys.readouterr().err


def test_verify_says_which_arguments_are_missing(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", f"{program}:step", "--inputs", "step"]) == 2
    assert main(["verify", "no_such_module_anywhere:step"]) == 2
    assert "can't be imported" in capsys.readouterr().err


BAD_PROGRAMS = {
    "def step(:\n    pass\n": "{path} can't be imported: bad.py:1: SyntaxError: ",
    "import torch\n\nlayers = nothing\n": "{path} can't be imported: bad.py:3: NameError: name 'nothing' is",
    "import no_such_module_anywhere\n": "{path} can't be imported: bad.py:1: ModuleNotFoundError: No module",
    "import sys\nsys.exit(0)\n": "{path} can't be imported: bad.py:2: SystemExit: 0",
    "def step(x):\n    return x\n\ndef step_inputs():\n    raise OSError('no\\ndata')\n": (
        "step_inputs fails: bad.py:5: OSError: no data"
    ),
    "def step(x):\n    return x\n\ndef step_inputs():\n    return len()\n": "step_inputs fails: bad.py:5: TypeError: ",
}


@pytest.mark.parametrize("by_name", [False, True], ids=["file", "module"])
@pytest.mark.parametrize("text", BAD_PROGRAMS)
def test_verify_says_in_one_line_where_the_users_own_code_fails(
    text: str, by_name: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.py"
    path.write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "bad", raising=False)
    assert main(["verify", "bad:step" if by_name else f"{path}:step"]) == 2
    said = capsys.readouterr().err
    monkeypatch.delitem(sys.modules, "bad", raising=False)
    assert said.startswith("aotviz verify: " + BAD_PROGRAMS[text].format(path="module 'bad'" if by_name else path))
    assert said.count("\n") == 1
