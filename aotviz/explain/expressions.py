"""Dynamo's expressions as the user writes them: `L['self']._modules['a']._parameters['weight']` is `self.a.weight`."""

from __future__ import annotations

import re
from functools import lru_cache

from aotviz.recording.strings import parsed

BEFORE_BREAK = "those before the graph break"  # what the rest of a function goes on with, by number
STEPS = (
    (re.compile(r"\.__dict__\['(\w+)'\]"), r".\1"),
    (re.compile(r"\._(?:modules|parameters|buffers)\['(\w+)'\]"), r".\1"),
    (re.compile(r"\.(?:_modules|_parameters|_buffers)\.(?=\w)"), "."),
    (re.compile(r"\._(?:modules|parameters|buffers)\['([\w.]+)'\]"), r".\1"),
    (re.compile(r"\bL\['(\w+)'\]"), r"\1"),
    (re.compile(r"\bL\[\"(\w+)\"\]"), r"\1"),
    (re.compile(r"\bG\['__import_([\w]+?)'\]"), lambda m: m[1].replace("_dot_", ".")),
    (re.compile(r"\bG\['__builtins_dict___\d+'\]\['(\w+)'\]"), r"\1"),
    (re.compile(r"\bG\['(\w+)'\]"), r"\1"),
    (re.compile(r"\.cell_contents\b"), ""),
    (re.compile(r"\b___stack(\d+)\b"), rf"value \1 of {BEFORE_BREAK}"),
    (re.compile(r"\b(\w+)\.__closure__\[\d+\]"), r"a variable around \1"),
)
SCALAR_TYPES = {5: "float16", 6: "float32", 7: "float64", 9: "complex64", 10: "complex128", 15: "bfloat16"}  # c10's
STATE = re.compile(r"against (\{.*\})", re.S)
STATES = {
    "grad_mode": "gradient mode (`torch.no_grad()`)",
    "autocast_state": "autocast",
    "deterministic_algorithms": "`torch.use_deterministic_algorithms`",
    "deterministic_algorithms_warn_only": "`torch.use_deterministic_algorithms`",
    "allow_tf32": "the setting that allows TF32",
    "allow_tf32_cublas": "the setting that allows TF32",
    "autocast_cache_enabled": "autocast's cache",
    "allow_fp16_reduce": "the setting that allows reduced precision in fp16 reductions",
    "allow_bf16_reduce": "the setting that allows reduced precision in bf16 reductions",
    "num_threads": "the number of threads (`torch.set_num_threads`)",
    "torch_function": "the use of `__torch_function__`",
    "torch_function_all_disabled": "the use of `__torch_function__`",
    "default_dtype": "the default dtype (`torch.set_default_dtype`)",
}
SIZE = re.compile(r"(?P<tensor>[\w.\[\]'\"]{1,100})\.size\(\)\[(?P<index>\d+)\]")
STRIDE = re.compile(r"(?P<tensor>[\w.\[\]'\"]{1,100})\.stride\(\)\[(?P<index>\d+)\]")


@lru_cache(8192)  # a log names few values, many times
def spoken(expression: str) -> str:
    """
    >>> spoken("L['self']._modules['layers']._modules['0'].__dict__['index']")
    'self.layers.0.index'
    >>> spoken("L['x'].size()[0]")
    'x.shape[0]'
    >>> spoken("___stack0")
    'value 0 of those before the graph break'
    """
    text = expression.strip()
    for pattern, shown in STEPS:
        text = pattern.sub(shown, text)
    text = SIZE.sub(r"\g<tensor>.shape[\g<index>]", text)
    return STRIDE.sub(r"\g<tensor>.stride(\g<index>)", text)


def is_global(expression: str) -> bool:
    """Whether the value is a module's global.

    >>> is_global("G['temperature']"), is_global("L['x']")
    (True, False)
    """
    return expression.strip().startswith(("G['", 'G["'))


def of_module(expression: str) -> bool:
    """Whether the value belongs to a module: an attribute, a parameter or a buffer of it."""
    return spoken(expression).startswith("self.") or "_modules[" in expression or "_parameters[" in expression


def torchs_setting(name: str) -> str:
    """A global setting of torch that a guard names.

    >>> torchs_setting("autocast(cpu)_enabled"), torchs_setting("grad_mode")
    ('autocast on cpu', 'gradient mode (`torch.no_grad()`)')
    """
    device = re.match(r"autocast\((\w+)\)", name)
    return f"autocast on {device[1]}" if device else STATES.get(name, f"`{name}`")


def global_state(guard: str) -> dict[str, str]:
    """The settings that a guard on torch's global state requires, in words.

    >>> global_state('___check_global_state() against {"grad_mode":true,"default_dtype":6}')
    {'grad_mode': 'on', 'default_dtype': 'float32'}
    """
    match = STATE.search(guard)
    try:
        state = parsed(match[1]) if match else {}
    except ValueError:
        return {}
    return {name: _setting(name, value) for name, value in state.items()} if isinstance(state, dict) else {}


def _setting(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if name == "default_dtype" and isinstance(value, int):
        return SCALAR_TYPES.get(value, str(value))
    return str(value)
