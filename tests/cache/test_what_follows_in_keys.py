"""A graph that is compiled again for arguments that share memory has a key with what follows the graph.

The two functions have one graph. Behind it, one of them writes through `.data` what the gradient needs in such a call,
so the program of the other would give it a wrong gradient.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

from tests.processes import run_script

SCRIPT = """
import os, sys, warnings
os.environ["AOTVIZ_CACHE_DIR"] = os.path.abspath("cache")
import torch, aotviz, aotviz.frontends.backend

warnings.simplefilter("ignore")

def plain(x, y, w):
    y.mul_(2.0)
    product = x * w
    torch._dynamo.graph_break()
    return product.sin()

def with_data(x, y, w):
    y.mul_(2.0)
    product = x * w
    torch._dynamo.graph_break()
    y.data.mul_(3)
    return product.sin()

def run(fn, aliases):
    whole, w = torch.linspace(1, 2, 4), torch.full((4,), 1.5, requires_grad=True)
    result = fn(whole[:], whole[:] if aliases else whole * 2, w)
    result.sum().backward()
    return whole.tolist(), result.tolist(), w.grad.tolist()

function = globals()[sys.argv[1]]
compiled = torch.compile(function, backend="aotviz_eager")
assert run(compiled, False) == run(function, False)
with aotviz.record() as recording:
    assert run(compiled, True) == run(function, True)
print(*(row.outcome for row in recording.cache_lookups.itertuples()))
"""


def test_a_program_for_aliases_is_not_taken_from_a_function_that_goes_on_otherwise(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(textwrap.dedent(SCRIPT))
    outcomes = []
    for name in ("plain", "with_data", "plain"):
        done = run_script(tmp_path / "job.py", name, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        outcomes.append(done.stdout.split())
    assert outcomes == [["miss"], ["miss"], ["hit"]]
