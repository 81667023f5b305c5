"""What JupyterLab's panel of live compilations asks of a kernel: alone, and in a real kernel."""

from __future__ import annotations

import gc
import gzip
import queue
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import torch
from jupyter_client.manager import start_new_kernel

import aotviz
from aotviz.live import panel as live
from aotviz.recording import progress
from aotviz.recording.schema import RecordingData


class Comm:
    """A comm that keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[dict[str, Any], list[bytes] | None]] = []

    def send(self, data: dict[str, Any], buffers: list[bytes] | None = None) -> None:
        self.sent.append((data, buffers))


def says(**data: object) -> dict[str, Any]:
    return {"content": {"data": data}}


@pytest.fixture
def panel() -> Iterator[tuple[live.Live, Comm]]:
    comm = Comm()
    kernel = live.Live(comm)
    kernel.hear(says(ask="watch", who="tests"))
    yield kernel, comm
    kernel.hear(says(ask="stop", who="tests"))


def test_a_panel_sees_every_stage_begin_and_the_end(panel: tuple[live.Live, Comm]) -> None:
    _, comm = panel
    assert comm.sent[0][0]["whole"] is True
    del comm.sent[:]
    square = aotviz.compile(lambda x: x * x, backend="eager")
    square(torch.ones(3))
    rows = [row for data, _ in comm.sent for row in data["rows"]]
    assert {row["key"] for row in rows} == {rows[0]["key"]}
    running = [row["stage"] for row in rows if row["state"] == "running"]
    stages = square.recording.data.compilations[0].stages
    assert running == [stage.name for stage in stages if stage.name not in ("given", "dynamo")]
    assert rows[-1]["state"] == "done"
    assert rows[-1]["stages"] == len(running) + 1, "and Dynamo's, which is over when the others begin"
    assert rows[-1]["elapsed_ms"] == pytest.approx(sum(stage.elapsed_ns for stage in stages) / 1e6)


def test_a_failed_compilation_says_so(panel: tuple[live.Live, Comm]) -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def failing(graph: Any, inputs: Any) -> Any:
        raise ValueError("no such shape")

    _, comm = panel
    compiled = aotviz.compile(broken, backend=failing)
    with pytest.raises(Exception, match="no such shape"):
        compiled(torch.ones(3))
    last = comm.sent[-1][0]["rows"][0]
    assert (last["name"].partition(" [")[0], last["state"]) == ("broken", "failed")
    assert "no such shape" in last["error"]


def test_a_compilation_is_opened_by_its_key(panel: tuple[live.Live, Comm]) -> None:
    kernel, comm = panel
    double = aotviz.compile(lambda x: x + x, backend="eager")
    double(torch.ones(3))
    key = comm.sent[-1][0]["rows"][0]["key"]
    kernel.hear(says(ask="recording", question="q", key=key))
    answer, buffers = comm.sent[-1]
    assert answer == {"answer": "q"}
    assert buffers is not None
    data = msgspec.msgpack.decode(gzip.decompress(buffers[0]), type=RecordingData)
    assert [one.name for one in data.compilations] == [one.name for one in double.recording.compilations]

    kernel.hear(says(ask="recording", question="r", key="no such"))
    assert comm.sent[-1] == ({"answer": "r", "error": comm.sent[-1][0]["error"]}, None)
    assert "no longer keeps" in comm.sent[-1][0]["error"]


def test_a_tab_asks_for_parts_and_sees_a_backward_that_is_compiled_later(panel: tuple[live.Live, Comm]) -> None:
    kernel, comm = panel

    def part(want: list[object]) -> Any:
        kernel.hear(says(ask="part", question="q", key=key, want=want))
        answer, buffers = comm.sent[-1]
        assert (answer, buffers and len(buffers)) == ({"answer": "q"}, 1), answer
        assert buffers is not None
        return msgspec.msgpack.decode(gzip.decompress(buffers[0]))

    late = aotviz.compile(lambda x: (x * x).sum(), backend="eager")
    loss = late(torch.ones(3, requires_grad=True))
    key = comm.sent[-1][0]["rows"][0]["key"]
    (before,) = part(["index"])["compilations"]
    loss.backward()
    (after,) = part(["index"])["compilations"]
    assert (after["id"], after["stages"]) == (before["id"], before["stages"] + 1)
    assert after["revision"] != before["revision"]
    stages = part(["compilation", after["id"]])["compilation"]["stages"]
    assert stages[-1]["name"] == "lower backward"
    assert part(["graph", after["id"], stages[-1]["graphs"]["backward"]])["graph"]["op"]

    kernel.hear(says(ask="part", question="r", key=key, want=["moon"]))
    assert "neither a part" in comm.sent[-1][0]["error"]
    kernel.hear(says(ask="part", question="r", key="no such", want=["index"]))
    assert "no longer keeps" in comm.sent[-1][0]["error"]
    assert kernel._opened is not None
    kernel.hear(says(ask="stop", who="tests"))
    assert kernel._opened is None  # nothing is kept alive for a panel that is gone


def test_a_recording_that_nobody_keeps_is_not_listed() -> None:
    def gone(x: torch.Tensor) -> torch.Tensor:
        return x + 3

    compiled = aotviz.compile(gone, backend="eager")
    compiled(torch.ones(3))
    (name,) = [one.progress().name for one in progress.compilations() if one.progress().name.startswith("gone [")]
    del compiled
    torch._dynamo.reset()  # which keeps the programs of each function
    gc.collect()
    assert name not in [one.progress().name for one in progress.compilations()]


def test_without_a_panel_nothing_is_told(panel: tuple[live.Live, Comm], monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, comm = panel
    monkeypatch.setattr(live, "LEASE_S", -1)
    kernel.hear(says(ask="watch", who="tests"))  # a wish that is over at once, as of a window that was closed
    del comm.sent[:]
    aotviz.compile(lambda x: x - 1, backend="eager")(torch.ones(3))
    assert comm.sent == []
    kernel.hear(says(ask="stop", who="tests"))
    assert kernel._tell not in progress._listeners


def test_a_comm_that_breaks_does_not_disturb_the_program() -> None:
    class Broken(Comm):
        def send(self, data: dict[str, Any], buffers: list[bytes] | None = None) -> None:
            raise OSError("the socket is closed")

    kernel = live.Live(Broken())
    kernel.hear(says(ask="watch", who="tests"))
    try:
        compiled = aotviz.compile(lambda x: x * 5, backend="eager")
        assert compiled(torch.ones(1)).item() == 5
        assert compiled.recording.data.compilations[0].error is None
    finally:
        kernel.hear(says(ask="stop", who="tests"))


def test_a_real_kernel_is_found_and_watched() -> None:
    manager, client = start_new_kernel(kernel_name="python3")
    try:
        assert comms(client) == {}
        run(client, "import aotviz")
        assert run(client, "import sys; assert 'torch' not in sys.modules") == []
        (comm_id,) = comms(client)
        ask(client, comm_id, ask="watch", who="tests")
        assert receive(client, comm_id)["content"]["data"] == {"rows": [], "whole": True}
        said = run(
            client, "import torch\ntriple = aotviz.compile(lambda x: 3 * x, backend='eager')\ntriple(torch.ones(2))"
        )
        rows = [
            row for message in said if message["msg_type"] == "comm_msg" for row in message["content"]["data"]["rows"]
        ]
        assert [row["state"] for row in rows][-1] == "done"
        assert "trace" in [row["stage"] for row in rows]
        ask(client, comm_id, ask="recording", question="q", key=rows[-1]["key"])
        answer = receive(client, comm_id)
        assert answer["content"]["data"] == {"answer": "q"}
        assert bytes(answer["buffers"][0])[:2] == b"\x1f\x8b"
        ask(client, comm_id, ask="stop", who="tests")
        assert not [m for m in run(client, "triple(torch.ones(2, 2))") if m["msg_type"] == "comm_msg"]
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def comms(client: Any) -> dict[str, Any]:
    return client.comm_info(target_name=live.TARGET, reply=True, timeout=60)["content"]["comms"]


def ask(client: Any, comm_id: str, **data: object) -> None:
    client.shell_channel.send(client.session.msg("comm_msg", {"comm_id": comm_id, "data": data}))


def receive(client: Any, comm_id: str) -> dict[str, Any]:
    """The next message of the comm."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        message = client.get_iopub_msg(timeout=60)
        if message["msg_type"] == "comm_msg" and message["content"]["comm_id"] == comm_id:
            return message
    raise queue.Empty


def run(client: Any, code: str) -> list[dict[str, Any]]:
    """What a cell publishes beside its status, input and result. Fails if the cell does."""
    said: list[dict[str, Any]] = []
    reply = client.execute_interactive(code, timeout=120, output_hook=said.append)
    assert reply["content"]["status"] == "ok", reply["content"]
    return [message for message in said if message["msg_type"] not in ("status", "execute_input", "execute_result")]


def test_a_watch_shows_what_torchs_own_compilers_do(panel: tuple[live.Live, Comm]) -> None:
    def stock(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() * x).sum()

    kernel, comm = panel
    torch._dynamo.reset()
    torch.compile(stock, backend="aot_eager")(torch.ones(3))
    assert len(comm.sent) == 1  # nobody watches: the panel knows of aotviz's own compilations only
    torch._dynamo.reset()
    with aotviz.watch() as recording:
        torch.compile(stock, backend="aot_eager")(torch.ones(3, requires_grad=True)).backward()
    rows = [row for data, _ in comm.sent[1:] for row in data["rows"]]
    assert {row["name"] for row in rows} == {"stock"}
    assert rows[0]["state"] == "running"
    running = [row["stage"] for row in rows if row["state"] == "running"]
    assert running[-1] == recording[0].data.stages[-1].name  # "wrapper"; older releases of torch don't tell it
    assert {"dynamo", "joint", "partition"} <= {row["stage"] for row in rows}
    assert rows[-1]["state"] == "done"
    assert rows[-1]["kind"] == f"torch {recording[0].compile_id}"
    kernel.hear(says(ask="recording", question="q", key=rows[-1]["key"]))
    answer, buffers = comm.sent[-1]
    assert answer == {"answer": "q"}
    assert buffers is not None
    data = msgspec.msgpack.decode(gzip.decompress(buffers[0]), type=RecordingData)
    assert [one.name for one in data.compilations] == [recording[0].name]
    assert data.compilations[0].stages == recording[0].data.stages


def test_a_failed_compilation_of_torchs_says_so(panel: tuple[live.Live, Comm]) -> None:
    def stock(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x + 1

    _, comm = panel
    torch._dynamo.reset()
    with aotviz.watch(), pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(stock, backend="aot_eager", fullgraph=True)(torch.ones(3))
    last = comm.sent[-1][0]["rows"][-1]
    assert (last["name"], last["state"]) == ("stock", "failed")
    assert "Unsupported" in last["error"]
