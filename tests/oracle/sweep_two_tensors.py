"""Every module of torch's module database, its parameters made of two tensors each.

    python -m tests.oracle.sweep_two_tensors
    python -m tests.oracle.sweep_two_tensors --only nn.Linear
    python -m tests.oracle.sweep_two_tensors --out two.jsonl        # an existing file is gone on with

Each case that eager can run on such parameters is compiled and compared: the output, and the gradients of inputs and
parameters. Prints every difference and every error, and a count of each; ends with 1 if anything differs.
"""

from __future__ import annotations

import argparse
import copy
import logging
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.two_tensor import TwoTensor

import aotviz

from .progress import Log, finished, run_children

FINE = ("equal", "eager can't")


def of_two(module: torch.nn.Module) -> torch.nn.Module:
    """The module, its parameters replaced by tensors of two."""
    for owner in module.modules():
        for name, parameter in list(owner._parameters.items()):
            if parameter is not None and not isinstance(parameter, TwoTensor):
                value = parameter.detach()
                two = TwoTensor(value, value.clone())
                owner._parameters[name] = torch.nn.Parameter(two, requires_grad=parameter.requires_grad)
    return module


def results(call: Callable[..., Any], module: torch.nn.Module, inputs: Any) -> list[Any]:
    """Output, then the gradients of the inputs and of the parameters, as plain tensors."""
    torch.manual_seed(0)
    output = call(*inputs.args, **inputs.kwargs)
    found = [t for t in pytree.tree_leaves(output) if isinstance(t, torch.Tensor)]
    differentiable = [t for t in found if t.requires_grad]
    if differentiable:
        sum(t.abs().sum() for t in differentiable).backward()
    given = [t for t in pytree.tree_leaves((inputs.args, inputs.kwargs)) if isinstance(t, torch.Tensor)]
    gradients = [t.grad for t in (*given, *module.parameters())]
    return [part for value in (*found, *gradients) for part in plain(value)]


def plain(value: Any) -> list[Any]:
    if not isinstance(value, TwoTensor):
        return [None if value is None else value.detach()]
    return [part.detach() for part in (value.a, value.b)]


def cases(only: str) -> Any:
    for info in module_db:
        if only not in info.name or torch.float32 not in info.dtypes:
            continue
        for training in (True, False):
            drawn = info.module_inputs_func(
                info, device="cpu", dtype=torch.float32, requires_grad=True, training=training
            )
            for number, one in enumerate(drawn):
                yield f"{info.name} {number} {'train' if training else 'eval'}", info, one, training


def judge(info: Any, one: Any, training: bool) -> str:
    """ "equal", "eager can't", or what is wrong."""

    def made() -> torch.nn.Module:
        torch.manual_seed(1)
        module = info.module_cls(*one.constructor_input.args, **one.constructor_input.kwargs)
        return of_two(module.train(training))

    try:
        module, inputs = made(), copy.deepcopy(one.forward_input)
        expected = results(module, module, inputs)
    except Exception:
        return "eager can't"
    try:
        module, inputs = made(), copy.deepcopy(one.forward_input)
        mine = results(aotviz.compile(module, backend="eager", record=False), module, inputs)
    except Exception as error:
        return f"raised {type(error).__name__}: {str(error).splitlines()[0][:200]}"
    try:
        torch.testing.assert_close(mine, expected, equal_nan=True)
    except AssertionError as error:
        return f"wrong: {str(error).splitlines()[0][:200]}"
    return "equal"


def walk(only: str, out: Path, retry: bool) -> None:
    done = finished(out)
    log = Log(out)
    for name, info, one, training in cases(only):
        known = done.get(name)
        if known is None or (retry and known.get("verdict") not in FINE):
            log.judge(name, lambda info=info, one=one, training=training: {"verdict": judge(info, one, training)})


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.oracle.sweep_two_tensors", description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path, help="progress file (JSON lines); an existing one is gone on with")
    parser.add_argument("--retry", action="store_true", help="judge again what was neither equal nor beyond eager")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    out = options.out or Path(tempfile.mkdtemp()) / "two.jsonl"
    if options.child:
        logging.disable(logging.CRITICAL)
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        walk(options.only, out, options.retry)
        return 0
    given = list(sys.argv[1:] if arguments is None else arguments)
    code = run_children("tests.oracle.sweep_two_tensors", [*given, "--out", str(out)])
    verdicts = {key: row.get("verdict", "crashed") for key, row in finished(out).items()}
    for key, verdict in verdicts.items():
        if verdict not in FINE:
            print(key, verdict)
    tally = Counter(verdict if verdict in FINE else verdict.split()[0].rstrip(":") for verdict in verdicts.values())
    print(dict(tally))
    return code or int(any(kind not in FINE for kind in tally))


if __name__ == "__main__":
    raise SystemExit(main())
