"""What an error's message says to do: the cure that is known for it, or else the message's own advice.

Many of torch's messages end with what to do ("To work around this, you can make a clone …"), and only the first
sentence of a message is told as the cause. The advice is found by its form: a sentence that orders ("Use …", "Set …"),
or one that offers ("you can …", "… instead"). How to get more output, or where to report, is not advice.
"""

from __future__ import annotations

import re

from aotviz.explain.cures import backward_cures, break_cures, export_cures, guard_cures, result_cures
from aotviz.explain.cures.registry import NO_ADVICE, Advice

KNOWN = (  # what a message says, its cure
    (r"modified by an inplace operation", backward_cures.WRITTEN),
    (r"does not currently support double backward", backward_cures.DOUBLE),
    (r"backward through the graph a second time", backward_cures.TWICE),
    (r"compiled with non-empty donated buffers", backward_cures.DONATED),
    (r"random operation while in randomness error mode", break_cures.RANDOM_IN_VMAP),
    (r"Batch norm got a batched tensor as input while the running_mean", break_cures.BATCH_NORM_IN_VMAP),
    (r"might be aliasing the input", break_cures.ALIASED_BRANCH),
    (r"no fake impl registered for <?(?:CustomOpDef\()?(?P<name>[\w:.]{1,200}+)", export_cures.NO_FAKE),
    (
        r"backward through (?P<space>\w{1,200})\.(?P<op>\w{1,200})\.\w{1,200} but no autograd formula was registered",
        backward_cures.NO_FORMULA,
    ),
    (r"You tried to vmap over ApplyTemplate", break_cures.FUNCTION_UNDER_VMAP),
    (r"SymNodeVariable\(\) is not a constant", break_cures.CONSTANT_NEEDED),
    (r"^Guard failed: (?P<name>\w{1,99})\.size\(\)\[(?P<index>\d+)\] == \d+", export_cures.EXPORTED_SIZE),
    (r"^\d+ not in range \[", guard_cures.MARKED_RANGE),
    (r"not simple sympy type <class 'NoneType'>", guard_cures.MARKED_BY_MIN),
    (r"\bsame (?:dtypes?|scalar type)\b|dtypes match|dtype to be equal to", result_cures.DTYPES),
)
OF_EXPORTS = (  # the same, of an export; asked before those of all
    (r"specialized (?:it to be a constant \([01]\)|due to hint of [01] )", export_cures.EXAMPLE_OF_1),
    (r"\.numpy\(\) is not supported for tensor subclasses", export_cures.NUMPY),
    (r"^Expected `mod` to be an instance of `torch\.nn\.Module`", export_cures.NO_MODULE),
    (r"^\d+ not in range \[", export_cures.EXAMPLE_OUTSIDE),
    (
        r"Cannot associate shape .{0,300}? specified at `dynamic_shapes\['(?P<name>\w{1,99})'\]` to non-tensor type",
        export_cures.SHAPE_OF_NO_TENSOR,
    ),
)
QUOTED = {"\\n": " ", "\\t": " ", "\\'": "'", '\\"': '"'}  # in a message that was quoted by Python
BEGIN = r"If|Please|You|This|To|The|It|See|Use|Try|Note|Consider|Make|Set|We|For|In"
GLUED = re.compile(rf"(?<=[a-z`)\]])\.(?=(?:{BEGIN}) )")
SENTENCE = re.compile(r"(?<=[^.][.!?])(?<!e\.g\.)(?<!i\.e\.) (?=[A-Z`])")
ORDERS = re.compile(
    r"(?:Please |Hint: )?(?:Use|Set|Call|Consider|Try|Make sure|Ensure|Move|Pass|Specify|Clone|Convert|Wrap"
    r"|Register|Avoid|Replace|Keep|Change|Add|To (?:work around|fix|avoid|resolve|enable|disable)"
    r"|If you (?:need|want|are|do))\b",
    re.I,
)
OFFERS = re.compile(
    r"\byou (?:can|could|may|should|need to)\b|\binstead\b|\bor set torch\."
    r"|\bplease (?:use|set|call|rewrite|make|pass)\b"
)
NO_CURE = re.compile(
    r"\breport\b|\bissue\b|more information|stack ?trace|\bdebug|TORCH_LOGS|TORCHDYNAMO|TORCH_SHOW|https?://|VERBOSE"
    r"|eager/uncompiled|may result in an error", re.I
)  # fmt: skip


def plain(message: str) -> str:
    """A message without what quoting and joining did to it.

    >>> plain("the mean, which is updated, was not batched.\\\\nIf you set it to False.If you use it")
    'the mean, which is updated, was not batched. If you set it to False. If you use it'
    """
    for quoted, meant in QUOTED.items():
        message = message.replace(quoted, meant)
    return GLUED.sub(". ", message)


def sentences(message: str) -> list[str]:
    """
    >>> sentences("Not here. Use `x` instead.\\nSee the docs")
    ['Not here.', 'Use `x` instead.', 'See the docs']
    """
    lines = (" ".join(line.split()) for line in plain(message).splitlines())
    return [one for line in lines for one in SENTENCE.split(line) if one]


def advised(message: str) -> str:
    """The sentences after the first that say what to do.

    >>> advised("Inference tensors cannot be saved. To work around this, you can make a clone. Please report a bug.")
    'To work around this, you can make a clone.'
    """
    found = [one for one in sentences(message)[1:] if (ORDERS.match(one) or OFFERS.search(one))]
    return " ".join(one if one[-1] in ".!?:" else f"{one}." for one in found if not NO_CURE.search(one))


def known_cure(message: str, is_export: bool = False) -> Advice:
    """The cure that is known for an error; empty if none is."""
    found = ((re.search(pattern, message), cure) for pattern, cure in ((*OF_EXPORTS, *KNOWN) if is_export else KNOWN))
    return next((cure.said(**match.groupdict()) for match, cure in found if match), NO_ADVICE)


def cure_of(message: str, is_export: bool = False) -> Advice:
    """The cure that is known for an error, or what its message advises; empty if there is neither."""
    if known := known_cure(message, is_export):
        return known
    advice = advised(message)
    return break_cures.TORCHS_HINT.said(hint=advice) if advice else NO_ADVICE
