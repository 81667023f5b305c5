"""Process groups, meshes of devices, and placements of tensors on these, as facts that another process finds again."""

from __future__ import annotations

import sys
from typing import Any

import torch.distributed

from aotviz.torch_private.dispatch import without_modes

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


def placement(value: Any) -> list[Any] | None:
    """The name of a placement and its fields, for `placement_named`; None for anything else."""
    kind = type(value)
    if kind.__module__ != _PLACEMENTS or kind.__qualname__ not in _FIELDS:
        return None
    return [kind.__qualname__, *(getattr(value, name) for name in _FIELDS[kind.__qualname__])]


def placement_named(name: str, *held: Any) -> Any:
    """Raises KeyError or TypeError: this process has no such placement."""
    kind = vars(sys.modules[_PLACEMENTS])[name]
    return kind(**dict(zip(_FIELDS[name], held, strict=True)))


def state() -> str:
    """Each process group of this process; "one process" without torch.distributed."""
    if not GROUPS or not torch.distributed.is_initialized():
        return "one process"
    groups = torch.distributed.distributed_c10d._world.pg_map
    return ", ".join(sorted(map(of_group, groups)))
