"""The examples of a page of docs/: its fenced blocks, which of them print what the page says, and how one is executed.

tests/test_docs.py executes the blocks that print; the site (docs/site/page_runs.py) executes these and all others that
can run, and shows what they record. Both read a page and execute a block by the functions here.
"""

from __future__ import annotations

import itertools
import re
from typing import Any

FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
FILE = "example.py"  # the file in which tracebacks and recordings place a block


def blocks(page: str) -> list[tuple[str, str]]:
    """(language, code) of each fenced block, in the order of the page.

    >>> blocks("Text\\n```python\\nprint(1)\\n```\\n```text\\n1\\n```\\n")
    [('python', 'print(1)\\n'), ('text', '1\\n')]
    """
    return FENCED.findall(page)


def printing(page: str) -> dict[int, str]:
    """The numbers of the Python blocks that print, and what each prints: the ```text block that follows it.

    >>> printing("```python\\nprint(1)\\n```\\n```text\\n1\\n```\\n")
    {0: '1\\n'}
    """
    pairs = enumerate(itertools.pairwise(blocks(page)))
    return {at: then for at, ((one, _), (other, then)) in pairs if (one, other) == ("python", "text")}


def run(code: str, namespace: dict[str, Any]) -> None:
    """Execute a block as the script that a reader makes of it. Raises what it raises."""
    exec(compile(code, FILE, "exec", dont_inherit=True), namespace)


def fresh() -> dict[str, Any]:
    """The names that a script begins with."""
    return {"__name__": "__main__"}
