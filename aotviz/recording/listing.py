"""A recorded graph as Python text that a person who knows torch can read without a legend.

There is one line per node, with its type as an annotation. A comment above the nodes shows the user's source line that
they came from, and comments at the inputs and outputs say what these mean to the user.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

from aotviz.recording.frozen import Frozen
from aotviz.recording.schema import ValueRecord
from aotviz.recording.sources import SourceLine

LETTERS = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u", "complex": "c", "bits": "b"}
DTYPES = """
    float64 float32 float16 bfloat16 int64 int32 int16 int8 uint64 uint32 uint16 uint8 complex32 complex64 complex128
    float8_e5m2 float8_e5m2fnuz float8_e4m3fn float8_e4m3fnuz float8_e8m0fnu float4_e2m1fn_x2 bits1x8 bits2x4 bits4x2
"""
SHORT = {  # as torch prints them: "torch.float32" is "f32", "torch.float8_e5m2" is "f8e5m2"
    **{f"torch.{name}": re.sub("^[a-z]+", lambda m: LETTERS[m[0]], name).replace("_", "") for name in DTYPES.split()},
    "torch.bool": "b8",
    "torch.bits8": "b8x1",
    "torch.bits16": "b16x1",
}


class Node(Frozen, frozen=True):  # made faster than a dataclass, and there are many
    """One node, with texts in place of text numbers. `inputs` are node indices, in order, without repetition."""

    index: int
    op: str
    name: str
    target: str
    inputs: tuple[int, ...]
    value_id: int
    value: ValueRecord | None
    source: SourceLine
    module_path: str
    module_type: str
    sequence_number: int
    is_backward: bool
    descriptor: str
    arguments: Callable[[int], str]  # the text of those of the node that is at a place; few readers want one
    place: int
    checkpoint: str = ""  # the tag that torch.utils.checkpoint, or a rule that saves it, gave it: "MUST_RECOMPUTE", ...

    @property
    def args(self) -> str:
        """The arguments as text."""
        return self.arguments(self.place)

    @property
    def is_tensor(self) -> bool:
        return self.value is not None and self.value.kind == "tensor"


class HasNodes(Protocol):
    """The part of `Graph` that the listing and the drawing use."""

    @property
    def role(self) -> str: ...

    @property
    def outputs(self) -> tuple[str, ...]: ...

    @property
    def output_descriptors(self) -> tuple[str, ...]: ...

    def text(self, number: int) -> str: ...

    @property
    def rows(self) -> tuple[Node, ...]: ...


def listing(graph: HasNodes) -> str:
    """The text of a graph. Names come from the user's program, so every unprintable character is escaped."""
    placeholders = [node for node in graph.rows if node.op == "placeholder"]
    lines = [f"def {graph.role.replace(' ', '_')}({'' if placeholders else '):'}"]
    for node in placeholders:
        meaning = f"  # {node.descriptor}" if node.descriptor else ""
        lines.append(f"    {node.name}{_annotation(graph, node)},{meaning}")
    if placeholders:
        lines.append("):")
    source = ""
    backward = False
    for node in graph.rows:
        if node.op == "placeholder":
            continue
        if node.op == "output":
            lines.extend(_return(graph, node))
            continue
        if graph.role == "joint" and node.is_backward != backward:
            backward = node.is_backward
            lines.append(f"    # ---- {'backward' if backward else 'forward'} ----")
            source = ""
        comment = _comment(node)
        if comment and comment != source:
            lines.append(f"    {comment}")
        source = comment or source
        lines.append(f"    {node.name}{_annotation(graph, node)} = {call(node)}")
    return "\n".join(map(one_line, lines))


def call(node: Node) -> str:
    """The right-hand side of a node's line."""
    if node.op == "get_attr":
        return f"self.{node.target}"
    if node.op == "call_module":
        return f"self.{node.target}({node.args})"
    if node.op == "call_method":
        receiver, _, rest = node.args.partition(", ")
        return f"{receiver}.{node.target}({rest})"
    return f"{node.target}({node.args})"


def type_text(value: ValueRecord | None, text: Callable[[int], str]) -> str:
    """A value's type in brief: `f32[4, s0]`, `Sym(s0)`, or "" if it is unknown."""
    if value is None:
        return ""
    if value.kind == "tensor":
        dtype = text(value.dtype)
        return f"{SHORT.get(dtype, dtype)}[{', '.join(map(str, value.shape))}]"
    if value.kind == "tuple":
        return f"tuple of {len(value.parts)}"
    if value.kind.startswith("sym"):
        return f"Sym({text(value.text)})"
    return ""


def one_line(text: str) -> str:
    r"""The text with every unprintable character (line ends, terminal escapes) written as an escape sequence.

    >>> one_line("a\n\x1b[31mb")
    'a\\n\\x1b[31mb'
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _annotation(graph: HasNodes, node: Node) -> str:
    kind = type_text(node.value, graph.text)
    return f": {kind}" if kind else ""


def _comment(node: Node) -> str:
    if not node.source.line:
        return ""
    place = f"{node.source.file}:{node.source.line} in {node.source.function}"
    return f"# {place}: {node.source.code}" if node.source.code else f"# {place}"


def _return(graph: HasNodes, node: Node) -> list[str]:
    meanings = graph.output_descriptors
    outputs = graph.outputs
    if not any(meanings) or len(meanings) != len(outputs):
        return [f"    return {node.args}"]
    lines = ["    return ("]
    for text, meaning in zip(outputs, meanings, strict=True):
        lines.append(f"        {text}," + (f"  # {meaning}" if meaning else ""))
    return [*lines, "    )"]
