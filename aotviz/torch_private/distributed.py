"""Process groups, meshes of devices, and placements of tensors on these, as facts that another process finds again."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
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


_SPECS = "torch.distributed.tensor._dtensor_spec"  # imported by such programs too


def spec_fields(value: Any) -> tuple[Any, ...] | None:
    """What a spec of a DTensor consists of, for `spec_of`; None for anything else.

    Until torch 2.12 the context of a DTensor is its spec, which has the mesh. Later the mesh is a part of the DTensor.
    """
    kind = type(value)
    if kind.__module__ != _SPECS or kind.__qualname__ != "DTensorSpec":
        return None
    return tuple(getattr(value, field.name) for field in dataclasses.fields(value))


def spec_of(*held: Any) -> Any:
    """Raises KeyError, TypeError or ValueError: this process has no such spec."""
    return vars(sys.modules[_SPECS])["DTensorSpec"](*held)


def sizes_found_untraced() -> contextlib.AbstractContextManager[None]:
    """A context in which a trace has no nodes by which torch finds the size of a DTensor's result.

    Torch runs the operator on fake tensors of the whole size. Older releases let the trace record that, and do it only
    where they have not met the operator with such sizes: two traces of one function would differ.
    """
    module = sys.modules.get("torch.distributed.tensor._sharding_prop")
    if versions.has("sizes of DTensors are found outside of a trace") or module is None:
        return contextlib.nullcontext()
    kind = module.ShardingPropagator
    found: Any = getattr(kind, "_propagate_tensor_meta_non_cached", None)

    def untraced(self: Any, schema: Any) -> Any:
        with disable_proxy_modes_tracing():
            return found(self, schema)

    return swapped(kind, _propagate_tensor_meta_non_cached=untraced)


def state() -> str:
    """Each process group of this process; "one process" without torch.distributed."""
    if not GROUPS or not torch.distributed.is_initialized():
        return "one process"
    groups = torch.distributed.distributed_c10d._world.pg_map
    return ", ".join(sorted(map(of_group, groups)))
