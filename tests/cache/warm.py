"""Programs of the oracle with a cache: `python -m tests.cache.warm FOLDER BACKEND SELECTION`.

BACKEND is one of torch.compile's, or "aot_function", which runs its graphs as they are.

Prints a line of JSON for each program: how it compares with eager, what the cache answered, the source of the wrappers,
and the stages that ran. SELECTION is "table", or the seed, first index and number of random programs ("7 0 50"), with
"deep" or "dynamic" after it.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch

import aotviz
from aotviz.lowerings import run_graph
from tests.oracle.compare import Candidate, Expectation, Trial, expect, judge, torch_compile
from tests.oracle.programs import PROGRAMS
from tests.oracle.strategy import from_seed


def chosen(selection: list[str]) -> Iterator[tuple[Trial, Expectation]]:
    if selection[0] == "table":
        # With a graph break there, Dynamo leaves inference mode on, with each backend.
        table = (program for name, program in PROGRAMS.items() if name != "inference_mode_inside")
        yield from ((program, expect(program)) for program in table)
        return
    seed, first, count = map(int, selection[:3])
    for index in range(first, first + count):
        drawn = from_seed(seed, index, "deep" in selection)
        yield replace(drawn.program, dynamic="dynamic" in selection), drawn.expected


def ran(program: Trial, expected: Expectation, folder: str, backend: str) -> dict[str, Any]:
    stages: list[str] = []
    if backend == "aot_function":
        candidate = Candidate(backend, partial(by_aot_function, folder))
    else:
        candidate = torch_compile(
            backend, cache=folder, on_stage=lambda name, ns: stages.append(name) if ns is not None else None
        )
    with aotviz.record() as recording:
        verdict = judge(program, candidate, expected)
    lookups = recording.cache_lookups
    return {
        "name": program.name,
        "verdict": str(verdict),
        "status": verdict.status,
        "outcomes": list(lookups["outcome"]) if len(lookups) else [],
        "reasons": [str(reason) for reason in lookups["reason"]] if len(lookups) else [],
        "wrappers": [one.wrapper.source if one.wrapper else "" for one in recording.compilations],
        "stages": sorted(set(stages)),
    }


def by_aot_function(folder: str, fn: Callable[..., Any], dynamic: bool) -> Callable[..., Any]:
    return aotviz.aot_function(
        fn, run_graph, partition_fn="min_cut_rematerialization_partition", dynamic=dynamic, cache=folder
    )


def main(folder: str, backend: str, *selection: str) -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    for program, expected in chosen(list(selection)):
        print(json.dumps(ran(program, expected, folder, backend)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
