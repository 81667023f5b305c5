"""What a compilation would save for its backward with another partitioner or memory budget.

The program that runs does not change. Its joint graph goes through the stages from partition to lower again, with a
separate recorder; nothing is lowered. This needs the live program, because a recording from a file has graphs only as
text.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from aotviz import pipeline
from aotviz.ir import partition_functions
from aotviz.ir.forms import FlatCall, JointGraph
from aotviz.ir.refusals import Refused
from aotviz.pipeline import Observer, Role
from aotviz.recording import progress
from aotviz.recording.schema import CompilationData
from aotviz.recording.store import Store
from aotviz.runtime.lowered import LoweredSplit, Program
from aotviz.torch_private import partitioners
from aotviz.tracing.second_order import StoredTrace


def live_program(program: Program, recorder: Any) -> CutsAgain | None:
    """None if the program has no joint graph. It does not keep the program alive."""
    return CutsAgain(weakref.ref(program), recorder) if isinstance(program.lowered, LoweredSplit) else None


@dataclass(frozen=True)
class CutsAgain:
    """The program of a compilation, as long as it exists. `recorder` writes into a store."""

    program: weakref.ref[Program]
    recorder: Any

    def reads_budget(self, partition_fn: str | Callable[..., Any] | None) -> bool:
        program = self.program()
        if partition_fn is None:
            return program is None or program.call.options.partition_fn is not partitioners.default_partition
        return partition_functions.named(partition_fn) is partitioners.min_cut_rematerialization_partition

    def cut(
        self,
        partition_fn: str | Callable[..., Any] | None,
        memory_budget: float | None,
        on_stage: Callable[[str], None] | None = None,
    ) -> tuple[CompilationData, list[str]]:
        """Partition the joint graph again."""
        program = self.program()
        if program is None:
            raise LookupError(
                "what_if needs the live compiled function. The function of this recording no longer exists."
            )
        joint, store = _joint(program, partition_fn), Store()
        stages = pipeline.part(pipeline.TRAINING, Role.PARTITION, Role.PARTITION)
        observer = self.recorder(store)
        budget = contextlib.nullcontext() if memory_budget is None else partitioners.memory_budget(memory_budget)
        try:
            with pipeline.lock, budget, progress.aside():
                pipeline.run(stages, joint, pipeline.Observers([_Told(on_stage), observer]) if on_stage else observer)
        finally:
            observer.close()
        ((_, log),) = store.logs()
        return log.read()


class _Told(Observer):
    """Calls `on_stage` with the name of each stage before it runs. An exception from it ends the run."""

    def __init__(self, on_stage: Callable[[str], None]) -> None:
        self._on_stage = on_stage

    def before(self, stage: str, argument: Any) -> None:
        self._on_stage(stage)


def _joint(program: Program, partition_fn: str | Callable[..., Any] | None) -> JointGraph:
    call = program.lowered.call
    if call.wrapping is not None:
        raise Refused("what_if with tensor subclasses", call.name)
    options = call.options
    if partition_fn is not None:
        options = replace(options, partition_fn=partition_functions.named(partition_fn))
    if isinstance(call.forward, StoredTrace) and isinstance(call.source, FlatCall):
        with pipeline.lock, progress.aside():
            call = pipeline.traced_again(call.source, Role.JOINT_PASS)
    return call.then(JointGraph, options=options)
