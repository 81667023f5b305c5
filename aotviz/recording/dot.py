"""A recorded graph in graphviz's DOT language: modules are nested boxes, and the backward has another colour.

Names and source lines come from the user and may contain any character. They are written as quoted strings with
every special character escaped, so that graphviz does not read them as markup or syntax.
"""

from __future__ import annotations

from aotviz.recording.listing import HasNodes, Node, one_line, type_text

FILL = {"placeholder": "#e8f0fe", "output": "#e6f4ea", "get_attr": "#e8f0fe"}
BACKWARD_FILL = "#fef7e0"
MOST_BOXES = 40  # levels of nesting; nodes of deeper modules go into the innermost box


def dot(graph: HasNodes) -> str:
    """The graph as DOT source."""
    lines = [
        "digraph {",
        '  node [shape=box style="rounded,filled" fillcolor=white fontname="Helvetica" fontsize=10]',
        '  edge [color="#5f6368" arrowsize=0.6]',
    ]
    lines.extend(_boxes(graph))
    for node in graph.rows:
        lines.extend(f"  n{source} -> n{node.index}" for source in node.inputs)
    return "\n".join([*lines, "}"]) + "\n"


def quoted(text: str) -> str:
    r"""A quoted graphviz string that displays `text` literally.

    >>> quoted('<b>"x"\\n</b>')
    '"<b>\\"x\\"\\\\n</b>"'
    """
    return '"' + one_line(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _boxes(graph: HasNodes) -> list[str]:
    """The lines for the nodes, with one nested box per module."""
    tree: dict[str, list[Node]] = {}
    for node in graph.rows:
        path = ".".join(node.module_path.split(".")[:MOST_BOXES])
        tree.setdefault(path, []).append(node)
    paths = set(tree)
    for path in list(tree):
        while "." in path:
            path = path.rpartition(".")[0]
            paths.add(path)
    children: dict[str, list[str]] = {}
    for path in sorted(paths - {""}):
        children.setdefault(path.rpartition(".")[0], []).append(path)
    numbers = {path: number for number, path in enumerate(sorted(paths))}
    lines: list[str] = []

    def write(path: str, depth: int) -> None:
        pad = "  " * (depth + 1)
        lines.extend(f"{pad}{_node(graph, node)}" for node in tree.get(path, ()))
        for child in children.get(path, ()):
            lines.append(f"{pad}subgraph cluster_{numbers[child]} {{")
            lines.append(f'{pad}  label={quoted(child)} color="#9aa0a6" fontname="Helvetica" fontsize=10')
            write(child, depth + 1)
            lines.append(f"{pad}}}")

    write("", 0)
    return lines


def _node(graph: HasNodes, node: Node) -> str:
    first = node.name if node.op in ("placeholder", "output") else f"{node.name} = {node.target}"
    rows = [first, type_text(node.value, graph.text), node.descriptor]
    label = "\\n".join(quoted(row)[1:-1] for row in rows if row)
    fill = FILL.get(node.op, BACKWARD_FILL if node.is_backward else "white")
    return f'n{node.index} [label="{label}" fillcolor="{fill}" tooltip={quoted(str(node.source))}]'
