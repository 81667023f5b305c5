"""The programs of all areas, in the order of the page docs/cures.md."""

from __future__ import annotations

from collections.abc import Iterator

from tests.cures import (
    backwards,
    breaks,
    breaks_at_values,
    breaks_in_classes,
    breaks_of_lines,
    compile_times,
    cuda_graphs,
    export_examples,
    exports,
    keys,
    late_changes,
    modules,
    needed_numbers,
    nothing_compiled,
    once,
    raised,
    ranks,
    recompiles,
    results,
    sizes,
    torch_caches,
    values,
)
from tests.cures.programs import PROGRAMS, Program

AREAS = {
    "Recompiles: sizes": sizes,
    "Recompiles: tensors and torch's settings": recompiles,
    "Recompiles: numbers, objects and containers": values,
    "Recompiles: numbers that a line needs": needed_numbers,
    "Recompiles: those that happen once": once,
    "Recompiles: what a module holds": modules,
    "Recompiles: changes after the first call, and what is not compiled": late_changes,
    "Graph breaks and restarts": breaks,
    "Graph breaks at a program's own classes": breaks_in_classes,
    "Graph breaks that are told by their line": breaks_of_lines,
    "Graph breaks at values, objects and hooks": breaks_at_values,
    "Functions of which nothing is compiled": nothing_compiled,
    "Exports and sizes that became constants": exports,
    "Exports: their examples and dynamic_shapes": export_examples,
    "Errors of what was compiled": raised,
    "CUDA graphs": cuda_graphs,
    "Results that are not eager's": results,
    "Time of compiling": compile_times,
    "Whole backwards": backwards,
    "Ranks of a job": ranks,
    "torch's caches": torch_caches,
    "aotviz's cache": keys,
}


def programs() -> Iterator[tuple[str, list[Program]]]:
    for title, area in AREAS.items():
        yield title, [one for one in PROGRAMS if one.calls.__module__ == area.__name__]
