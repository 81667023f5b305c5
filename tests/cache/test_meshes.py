"""Programs over meshes of devices: what their keys say of the mesh, and which mesh a program from the cache gets."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard
from torch.testing._internal.distributed.fake_pg import FakeStore

import aotviz
from aotviz.cache.content import Uncacheable
from aotviz.cache.meshes import Meshes
from aotviz.cache.values import Broken, Reader, Writer
from aotviz.runtime.codegen import Source
from aotviz.torch_private import distributed


@pytest.fixture(scope="module", autouse=True)
def four_ranks() -> Iterator[None]:
    """This process is the first of four. The others do not exist: what they would send is made up."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    yield
    torch._dynamo.reset()
    square.cache_clear()
    dist.destroy_process_group()


def line(ranks: Sequence[int] = (0, 1, 2, 3), names: tuple[str, ...] = ("ranks",)) -> DeviceMesh:
    return DeviceMesh("cpu", list(ranks), mesh_dim_names=names)


@functools.cache  # each makes new groups, with other names
def square() -> DeviceMesh:
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))


def of_inputs(mesh: DeviceMesh) -> Callable[..., Any]:
    """The mesh is that of the arguments."""

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        whole, every = ([kind] + [Replicate()] * (mesh.ndim - 1) for kind in (Shard(0), Replicate()))
        rows = DTensor.from_local(x, mesh, whole, run_check=False)
        return product(rows, DTensor.from_local(w, mesh, every, run_check=False)).to_local()

    product = compiled(lambda rows, w: (rows @ w).sin())
    return f


def of_a_closure(mesh: DeviceMesh) -> Callable[..., Any]:
    """Dynamo makes the mesh an input."""
    return compiled(lambda x, w: DTensor.from_local(x, mesh, [Shard(0)], run_check=False).sin().to_local() @ w)


def of_a_part(mesh: DeviceMesh) -> Callable[..., Any]:
    """The result is over a part of the mesh."""
    made = compiled(lambda x, w: DTensor.from_local((x @ w).sin(), mesh["tp"], [Partial()], run_check=False))
    return lambda x, w: made(x, w).to_local()


compiled: Callable[[Any], Any] = torch.compile
PROGRAMS = {"inputs": (of_inputs, line), "a closure": (of_a_closure, line), "a part": (of_a_part, square)}


def trained(
    make: Callable[[DeviceMesh], Any], mesh: DeviceMesh, compiles: Callable[[Any], Any], monkeypatch: Any
) -> Any:
    monkeypatch.setattr(f"{__name__}.compiled", compiles)
    torch.manual_seed(0)
    x, w = (torch.randn(4, 4, requires_grad=True) for _ in range(2))
    result = make(mesh)(x, w)
    result.square().sum().backward()
    return [result, x.grad, w.grad]


def run(make: Callable[[DeviceMesh], Any], mesh: DeviceMesh, folder: Path, monkeypatch: Any) -> tuple[Any, Any]:
    """The results of one process, and its recording."""
    torch._dynamo.reset()
    with aotviz.record() as recording:
        found = trained(make, mesh, lambda f: aotviz.compile(f, backend="eager", cache=str(folder)), monkeypatch)
    return found, recording


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gets_the_mesh_of_the_process_that_finds_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, mesh = PROGRAMS[name]
    eager = trained(make, mesh(), lambda f: f, monkeypatch)
    wrappers = []
    for expected in ("miss", "hit"):
        found, recording = run(make, mesh(), tmp_path, monkeypatch)
        assert list(recording.cache_lookups["outcome"]) == [expected], list(recording.cache_lookups["reason"])
        torch.testing.assert_close(found, eager)
        wrappers.append([one.wrapper.source for one in recording.compilations])
    assert wrappers[0] == wrappers[1] != []


OTHERS = {
    "other names": (lambda: line(names=("rows",)), "('rows',)"),
    "another order": (lambda: line((0, 2, 1, 3)), "[0, 2, 1, 3]"),
    "another shape": (square, "[[0, 1], [2, 3]]"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_mesh_is_a_miss_that_names_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, words = OTHERS[name]
    run(of_inputs, line(), tmp_path, monkeypatch)
    _, recording = run(of_inputs, make(), tmp_path, monkeypatch)
    (row,) = recording.cache_lookups.to_dict("records")
    assert row["outcome"] == "miss"
    (before, now), *_ = [(before, now) for name, before, now in row["differs"] if name == "inputs"]
    assert words in now
    assert words not in before
    assert words in " ".join(str(recording.explain()).split())


def test_a_key_has_the_backends_of_the_groups_of_a_mesh() -> None:
    assert distributed.of_mesh(line()).endswith("here at (0,), 0 of 4 over fake")


def test_a_mesh_is_found_by_its_description() -> None:
    mesh = square()
    packed = [Meshes([line(), mesh]).packed(one) for one in (mesh, mesh["tp"])]
    assert Meshes([line(), mesh]).found(*packed[0]) is mesh
    assert Meshes([mesh["dp"]]).found(*packed[1]) == mesh["tp"]
    with pytest.raises(LookupError):
        Meshes([line()]).found(*packed[0])


def test_equal_meshes_have_one_name_in_a_wrapper() -> None:
    source = Source()
    names = [source.bind("mesh", mesh) for mesh in (square(), square(), line())]
    assert names[0] == names[1] != names[2]


def test_a_mesh_that_no_input_has_is_not_stored() -> None:
    for known in ([], [line()]):
        with pytest.raises(Uncacheable, match="an object of class DeviceMesh that no input has cannot be stored"):
            Meshes(known).packed(square())


PLACEMENTS = [Shard(1), Replicate(), Partial("max"), _StridedShard(0, split_factor=2)]


def values(mesh: DeviceMesh) -> list[Any]:
    """What an entry has of a DTensor and of a size that depends on data."""
    found = DTensor.from_local(torch.ones(2, 2), mesh, [Shard(0)], run_check=False)._spec.tensor_meta
    path = torch.utils._pytree.SequenceKey(1), torch.fx.experimental.symbolic_shapes.CallMethodKey("size")
    return [mesh, found, path, *PLACEMENTS]


def test_values_are_read_as_they_were_written() -> None:
    mesh = line()
    found = values(mesh)
    data = Writer({}, 0, Meshes([mesh])).pack(found)
    assert reader(mesh).read(data) == found


def reader(mesh: DeviceMesh) -> Reader:
    return Reader([[], [], []], [], [], torch._subclasses.FakeTensorMode(), Meshes([mesh]))


def test_damaged_values_are_told_as_such() -> None:
    """A number or name in the data is exchanged for something else, one at a time."""
    mesh = line()
    broken = 0
    for data in Writer({}, 0, Meshes([mesh])).pack(values(mesh))[1:]:
        for damaged in _damaged(data):
            try:
                reader(mesh).read(damaged)
            except Broken:
                broken += 1
    assert broken > 60


def _damaged(data: Any) -> Iterator[Any]:
    if not isinstance(data, list):
        yield from (other for other in (None, -1, 2**70, "another", ["unknown"], b"\0") if other != data)
        return
    yield data[:-1] if len(data) > 1 else [*data, 0]
    for i, one in enumerate(data):
        yield from ([*data[:i], other, *data[i + 1 :]] for other in _damaged(one))
