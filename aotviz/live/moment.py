"""The state of Dynamo while it calls a backend or writes to its trace."""

from __future__ import annotations

from aotviz.live import failed_guards
from aotviz.torch_private import dynamo
from aotviz.torch_private.dynamo import compile_call


class Moment:
    """The state of Dynamo while it writes a record. It is valid only in the same call and thread."""

    @property
    def compilation(self) -> object:
        """An object that lives until no part of the compilation can still be compiled; None outside a compilation."""
        return dynamo.compilation()

    def code(self) -> int | None:
        """The hash of the code object that is compiled, which is the same for equal code; None if it is unknown."""
        found = compile_call()
        return hash(found["code"]) if found is not None and "code" in found else None

    def failed_guards(self) -> list[failed_guards.Program]:
        """For each of Dynamo's programs for this function, the guards that fail for this call, newest program first."""
        found = compile_call() or {}
        entries, frame = found.get("cache_entries"), found.get("frame")
        return failed_guards.of(entries, frame.f_locals) if entries and frame is not None else []
