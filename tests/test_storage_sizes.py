"""A function may resize the storage of an input. Where it is freed at the end, nothing is written into freed memory."""

from __future__ import annotations

import pytest
import torch
import torch.distributed.fsdp  # defines torch.ops.fsdp.copy_
from torch.testing._internal.two_tensor import TwoTensor

import aotviz
from aotviz.ir.partition_functions import share
from aotviz.ir.refusals import Refused
from aotviz.runtime.call_differs import CallDiffers
from aotviz.torch_private.operators import RESIZE_STORAGE
from tests import processes
from tests.storage_programs import drawn

FILLED_AND_FREED = """
import sys, torch, aotviz
def f(p, x):
    p.untyped_storage().resize_(x.numel() * 4)
    with torch.no_grad(): p.copy_(x)
    y = p * 2
    p.untyped_storage().resize_(0)
    return y
door = sys.argv[1]
g = aotviz.aot_function(f, lambda graph, _: graph) if door == "aot_function" else torch.compile(f, backend=door)
for times in (1, 2, 3):
    p = torch.empty(4)
    p.untyped_storage().resize_(0)
    y = g(p, torch.full((4,), float(times)))
    assert torch.equal(y, torch.full((4,), 2.0 * times)) and p.untyped_storage().size() == 0 and p._version == 1
"""


def in_a_process(*arguments: str) -> str:
    """What a process prints. It may crash, and then this test fails, and not the process that runs the tests."""
    done = processes.run(arguments)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


@pytest.mark.parametrize(
    "door", ["aotviz_eager", *(pytest.param(door, marks=pytest.mark.slow) for door in ("aot_function", "aotviz"))]
)
def test_what_was_freed_is_not_written_back(door: str) -> None:
    in_a_process("-c", FILLED_AND_FREED, door)


@pytest.mark.parametrize(
    ("door", "seeds"),
    [  # `python -m tests.storage_programs DOOR SEEDS` takes more
        ("min-cut", range(40)),
        pytest.param("aot_function", range(200), marks=pytest.mark.slow),
        pytest.param("min-cut", range(40, 200), marks=pytest.mark.slow),
        pytest.param("aotviz_eager", range(60), marks=pytest.mark.slow),
        pytest.param("aotviz", range(12), marks=pytest.mark.slow),
    ],
)
def test_programs_that_resize_storages_are_eagers(door: str, seeds: range) -> None:
    lines = in_a_process("-m", "tests.storage_programs", door, *map(str, seeds)).splitlines()
    wrong = [line for line in lines if not line.endswith(" right")]
    assert not wrong, "\n".join(wrong[:20])
    assert len(lines) == len(seeds)


@pytest.mark.slow
def test_programs_that_resize_storages_come_from_the_cache(tmp_path) -> None:
    command = ("-m", "tests.storage_programs", f"cached {tmp_path}", *map(str, range(30)))
    first, then = (in_a_process(*command).splitlines() for _ in range(2))
    hit = {seed: "" if drawn(seed).shared else "hit and " for seed in range(30)}  # inputs that share memory bypass it
    assert first == [f"{seed} right" for seed in range(30)]
    assert then == [f"{seed} {hit[seed]}right" for seed in range(30)]


def freed(*values: float) -> torch.Tensor:
    tensor = torch.tensor(values)
    tensor.untyped_storage().resize_(0)
    return tensor


def graph_of(fn, *args):
    graphs = []
    aotviz.aot_function(fn, lambda graph, _: graphs.append(graph) or graph)(*args)
    return graphs[0].graph


def fills(p, x):
    p.untyped_storage().resize_(8)
    with torch.no_grad():
        torch.ops.fsdp.copy_(p, x)
    y = p.exp()
    p.untyped_storage().resize_(0)
    return y


def test_the_memory_that_fsdp_fills_is_freed_inside_of_the_graph() -> None:
    called = [node.target for node in graph_of(fills, freed(1.0, 2.0), torch.ones(2)).nodes if node.op[:4] == "call"]
    aten, fsdp = torch.ops.aten, torch.ops.fsdp
    assert called == [RESIZE_STORAGE, fsdp.copy_.default, aten.exp.default, RESIZE_STORAGE]


def test_the_backward_of_what_fsdp_filled_does_not_read_it_again() -> None:
    p, x = torch.nn.Parameter(torch.ones(2)), torch.tensor([1.0, 2.0])
    p.untyped_storage().resize_(0)
    compiled = aotviz.aot_function(fills, lambda graph, _: graph, partition_fn="min_cut_rematerialization_partition")
    y = compiled(p, x)
    y.sum().backward()
    assert torch.equal(p.grad, x.exp())
    assert p.untyped_storage().size() == 0


def test_equal_resizes_are_not_merged() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    for size in (0, 8, 0):
        graph.call_function(RESIZE_STORAGE, (x, size)).meta["val"] = None
    graph.output((x,))
    x.meta["val"] = torch.ones(2)
    assert share(graph) == 0


def test_a_size_that_the_function_reads_is_checked_at_each_call() -> None:
    def gathers(p, x):
        if p.untyped_storage().size() == 0:
            p.untyped_storage().resize_(8)
            p.copy_(x)
        assert p.untyped_storage().nbytes() == len(p.untyped_storage()) == 8
        return p * 2

    compiled, x = aotviz.aot_function(gathers, lambda graph, _: graph), torch.tensor([3.0, 4.0])
    assert torch.equal(compiled(freed(1.0, 2.0), x), x * 2)
    with pytest.raises(CallDiffers, match="the storage of 'p' had 0 bytes when this was compiled"):
        compiled(torch.ones(2), x)


CAPTURED = torch.ones(2)


def frees_a_part(t):
    t.a.untyped_storage().resize_(0)
    return t * 2


def frees_a_global(x):
    CAPTURED.untyped_storage().resize_(0)
    return x * 2


def sets_and_frees(x, y):
    x.set_(y * 2)
    x.untyped_storage().resize_(0)
    return y + 1


def fills_and_writes(p, x):
    y = fills(p, x)
    p.untyped_storage().resize_(8)
    p.copy_(x)
    return y


@pytest.mark.parametrize(
    ("fn", "make"),
    [
        (frees_a_part, lambda: (TwoTensor(torch.ones(2), torch.ones(2)),)),
        (frees_a_global, lambda: (torch.ones(2),)),
        (sets_and_frees, lambda: (torch.ones(2), torch.ones(2))),
        (fills_and_writes, lambda: (torch.ones(2), torch.ones(2))),
    ],
)
def test_what_the_wrapper_cannot_resize_is_refused_by_name(fn, make) -> None:
    with pytest.raises(Refused, match="resizes the storage of"):
        aotviz.aot_function(fn, lambda graph, _: graph)(*make())
    assert CAPTURED.untyped_storage().size() == 8
