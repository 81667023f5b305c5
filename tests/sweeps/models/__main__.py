"""`make sweep-models`: train every model of the catalogue, and write what came out.

python -m tests.sweeps.models                         # every model; goes on where it stopped
python -m tests.sweeps.models --only gpt2             # those with this in their names, whatever was done before
python -m tests.sweeps.models --report                # write the results from what is there, and run nothing
"""

from __future__ import annotations

import argparse
import importlib.metadata
import logging
import platform
import time
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tests.oracle.progress import Log, Row, Rows, finished, run_side_by_side, shared
from tests.sweeps import page

from .catalogue import MODELS
from .judging import judged
from .training import BATCHES, CLOSE, RATES

TITLE = "Models of many packages"
ABOUT = f"""Three optimizer steps (SGD with momentum and gradient clipping) of small models with random weights.
The batch sizes are {BATCHES[0]}, {BATCHES[1]} and {BATCHES[2]}, and the learning rates are {RATES[0]}, {RATES[1]}
and {RATES[2]}. The model is compiled by `aotviz.compile` with its defaults (*aotviz*) and by `torch.compile`
(*torch*). Either both run the graphs as they are (`backend="eager"` and `"aot_eager"`), or both use Inductor. The loss
of each step, and every parameter and buffer after it, are compared with eager. *equal* means equal to the last bit, and
*close* means a difference below {CLOSE:g} of the tensor's largest number. Each recording is saved, loaded, explained
and exported to HTML. *graphs* and *breaks* are the counts that Dynamo reports with aotviz. *refused* is the number of
graphs that aotviz refused, which then ran in eager."""

ON_INDUCTOR = " on Inductor"
HOW = ("as they are", "by Inductor")
ORDER = ("raised", "wrong", "close", "equal")  # from the worst
LIMIT_S = 1800  # a case that takes longer is ended; with the processor shared by ten, some take over ten minutes


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.sweeps.models", description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="the models that have this in their names")
    parser.add_argument("--device", default="cpu", help="where to train (cpu)")
    parser.add_argument("--how", choices=HOW, help="one of the two alone (both)")
    parser.add_argument("--log", type=Path, default=Path(".sweeps/models.jsonl"), help="where progress is kept")
    parser.add_argument("--out", type=Path, help="write the results there, as JSON, and leave docs/parity.md as it is")
    parser.add_argument("--report", action="store_true", help="run nothing")
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="how many share the models (1)")
    parser.add_argument("--share", default="0/1", help=argparse.SUPPRESS)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.log.parent.mkdir(parents=True, exist_ok=True)
    if options.child:
        logging.disable(logging.CRITICAL)
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        walk(options)
        return 0
    if not options.report:
        given = ["--only", options.only, "--device", options.device, "--log", str(options.log)]
        given += ["--how", options.how] if options.how else []
        run_side_by_side("tests.sweeps.models", given, options.processes)
    wanted = cases(options.device, options.how)
    rows = {key: row for key, row in finished(options.log).items() if key in wanted}
    if options.out:
        options.out.write_text(page.as_text(found(rows, wanted)))
    else:
        page.save("models", found(rows, wanted))
    behind = [row for row in rows.values() if is_behind(row)]
    for row in behind:
        print(f"{row['key']}: {row.get('ours', {}).get('why') or row.get('recording', {}).get('error') or 'crashed'}")
    print(f"{len(rows)} of {len(wanted)} cases run, {len(behind)} of them behind torch")
    return bool(behind) or len(rows) < len(wanted)


def cases(device: str = "cpu", how: str | None = None) -> list[str]:
    """A key for each model, and one for each that goes through Inductor too: on a GPU, where it takes seconds, all."""
    by_inductor = [name + ON_INDUCTOR for name, model in MODELS.items() if model.by_inductor or device != "cpu"]
    return {None: [*MODELS, *by_inductor], "as they are": list(MODELS), "by Inductor": by_inductor}[how]


def walk(options: argparse.Namespace) -> None:
    done = {} if options.only else finished(options.log)
    lines = Log(options.log)
    for key in shared(cases(options.device, options.how), options.share):
        if options.only in key and key not in done:
            name = key.removesuffix(ON_INDUCTOR)
            lines.judge(key, partial(_timed, name, name != key, options.device), LIMIT_S)


def _timed(*case: Any) -> Row:
    start = time.perf_counter()
    return {**judged(*case), "seconds": round(time.perf_counter() - start, 1)}


def is_behind(row: Row) -> bool:
    """Whether torch is right where ours is not, or the recording is of no use."""
    if row.get("crashed"):
        return True
    if "ours" not in row:
        return False
    worse = ORDER.index(row["ours"]["status"]) < ORDER.index(row["torch"]["status"])
    if row["key"].endswith(ON_INDUCTOR):  # sums in another order: a bit more or less says nothing
        worse = worse and row["ours"]["status"] != "close"
    return worse or "error" in row["recording"]


def found(rows: Rows, wanted: Sequence[str]) -> page.Found:
    missing = [key for key in wanted if key not in rows]
    there = [rows[key] for key in wanted if key in rows]
    by_inductor = [row for row in there if row["key"].endswith(ON_INDUCTOR)]
    as_they_are = [row for row in there if row not in by_inductor]
    tables = [_table("Graphs run as they are", as_they_are), _table("Inductor", by_inductor)]
    about = ABOUT if not missing else f"{ABOUT}\n\n**Not run to its end. Missing: {', '.join(missing)}.**"
    return {"title": TITLE, "about": about, "made_by": "make sweep-models", "tables": tables}


def _table(title: str, chosen: Sequence[Row]) -> dict[str, Any]:
    columns = ["model", "version", "graphs", "breaks", "refused", "aotviz", "torch", "recording, kB"]
    counts = {who: [row.get(who, {}).get("status") for row in chosen] for who in ("ours", "torch")}
    equal = [", ".join(f"{who.count(how)} {how}" for how in reversed(ORDER) if how in who) for who in counts.values()]
    packages = len({MODELS[row["key"].removesuffix(ON_INDUCTOR)].package for row in chosen})
    total = [f"**{len(chosen)} models of {packages} packages**", "", "", "", "", *(f"**{text}**" for text in equal), ""]
    lines = [_line(row) for row in chosen]
    title = f"{title} (torch {torch.__version__}, Python {platform.python_version()})"
    return {"title": title, "columns": columns, "rows": [total, *lines]}


def _line(row: Row) -> list[Any]:
    name = row["key"].removesuffix(ON_INDUCTOR)
    if "ours" not in row:
        ended = f"ended after {row['limit_s']} s" if "limit_s" in row else "the process ended"
        return [name, "", "", "", "", row.get("skipped", ended), "", ""]
    version = importlib.metadata.version(MODELS[name].package)
    told = [": ".join(filter(None, row[who].values())) for who in ("ours", "torch")]
    kept = row["recording"]
    counts = [row["graphs"], row["breaks"], len(kept["refused"])]
    return [name, version, *counts, *told, kept.get("error") or round(kept["bytes"] / 1000)]


if __name__ == "__main__":
    raise SystemExit(main())
