"""What Dynamo's expressions are about: globals, modules, torch's settings. `recording/spoken.py` has their names."""

from __future__ import annotations

import ast
import re

from aotviz.recording.spoken import spoken
from aotviz.recording.strings import parsed

SCALAR_TYPES = {5: "float16", 6: "float32", 7: "float64", 9: "complex64", 10: "complex128", 15: "bfloat16"}  # c10's
OF_SYMPY: dict[str, ast.cmpop | ast.operator] = {
    "Eq": ast.Eq(), "Ne": ast.NotEq(), "Gt": ast.Gt(), "Ge": ast.GtE(), "Lt": ast.Lt(), "Le": ast.LtE(),
    "Mod": ast.Mod(), "PythonMod": ast.Mod(), "FloorDiv": ast.FloorDiv(), "CleanDiv": ast.FloorDiv(),
}  # fmt: skip
OF_ONE = {"TruncToInt": "int", "ToFloat": "float"}
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


def as_python(expression: str) -> str:
    """A condition on sizes as one writes it in a program, without SymPy's functions.

    >>> as_python("Eq(Mod(u0, 8), 0)"), as_python("TruncToInt(u0) > 3"), as_python("Max(1, u0")
    ('u0 % 8 == 0', 'int(u0) > 3', 'Max(1, u0')
    """
    if not any(f"{name}(" in expression for name in (*OF_SYMPY, *OF_ONE)):
        return expression
    try:
        return ast.unparse(_InPython().visit(ast.parse(expression.strip(), mode="eval")))
    except (SyntaxError, ValueError, RecursionError):
        return expression


class _InPython(ast.NodeTransformer):
    def visit_Call(self, call: ast.Call) -> ast.AST:
        self.generic_visit(call)
        if isinstance(call.func, ast.Name) and call.func.id in OF_ONE and len(call.args) == 1:
            return ast.Call(ast.Name(OF_ONE[call.func.id]), call.args, [])
        made = OF_SYMPY.get(call.func.id) if isinstance(call.func, ast.Name) and len(call.args) == 2 else None
        if isinstance(made, ast.cmpop):
            return ast.Compare(call.args[0], [made], [call.args[1]])
        return call if made is None else ast.BinOp(call.args[0], made, call.args[1])


def plainly(condition: str) -> str:
    """An expression of numbers without what torch adds to it.

    >>> plainly("((1.0 / (torch.sym_float(1 + self.layer_idx)))) == 0.5")
    '1.0 / (1 + self.layer_idx) == 0.5'
    """
    try:
        return ast.unparse(ast.parse(re.sub(r"\btorch\.sym_(?:float|int)\b", "", condition)))
    except (SyntaxError, ValueError, RecursionError):
        return condition
