"""Dynamo's expressions as the user writes them: `L['self']._modules['a']._parameters['weight']` is `self.a.weight`."""

from __future__ import annotations

import re
from functools import lru_cache

BEFORE_BREAK = "those before the graph break"  # what the rest of a function goes on with, by number
STEPS = (
    (re.compile(r"\bdict\((type\([^()]*\))\.__dict__\)\['(\w+)'\]"), r"\1.\2"),
    (re.compile(r"\.__dict__\['(\w+)'\]"), r".\1"),
    (re.compile(r"\._(?:modules|parameters|buffers)\['(\d+)'\]"), r"[\1]"),
    (re.compile(r"\.(?:_modules|_parameters|_buffers)\.(?=\w)"), "."),
    (re.compile(r"\._(?:modules|parameters|buffers)\['([\w.]+)'\]"), r".\1"),
    (re.compile(r"\bL\[(['\"])(\w+)\1\]"), r"\2"),
    (re.compile(r"\bG\['__import___main__'\]\."), ""),
    (re.compile(r"\bG\['__import_([\w]+?)'\]"), lambda m: m[1].replace("_dot_", ".")),
    (re.compile(r"\bG\['__builtins_dict___\d+'\]\['(\w+)'\]"), r"\1"),
    (re.compile(r"\bG\['(\w+)'\]"), r"\1"),
    (re.compile(r"\.cell_contents\b"), ""),
    (re.compile(r"\b___from_numpy\(([^()]*)\)"), r"\1"),
    (re.compile(r"\b___stack(\d+)\b"), rf"value \1 of {BEFORE_BREAK}"),
    (re.compile(r"\b(\w+)\.__closure__\[\d+\]"), r"a variable around \1"),
    (re.compile(r"\blist\(dict\.keys\(([^()]*)\)\)\[(\d+)\]"), r"\1.keys()[\2]"),
    (re.compile(r"(?<=[\w.\[\]'\"])\.size\(\)\[(\d+)\]"), r".shape[\1]"),
    (re.compile(r"(?<=[\w.\[\]'\"])\.stride\(\)\[(\d+)\]"), r".stride(\1)"),
)


@lru_cache(8192)  # a log names few values, many times
def spoken(expression: str) -> str:
    """
    >>> spoken("L['self']._modules['layers']._modules['0'].__dict__['index']")
    'self.layers[0].index'
    >>> spoken("L['x'].size()[0]")
    'x.shape[0]'
    >>> spoken("list(dict.keys(L['batch']))[0]")
    'batch.keys()[0]'
    >>> spoken("G['__import___main__'].seen"), spoken("G['__import_train_dot_loop'].seen")
    ('seen', 'train.loop.seen')
    >>> spoken("dict(type(L['self']).__dict__)['scale']")
    'type(self).scale'
    >>> spoken("___stack0")
    'value 0 of those before the graph break'
    """
    text = expression.strip()
    for pattern, shown in STEPS:
        text = pattern.sub(shown, text)
    return text


HASH = re.compile(r"(?<![\w./-])(?=[a-z]*\d)(?=\d*[a-z])(?:[0-9a-f]{12,}|[a-z2-7]{30,})(?!\w)")


def without_hashes(text: str) -> str:
    """A text without bare hashes, of which a reader learns nothing.

    >>> without_hashes("2.13.0+cpu cf30153c4c131c8164ee, CUDA None"), without_hashes("all 9: 4a0d09a9d2752c52")
    ('2.13.0+cpu, CUDA None', 'all 9')
    """
    return re.sub(rf":?\s*{HASH.pattern}", "", text)
