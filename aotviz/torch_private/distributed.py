"""Process groups, meshes of devices, and placements of tensors on these, as facts that another process finds again."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

import torch.distributed
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing

from aotviz.torch_private import versions
from aotviz.torch_private.dispatch import without_modes
from aotviz.torch_private.tracers import swapped

GROUPS: tuple[type, ...] = (torch.distributed.ProcessGroup,) if torch.distributed.is_available() else ()


def of_group(group: Any) -> str:
    """The name, size and backend of a process group."""
    return f"{group.group_name} of {group.size()} over {torch.distributed.get_backend(group)}"


def is_mesh(value: Any) -> bool:
    """Whether a value is a mesh of devices."""
    return bool(GROUPS) and type(value).__module__ == "torch.distributed.device_mesh"


def of_mesh(mesh: Any) -> str:
    """The devices of a mesh, the place of this process in it, and the group of each dimension.

    Uneven shards have other sizes in other places. A graph has the names of groups.
    """
    groups = ", ".join(map(of_group, mesh.get_all_groups())) if getattr(mesh, "_dim_group_names", ()) else "no groups"
    with without_modes():  # `mesh.mesh` calls an operator, which an open trace would record
        ranks, place = mesh.mesh.tolist(), mesh.get_coordinate()
    return f"{mesh.device_type} {ranks} {mesh.mesh_dim_names}, here at {place}, {groups}"


def is_shared(value: Any) -> bool:
    """Whether a value is connected to other processes: a mesh of devices or a process group."""
    return isinstance(value, GROUPS) or is_mesh(value)


def described(value: Any) -> str:
    """A mesh or process group by what another process can find it."""
    return f"mesh {of_mesh(value)}" if is_mesh(value) else f"process group {of_group(value)}"


def part_of_mesh(mesh: Any, names: tuple[str, ...]) -> Any:
    """The part of the whole mesh that has these dimensions; None if there is no such part. `mesh` is another part."""
    root = getattr(mesh, "_get_root_mesh", lambda: mesh)()
    try:
        return root[names]
    except (KeyError, RuntimeError, ValueError):
        return None


_PLACEMENTS = "torch.distributed.tensor.placement_types"  # imported by programs that have such tensors
_FIELDS = {"Replicate": (), "Shard": ("dim",), "_StridedShard": ("dim", "split_factor"), "Partial": ("reduce_op",)}
_SPECS = "torch.distributed.tensor._dtensor_spec"
_SPEC = "DTensorSpec"


def taken_apart(value: Any) -> list[Any] | None:
    """The name of a placement or of a DTensor's spec and its fields, for `put_together`; None for anything else.

    Before torch 2.13 the context of a DTensor is its spec, which has the mesh. Later the mesh is a part of the DTensor.
    """
    kind: type = type(value)
    name = kind.__qualname__
    if kind.__module__ == _SPECS and name == _SPEC:
        return [name, *map(vars(value).get, vars(kind)["__dataclass_fields__"])]
    if kind.__module__ != _PLACEMENTS or name not in _FIELDS:
        return None
    return [name, *(getattr(value, field) for field in _FIELDS[name])]


def put_together(name: str, *held: Any) -> Any:
    """Raises KeyError, TypeError or ValueError: this process has no such placement or spec."""
    kind: type = vars(sys.modules[_SPECS if name == _SPEC else _PLACEMENTS])[name]
    return kind(*held) if name == _SPEC else kind(**dict(zip(_FIELDS[name], held, strict=True)))


def sizes_found_untraced() -> contextlib.AbstractContextManager[None]:
    """A context in which a trace has no nodes by which torch finds the size of a DTensor's result.

    Torch runs the operator on fake tensors of the whole size. Older releases let the trace record that, and do it only
    where they have not met the operator with such sizes: two traces of one function would differ.
    """
    module = sys.modules.get("torch.distributed.tensor._sharding_prop")
    if versions.has("sizes of DTensors are found outside of a trace") or module is None:
        return contextlib.nullcontext()
    kind: type = module.ShardingPropagator
    if not hasattr(kind, "_propagate_tensor_meta_non_cached"):
        return contextlib.nullcontext()
    found: Callable[..., None] = kind._propagate_tensor_meta_non_cached
    return swapped(kind, _propagate_tensor_meta_non_cached=disable_proxy_modes_tracing()(found))


def state() -> str:
    """Each process group of this process; "one process" without torch.distributed."""
    if not GROUPS or not torch.distributed.is_initialized():
        return "one process"
    groups = torch.distributed.distributed_c10d._world.pg_map
    return ", ".join(sorted(map(of_group, groups)))
