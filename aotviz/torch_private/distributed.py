"""Process groups, as facts that are the same in every rank."""

from __future__ import annotations

from typing import Any

import torch.distributed

GROUPS: tuple[type, ...] = (torch.distributed.ProcessGroup,) if torch.distributed.is_available() else ()


def of_group(group: Any) -> str:
    """The name, size and backend of a process group."""
    return f"{group.group_name} of {group.size()} over {torch.distributed.get_backend(group)}"


def is_mesh(value: Any) -> bool:
    """Whether a value is a mesh of devices."""
    return bool(GROUPS) and type(value).__module__ == "torch.distributed.device_mesh"


def of_mesh(mesh: Any) -> str:
    """The devices of a mesh, and the place of this process in it: uneven shards have other sizes in other places."""
    place = mesh.get_coordinate()
    return f"{mesh.device_type} {mesh.mesh.tolist()} {mesh.mesh_dim_names}, here at {place}"


def state() -> str:
    """Each process group of this process; "one process" without torch.distributed."""
    if not GROUPS or not torch.distributed.is_initialized():
        return "one process"
    groups = torch.distributed.distributed_c10d._world.pg_map
    return ", ".join(sorted(map(of_group, groups)))
