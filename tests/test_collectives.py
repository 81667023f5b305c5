"""Collectives that a function calls by aot_function: the graph has the functional form and waits for it, as eager."""

from __future__ import annotations

import datetime
import json
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import aotviz
from aotviz.lowerings import run_graph
from tests import processes

WORLD, ROOT = 2, 1
Function = Callable[[torch.Tensor, Any], Any]
pytestmark = pytest.mark.xdist_group("ranks")


def _to_root(make: Callable[[], Any]) -> Any:
    return make() if dist.get_rank() == ROOT else None


def _written(tensor: torch.Tensor, call: Callable[[torch.Tensor], Any]) -> torch.Tensor:
    call(tensor)
    return tensor


def _listed(tensors: list[torch.Tensor], call: Callable[[list[torch.Tensor]], Any]) -> torch.Tensor:
    call(tensors)
    return torch.stack(tensors)


def _later(y: torch.Tensor) -> torch.Tensor:
    work = dist.all_reduce(y, async_op=True)
    work.wait()
    return y


def _reduced(y: torch.Tensor) -> torch.Tensor:
    dist.reduce(y, ROOT)
    return y * float(dist.get_rank() == ROOT)  # elsewhere, it is not defined


def _gathered(y: torch.Tensor) -> torch.Tensor:
    outs = _to_root(lambda: [torch.empty(2, 3) for _ in range(WORLD)])
    dist.gather(y[:2], outs, dst=ROOT)
    return torch.stack(outs) if outs else y


def _rows() -> list[int]:  # that each rank sends to each: to rank 0 one, to rank 1 three
    return [1, 3]


def _received() -> list[int]:
    return [_rows()[dist.get_rank()]] * WORLD


FUNCTIONS: dict[str, Function] = {
    "all_reduce": lambda y, mesh: _written(y, dist.all_reduce),
    "all_reduce, a maximum": lambda y, mesh: _written(y, lambda t: dist.all_reduce(t, op=dist.ReduceOp.MAX)),
    "all_reduce, waited for later": lambda y, mesh: _later(y),
    "all_reduce of a view": lambda y, mesh: (dist.all_reduce(y[1:]), y)[1],
    "all_reduce of a transposed tensor": lambda y, mesh: (dist.all_reduce(y.t().contiguous().t()), y)[1],
    "broadcast": lambda y, mesh: _written(y, lambda t: dist.broadcast(t, ROOT)),
    "reduce": lambda y, mesh: _reduced(y.clone()),
    "all_gather": lambda y, mesh: _listed(
        [torch.empty(4, 3) for _ in range(WORLD)], lambda outs: dist.all_gather(outs, y)
    ),
    "all_gather_into_tensor": lambda y, mesh: _written(
        torch.empty(WORLD * 4, 3), lambda out: dist.all_gather_into_tensor(out, y)
    ),
    "gather": lambda y, mesh: _gathered(y),
    "scatter": lambda y, mesh: _written(
        torch.empty(2, 3), lambda out: dist.scatter(out, _to_root(lambda: [y[:2], y[2:] * 3]), src=ROOT)
    ),
    "reduce_scatter_tensor": lambda y, mesh: _written(
        torch.empty(2, 3), lambda out: dist.reduce_scatter_tensor(out, y)
    ),
    "all_to_all_single": lambda y, mesh: _written(
        torch.empty(4, 3), lambda out: dist.all_to_all_single(out, y)
    ),
    "all_to_all_single, uneven": lambda y, mesh: _written(
        torch.empty(sum(_received()), 3), lambda out: dist.all_to_all_single(out, y, _received(), _rows())
    ),
    "barrier": lambda y, mesh: (dist.barrier(), y)[1],
    "distribute_tensor, sharded": lambda y, mesh: distribute_tensor(y, mesh, [Shard(0)]).to_local(),
    "distribute_tensor, sharded unevenly": lambda y, mesh: distribute_tensor(y, mesh, [Shard(1)]).to_local(),
    "distribute_tensor, replicated": lambda y, mesh: distribute_tensor(y, mesh, [Replicate()]).to_local(),
}  # fmt: skip


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    """Other ones on each rank: a tensor that a collective writes, and a leaf."""
    start = torch.arange(12.0).reshape(4, 3) + 100 * dist.get_rank()
    return start, torch.linspace(-1, 1, 3).requires_grad_()


def _seen(call: Callable[..., Any]) -> list[Any]:
    """The result, the gradient, and what was written, with its version."""
    start, leaf = inputs()
    result = call(start, leaf)
    result.sin().sum().backward()
    return [result.tolist(), leaf.grad.tolist(), start.tolist(), start._version]


def _rank(rank: int, folder: str) -> None:
    found: dict[str, Any] = {}
    try:
        store = dist.FileStore(f"{folder}/store", WORLD)
        dist.init_process_group(
            "gloo", rank=rank, world_size=WORLD, store=store, timeout=datetime.timedelta(seconds=60)
        )
        mesh = init_device_mesh("cpu", (WORLD,))
        for name, function in FUNCTIONS.items():

            def program(start: torch.Tensor, leaf: torch.Tensor, function: Function = function) -> Any:
                return function(start, mesh) * leaf[0]

            def fresh(start: torch.Tensor, leaf: torch.Tensor, function: Function = function) -> Any:
                return function(start.sin(), mesh) * leaf[0]

            for form in (program, fresh):
                eager = _seen(form)
                compiled = aotviz.aot_function(form, run_graph)
                found.setdefault(name, []).extend((eager, _seen(compiled)) for _ in range(2))
    except Exception:
        found["error"] = traceback.format_exc()
    Path(folder, f"{rank}.json").write_text(json.dumps(found))


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    started = [processes.start(_rank, rank, str(folder)) for rank in range(WORLD)]
    for one in started:
        one.join(240)
    return [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(WORLD)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_collective_inside_is_waited_for_and_writes_as_in_eager(ranks, name):
    for found in ranks:
        assert name in found, found.get("error")
        for eager, compiled in found[name]:
            assert compiled == eager


def test_what_has_no_functional_form_is_refused_by_name(tmp_path):
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    try:
        with pytest.raises(aotviz.Refused, match=r"a collective of torch\.distributed, recv_any_source") as caught:
            aotviz.aot_function(lambda x: (dist.recv(x), x)[1], run_graph)(torch.ones(2))
        assert caught.value.reason == "collective inside"
    finally:
        dist.destroy_process_group()
