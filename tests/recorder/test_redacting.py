"""A redacted recording has none of the program's own texts in any byte, and still says what happened."""

from __future__ import annotations

import os
import re
import socket
import zlib
from pathlib import Path

import pytest
import torch

import aotviz
from aotviz.__main__ import main
from aotviz.recording import files, redacting
from aotviz.recording.files import HEADER_BYTES
from tests.explain.logs import logged

PROGRAM = '''
import torch

GREETING_ZEBRA = "constant zanzibar"


class ZebraNet(torch.nn.Module):
    """docstring quagga"""

    def __init__(self):
        super().__init__()
        self.okapi_layer = torch.nn.Linear(4, 4)
        self.tapir_mode = "mode narwhal"

    def forward(self, gnu_input, ibex_factor):
        if self.tapir_mode == "mode narwhal" or GREETING_ZEBRA:
            gnu_input = gnu_input * ibex_factor  # comment lemur
        return self.okapi_layer(gnu_input).relu()


def broken_civet(gnu_input):
    if gnu_input.sum() > 0:
        raise ValueError("message wombat")
    return gnu_input
'''
PLANTED = (
    "zanzibar", "quagga", "okapi", "tapir", "narwhal", "gnu_input", "ibex", "lemur", "civet", "wombat", "zebra",
    "dikdik", "kudu", "ZebraNet", "GREETING",
)  # fmt: skip


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict:
    torch._dynamo.reset()
    monkeypatch.setenv("AOTVIZ_SECRET", "environment kudu")
    folder = tmp_path / "home dikdik" / "kudu_project"
    folder.mkdir(parents=True)
    file = folder / "zebra_model.py"
    file.write_text(PROGRAM)
    names: dict = {"__name__": "zebra_model", "__file__": str(file)}
    exec(compile(PROGRAM, str(file), "exec"), names)
    yield names
    torch._dynamo.reset()


def run(names: dict, backend: str) -> None:
    net = names["ZebraNet"]()
    for factor in (2, 3):
        torch.compile(net, backend=backend)(torch.ones(3, 4), factor).sum().backward()
    net.tapir_mode = "mode narwhal two"
    torch.compile(net, backend=backend)(torch.ones(3, 4), 4)
    with pytest.raises(ValueError, match="message wombat"):
        torch.compile(names["broken_civet"], backend=backend)(torch.ones(3))


def content(path: Path) -> bytes:
    return zlib.decompress(path.read_bytes()[HEADER_BYTES:], files.GZIP)


def found(content: bytes) -> list[str]:
    private = (*PLANTED, socket.gethostname(), os.environ.get("USER", "zanzibar"), str(Path.home()))
    lower = content.lower()
    return [word for word in private if len(word) > 4 and word.lower().encode() in lower]


def test_no_byte_of_a_redacted_watch_is_the_programs_own(program: dict, tmp_path: Path) -> None:
    with aotviz.watch() as recording:
        run(program, "aotviz_eager")
        run(program, "eager")
    plain, safe = tmp_path / "plain.aotviz", tmp_path / "safe.aotviz"
    assert recording.save(plain) == ""
    assert len(found(content(plain))) >= len(PLANTED) - 4, "the words are in the recording itself"
    assert recording.save(safe, redact=True) == redacting.LEFT_OUT
    assert not found(content(safe))
    assert not found(bytes(str(recording.redacted().explain()), "utf-8"))


def test_no_byte_of_a_redacted_log_is_the_programs_own(program: dict, tmp_path: Path) -> None:
    recording = logged(lambda: run(program, "inductor"), tmp_path)
    recording.save(tmp_path / "safe.aotviz", redact=True)
    assert not found(content(tmp_path / "safe.aotviz"))


def test_what_is_left_can_be_read_and_explained(program: dict, tmp_path: Path) -> None:
    with aotviz.watch() as recording:
        run(program, "aotviz_eager")
    recording.save(tmp_path / "safe.aotviz", redact=True)
    loaded = aotviz.load(tmp_path / "safe.aotviz")
    assert redacting.LEFT_OUT in loaded.notes
    assert len(loaded) == len(recording)
    assert [one.kind for one in loaded.recompiles().itertuples()] == [
        one.kind for one in recording.recompiles().itertuples()
    ]
    told = str(loaded.explain())
    assert "was 2 and is now 3" in told
    assert re.search(r"file\d+\.py:17", told), "the line of the multiplication, in a file without its name"
    for before, after in zip(recording, loaded, strict=True):
        assert len(before.stages) == len(after.stages)
        for stage in before.data.stages:
            for role in stage.graphs:
                one, other = (side.graph(role, stage=stage.name) for side in (before, after))
                assert one.nodes.shape[0] == other.nodes.shape[0]
                assert list(one.nodes["shape"]) == list(other.nodes["shape"])
                aten = one.nodes.target.str.startswith("aten.")
                assert list(one.nodes.target[aten]) == list(other.nodes.target[aten])


def test_a_redacted_page_has_none_of_it_and_says_so(program: dict, tmp_path: Path) -> None:
    with aotviz.watch() as recording:
        run(program, "eager")
    page = tmp_path / "page.html"
    assert recording.to_html(page, redact=True)
    text = page.read_text()
    assert not found(text.encode())
    assert "This recording is redacted." in text


def test_logs_are_saved_for_strangers_from_the_command_line(
    program: dict, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logged(lambda: run(program, "eager"), tmp_path)
    for redact, out in ((["--redact"], "safe.aotviz"), ([], "plain.aotviz")):
        assert main(["save", str(tmp_path / "trace.log"), "-o", str(tmp_path / out), *redact]) == 0
        assert (redacting.LEFT_OUT in capsys.readouterr().out) == bool(redact)
        assert bool(found(content(tmp_path / out))) == (not redact)
