"""Writes src/wire.ts from schema.py and findings.py in aotviz/recording, and aotviz/widgets/parts.py: one wire format.

Each record becomes a TypeScript interface (with the field comments of the Python source) and one row of `SCHEMA`,
the table by which `decode.ts` checks a recording before any view sees it. A type that TypeScript can't express
with the forms below is refused here rather than guessed.

    python extensions/core/generate_types.py            write src/wire.ts
    python extensions/core/generate_types.py --check    exit 1 if src/wire.ts is out of date
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
from pathlib import Path
from typing import Any

import msgspec

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = HERE / "src" / "wire.ts"
MODULES = ("aotviz.recording.schema", "aotviz.recording.findings", "aotviz.widgets.parts")

LEAVES: dict[Any, tuple[str, str]] = {  # Python type -> (TypeScript type, schema code)
    msgspec.inspect.StrType: ("string", "str"),
    msgspec.inspect.IntType: ("number", "int"),
    msgspec.inspect.FloatType: ("number", "float"),
    msgspec.inspect.BoolType: ("boolean", "bool"),
    msgspec.inspect.NoneType: ("null", "none"),
    msgspec.inspect.AnyType: ("Wire", "any"),
}


def both(kind: msgspec.inspect.Type) -> tuple[str, Any]:
    """The TypeScript type of `kind`, and its schema: a code, or [form, part, ...]."""
    if isinstance(kind, msgspec.inspect.Metadata):  # what Annotated says beside the type
        return both(kind.type)
    if type(kind) in LEAVES:
        return LEAVES[type(kind)]
    if isinstance(kind, msgspec.inspect.ListType):
        text, schema = both(kind.item_type)
        return (f"({text})[]" if " " in text else f"{text}[]"), ["list", schema]
    if isinstance(kind, msgspec.inspect.DictType):
        key, key_schema = both(kind.key_type)
        value, value_schema = both(kind.value_type)
        return f"ReadonlyMap<{key}, {value}>", ["map", key_schema, value_schema]
    if isinstance(kind, msgspec.inspect.UnionType):
        parts = [both(part) for part in kind.types]
        return " | ".join(text for text, _ in parts), ["or", *(schema for _, schema in parts)]
    if isinstance(kind, msgspec.inspect.StructType):
        return kind.cls.__name__, ["record", kind.cls.__name__]
    raise TypeError(f"no TypeScript form for {kind}: teach generate_types.both about it")


def absent(field: msgspec.inspect.Field) -> list[Any]:
    """What stands for a field that a recording of an older version lacks; nothing for one that it must have."""
    if not field.required:
        default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
        return [msgspec.to_builtins(default)]
    return []


def comments(source: str) -> dict[tuple[str, str], str]:
    """(record, field) -> the comment at the end of the field's line."""
    lines = source.splitlines()
    found: dict[tuple[str, str], str] = {}
    for node in ast.parse(source).body:
        for item in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                match = re.search(r"#\s*(.+)$", lines[item.lineno - 1])
                if match and isinstance(node, ast.ClassDef):
                    found[node.name, item.target.id] = match[1]
    return found


def generate() -> str:
    """The text of wire.ts."""
    sys.path.insert(0, str(ROOT))
    modules = [importlib.import_module(name) for name in MODULES]
    sources = [Path(str(module.__file__)).read_text(encoding="utf-8") for module in modules]
    notes = {key: note for source in sources for key, note in comments(source).items()}
    events = modules[0]
    magic = ", ".join(f"0x{byte:02x}" for byte in importlib.import_module("aotviz.recording.files").MAGIC)
    records = [
        getattr(module, node.name)
        for module, source in zip(modules, sources, strict=True)
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and issubclass(getattr(module, node.name), msgspec.Struct)
    ]
    out = [
        f"// Generated from {' and '.join(MODULES)} by generate_types.py; don't edit.",
        "",
        f'export const FORMAT = "{events.FORMAT}";',
        f"export const VERSION = {events.VERSION};",
        f"export const NONE = {events.NONE};",
        f"export const MAGIC = [{magic}]; // a file's first bytes",
        "",
        "/** Anything that msgpack can carry; an integer too large for a number is a bigint, a float is a Float. */",
        "export type Wire = null | boolean | number | bigint | Float | string | Wire[] | ReadonlyMap<Wire, Wire>;",
        "",
        "/** A float, kept apart from an int because Python does: 1.0 is not 1. */",
        "export class Float {",
        "  constructor(readonly value: number) {}",
        "}",
        "",
        'export type Schema = string | readonly ["list", Schema] | readonly ["map", Schema, Schema]',
        '  | readonly ["record", string] | readonly ["or", ...Schema[]];',
        "",
        "export interface RecordSchema {",
        "  readonly array: boolean; // array_like: fields by position",
        "  // name, form, and what stands for it in a recording of an older version, which lacks it",
        "  readonly fields: readonly (readonly [string, Schema, unknown?])[];",
        "}",
        "",
    ]
    table: list[str] = []
    for record in records:
        name = record.__name__
        info = msgspec.inspect.type_info(record)
        if not isinstance(info, msgspec.inspect.StructType) or not info.fields:
            continue
        doc = (record.__doc__ or "").strip()
        if doc:
            body = doc.splitlines()
            out += [f"/** {doc} */"] if len(body) == 1 else ["/**", *(f" * {x.strip()}".rstrip() for x in body), " */"]
        out.append(f"export interface {name} {{")
        rows = []
        for field in info.fields:
            text, schema = both(field.type)
            note = notes.get((name, field.name))
            out.append(f"  readonly {field.encode_name}: {text};" + (f" // {note}" if note else ""))
            row = [field.encode_name, schema, *absent(field)]
            rows.append(", ".join(msgspec.json.encode(part).decode() for part in row).join("[]"))
        out += ["}", ""]
        array = "true" if info.array_like else "false"
        table += [f"  {name}: {{", f"    array: {array},", "    fields: ["]
        table += [f"      {row}," for row in rows]
        table += ["    ],", "  },"]
    out += ["export const SCHEMA: { readonly [record: string]: RecordSchema } = {", *table, "};", ""]
    return "\n".join(out)


def main() -> int:
    text = generate()
    if "--check" in sys.argv[1:]:
        if not TARGET.exists() or TARGET.read_text(encoding="utf-8") != text:
            print(f"{TARGET.relative_to(ROOT)} is out of date: run python extensions/core/generate_types.py")
            return 1
        return 0
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
