"""A notebook as a page of the site: the text, the code, and the outputs that are stored in it. Nothing is run.

MyST reads Markdown, so a notebook becomes Markdown: a cell of text stays as it is, code becomes a block, and an output
becomes its picture, its table (HTML) or its text. Only notebooks of this repository are converted. Their HTML is
trusted as the pages of docs/ are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

ABOUT = """\
```{{note}}
This page is `notebooks/{name}` with its stored outputs. `make lab` opens the notebook, and there the workbenches are
live. {{download}}`Download it <{name}>`.
```
"""
LONGEST_FENCE = re.compile(r"^`{3,}", re.MULTILINE)


def as_markdown(source: str, name: str) -> str:
    """The page of a notebook. `source` is the text of the file.

    >>> cell = {"cell_type": "code", "source": "print(1)", "outputs": [{"output_type": "stream", "text": ["1"]}]}
    >>> print(as_markdown(json.dumps({"cells": [cell]}), "one.ipynb").partition("```\\n\\n")[2].strip())
    ```{code-block} ipython3
    print(1)
    ```
    <BLANKLINE>
    ```{code-block} text
    :class: output
    1
    ```
    """
    title, *cells = ["\n\n".join(_cell(cell)) for cell in json.loads(source)["cells"]]
    if not title.startswith("#"):
        return "\n\n".join([ABOUT.format(name=name), title, *cells])
    heading, _, rest = title.partition("\n")
    return "\n\n".join([heading, ABOUT.format(name=name), rest, *cells])


def _cell(cell: Any) -> Iterator[str]:
    text = _joined(cell["source"])
    if cell["cell_type"] == "code":
        if text.strip():
            yield _block(text, "ipython3")
        for output in cell["outputs"]:
            yield _output(output)
    elif cell["cell_type"] == "markdown":
        yield text


def _output(output: Any) -> str:
    """An output in the best form that a page can show."""
    data = output.get("data", {})
    if "image/png" in data:
        described = _joined(data.get("text/plain", "")).strip().splitlines()[:1]
        alt = re.sub(r'[<>"&]', "", described[0] if described else "An output")
        return _html(
            f'<img class="output" alt="{alt}" src="data:image/png;base64,{_joined(data["image/png"]).strip()}">'
        )
    if "text/html" in data:
        return _html(f'<div class="output">{_joined(data["text/html"])}</div>')
    text = _joined(data.get("text/plain", output.get("text", ""))) or "\n".join(output.get("traceback", []))
    return _block(text, "text", ":class: output\n") if text.strip() else ""


def _html(html: str) -> str:
    return _fenced("{raw} html", html)


def _block(code: str, language: str, options: str = "") -> str:
    return _fenced(f"{{code-block}} {language}", options + code)


def _fenced(opening: str, text: str) -> str:
    fence = "`" * max([3, *(len(found) + 1 for found in LONGEST_FENCE.findall(text))])
    return f"{fence}{opening}\n{text.rstrip()}\n{fence}"


def _joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)
