"""What Dynamo is at while it calls a backend or says something in its trace."""

from __future__ import annotations

from aotviz.live import failed_guards
from aotviz.torch_private import dynamo
from aotviz.torch_private.dynamo import compile_call


class Moment:
    """What Dynamo is at while one of its records is made. To be asked in the same call, in the same thread."""

    @property
    def compilation(self) -> object:
        """An object that lives as long as anything may still be compiled of the compilation; None outside any."""
        return dynamo.compilation()

    def code(self) -> int | None:
        """The function that is compiled: a number that is the same for equal code."""
        found = compile_call()
        return hash(found["code"]) if found is not None and "code" in found else None

    def failed_guards(self) -> list[failed_guards.Program]:
        """Why each program that Dynamo has of the function does not do for this call, the newest first."""
        found = compile_call() or {}
        entries, frame = found.get("cache_entries"), found.get("frame")
        return failed_guards.of(entries, frame.f_locals) if entries and frame is not None else []
