"""Run a job in processes of its own with TORCH_TRACE, and count in the log what its cure should make fewer.

The counts are made from the lines of the log, without aotviz, so that they can be held against what it says.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import json
import os
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from tests import processes

HERE = Path(__file__).parent
DEFINED = (ast.FunctionDef, ast.ClassDef)


@dataclasses.dataclass(frozen=True)
class Job:
    family: str
    name: str
    noted: dict[str, Any]  # the entry of expected.toml

    @property
    def function(self) -> Any:
        return getattr(importlib.import_module(f"tests.jobs.{self.family}"), self.name)

    @property
    def ranks(self) -> int:
        return 2 if self.family == "ranks" else 1

    @property
    def healthy(self) -> bool:
        return self.noted.get("healthy", False)

    def marked(self) -> list[str]:
        """The places that a reader should be sent to, as "recompiles.py:22"; a mark on a `def` is for the whole of it.

        A job's marks are in its function, or in the class or the function of this file that it names.
        """
        path = HERE / f"{self.family}.py"
        lines, tree = path.read_text().splitlines(), ast.parse(path.read_text())
        top = {node.name: node for node in tree.body if isinstance(node, DEFINED)}
        job = top[self.name]
        named = {node.id for node in ast.walk(job) if isinstance(node, ast.Name)}
        found = set()
        for definition in (job, *(node for name, node in top.items() if name in named)):
            for node in ast.walk(definition):
                here = range(getattr(node, "lineno", 0), getattr(node, "lineno", -1) + 1)
                if any(lines[number - 1].endswith("# here") for number in here):
                    first = min(one.lineno for one in (node, *getattr(node, "decorator_list", [])))
                    last = node.end_lineno if isinstance(node, DEFINED) else node.lineno
                    found.update(range(first, last + 1))
        return [f"{path.name}:{number}" for number in sorted(found)]


def jobs() -> dict[str, Job]:
    """All jobs by name, in the order of expected.toml."""
    noted = tomllib.loads((HERE / "expected.toml").read_text())
    return {name: Job(family, name, one) for family, all_of in noted.items() for name, one in all_of.items()}


def run(job: Job, cured: bool, folder: Path) -> Counter[str]:
    """Write the job's log to `folder`/log, and count what is in it."""
    log = folder / "log"
    log.mkdir(parents=True)
    for rank in range(job.ranks):
        processes.wait(processes.start(_child, job.family, job.name, cured, folder, rank, job.ranks))
    if damage := getattr(importlib.import_module(f"tests.jobs.{job.family}"), f"damage_{job.name}", None):
        for path in log.glob("*.log"):
            path.write_text("".join(damage(path.read_text().splitlines(keepends=True))))
    return counted(folder)


def counted(folder: Path) -> Counter[str]:
    """How often the job compiled, broke a graph, missed or bypassed a cache, failed and raised."""
    count: Counter[str] = Counter()
    graphs = 0
    for path in sorted((folder / "log").glob("*.log")):
        compiled = set()
        for line in path.read_text().splitlines():
            if line.startswith("\t") or "] {" not in line:
                continue
            try:
                record = json.loads(line[line.index("] {") + 2 :])
            except ValueError:
                continue
            name = record.get("artifact", {}).get("name", "")
            if "dynamo_start" in record:
                compiled.add(
                    (record.get("frame_id"), record.get("frame_compile_id"), record.get("compiled_autograd_id"))
                )
            graphs += "dynamo_output_graph" in record
            count["breaks"] += name == "dynamo_graph_break_reason"
            count["misses"] += name.startswith("fx_graph_cache_miss")
            count["bypasses"] += "cache_bypass" in name
            count["failed"] += bool(record.get("compilation_metrics", {}).get("fail_type"))
        count["compilations"] += len(compiled)
    count["no_graph"] = not graphs
    count["raised"] = len(list(folder.glob("raised-*")))
    return count


def _child(family: str, name: str, cured: bool, folder: Path, rank: int, ranks: int) -> None:
    import torch

    traced = "TORCH_DTRACE" if "export" in name else "TORCH_TRACE"  # exports are logged by the first alone
    os.environ.update({traced: str(folder / "log"), "TORCHINDUCTOR_CACHE_DIR": str(folder / f"cache-{rank}")})
    os.environ.update(TORCHINDUCTOR_COMPILE_THREADS="1", RANK=str(rank), WORLD_SIZE=str(ranks))
    torch._logging._internal.LOG_TRACE_HANDLER = None  # that of the process which this one was forked from
    torch._logging._internal._init_logs()
    os.dup2(os.open(folder / f"printed-{rank}", os.O_WRONLY | os.O_CREAT), 1)
    os.dup2(1, 2)
    torch.manual_seed(0)
    if ranks > 1:
        import torch.testing._internal.distributed.fake_pg  # registers the process group that runs no collective

        torch.distributed.init_process_group("fake", rank=rank, world_size=ranks)
    try:
        getattr(importlib.import_module(f"tests.jobs.{family}"), name)(cured)
    except Exception as error:
        (folder / f"raised-{rank}").write_text(f"{type(error).__name__}: {error}")
