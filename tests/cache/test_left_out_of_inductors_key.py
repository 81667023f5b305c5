"""What Inductor's key leaves out does not give a user another program's result, with our cache and without it."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
import torch

from aotviz.cache import entry as entries
from aotviz.cache.values import Broken
from aotviz.torch_private import inductor, inductor_code
from tests import processes

PROGRAM = """
import sys
import torch, aotviz

torch.set_num_threads(1)
FUNCTIONS = (
    lambda x: torch.as_strided(x, (2,), (1,), 0) + 1,
    lambda x: torch.as_strided_copy(x, (2,), (1,), 1) + 1,
    lambda x: torch.as_strided(x, (2,), (1,), 0).add_(1) + 1,
)
for f in FUNCTIONS:
    torch._dynamo.reset()
    x, same = (torch.arange(8.0)[int(sys.argv[1]):][:4] for _ in range(2))
    assert torch.equal(torch.compile(f, backend="aotviz")(x), f(same))
    assert torch.equal(x, same)
"""


@pytest.mark.slow
@pytest.mark.parametrize("cache", ["off", "on"])
def test_a_view_at_another_offset_is_read_where_it_begins(tmp_path: Path, cache: str) -> None:
    environment = {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"),
        "AOTVIZ_CACHE_DIR": "off" if cache == "off" else str(tmp_path / "aotviz"),
    }
    for offset in ("0", "4", "2", "0"):
        done = processes.run(["-c", PROGRAM, offset], environment)
        assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("operator", [torch.ops.aten.as_strided.default, torch.ops.aten.as_strided_scatter.default])
def test_an_operator_that_reads_the_offset_is_told_by_its_name(operator: object) -> None:
    assert inductor._reads_offsets(operator)
    assert not inductor._reads_offsets(torch.ops.aten.view.default)


NO_KEYS = [
    "/tmp/folder",
    "../../folder",
    "f" * 52 + "/..",
    "f" + "a" * 51 + "\n",
    "f" + "A" * 51,
    "g" + "a" * 51,
    "f" + "a" * 50,
    "",
]


@pytest.mark.parametrize("key", NO_KEYS)
def test_only_a_key_of_inductors_form_is_read(key: str) -> None:
    with pytest.raises(Broken):
        entries.read_backward(msgspec.msgpack.encode([key, None]))


@pytest.mark.parametrize(
    "name", ["../x.main.so", "/tmp/x.main.so", "c" + "a" * 51 + ".main.so/../../x", "x.py", "c.so"]
)
def test_only_a_library_of_inductors_form_is_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    with pytest.raises(ValueError, match="no name of Inductor's"):
        inductor_code.put_in("f" + "a" * 51, name, b"code")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_code_is_put_where_inductor_looks_and_replaces_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    key, library = "f" + "a" * 51, "c" + "b" * 51 + ".main.so"
    inductor_code.put_in(key, inductor_code.GRAPH, b"graph")
    inductor_code.put_in(key, library, b"library")
    inductor_code.put_in(key, library, b"another")
    assert (tmp_path / "inductor" / "bb" / library).read_bytes() == b"library"
    assert inductor_code.taken_out(key) == [(inductor_code.GRAPH, b"graph")]
    assert inductor_code.taken_out("f" + "c" * 51) == []
