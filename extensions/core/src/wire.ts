// Generated from aotviz/recorder/events.py by generate_types.py; don't edit.

export const FORMAT = "aotviz";
export const VERSION = 1;
export const NONE = -1;

/** Anything that msgpack can carry; an integer too large for a number is a bigint, a float is a Float. */
export type Wire = null | boolean | number | bigint | Float | string | Wire[] | ReadonlyMap<Wire, Wire>;

/** A float, kept apart from an int because Python does: 1.0 is not 1. */
export class Float {
  constructor(readonly value: number) {}
}

export type Schema = string | readonly ["list", Schema] | readonly ["map", Schema, Schema]
  | readonly ["record", string] | readonly ["or", ...Schema[]];

export interface RecordSchema {
  readonly array: boolean; // array_like: fields by position
  readonly fields: readonly (readonly [string, Schema])[];
}

/** What is known of one traced value. Two nodes (of any stages) with the same record index hold the same value. */
export interface ValueRecord {
  readonly kind: string; // "tensor" | "symint" | "symfloat" | "symbool" | "tuple" | "other"
  readonly dtype: number; // string, e.g. "torch.float32"
  readonly shape: (number | string)[]; // elements; symbolic sizes as text, e.g. "s0"
  readonly stride: (number | string)[]; // elements; empty for a layout that has none
  readonly offset: number | string; // elements
  readonly device: number; // string
  readonly storage: number; // storage group: values with the same number share memory; -1 if unknown
  readonly requires_grad: boolean;
  readonly parts: number[]; // value indices, for a tuple
  readonly text: number; // string: the repr, for a kind without tensor facts
}

/**
 * An FX graph in columns, each of length `len(op)`, in topological order.
 *
 * An argument is None, bool, int, float or str as it is; `[d]` is the result of the node d places before;
 * `["L", ...]` a list or tuple; `{"d": {...}}` a dict; `{"s": [start, stop, step]}` a slice; `{"r": i}` anything
 * else, by its text in `strings`.
 */
export interface GraphSnapshot {
  readonly op: string; // one letter a node: p placeholder, f call_function, m call_module, c call_method, a get_attr, o output
  readonly name: number[]; // string
  readonly target: number[]; // string
  readonly args: Wire[]; // per node, a list of arguments
  readonly kwargs: ReadonlyMap<number, Wire>; // node index -> {name: argument}; only nodes that have some
  readonly value: number[]; // index into CompilationData.values
  readonly stack: number[]; // string: the user's frames as a traceback prints them, innermost last
  readonly module: number[]; // string: "path|Class" lines, outermost first
  readonly sequence: number[]; // autograd sequence number, -1 if none; a forward op and its backward share it
  readonly backward: string; // "1" where the node belongs to the backward, else "0"
  readonly descriptor: ReadonlyMap<number, number>; // placeholder's node index -> string
  readonly output_descriptors: number[]; // string, one per graph output
}

/** One flat input as the user passed it (SYSTEM.md A3). */
export interface InputRecord {
  readonly name: string; // the user's own name for it, e.g. "model.wte.weight" or "x"
  readonly kind: string; // "parameter" | "buffer" | "input" | "constant"
  readonly dtype: string;
  readonly shape: (number | string)[];
  readonly device: string;
  readonly requires_grad: boolean;
  readonly is_leaf: boolean;
  readonly mutates_data: boolean;
  readonly mutates_metadata: boolean;
  readonly mutation: string; // MutationType's name
  readonly hidden_from_autograd: boolean;
  readonly under_no_grad: boolean;
  readonly storage_resized: boolean;
  readonly storage_replaced: boolean; // `set_`
  readonly static: boolean;
  readonly storage: number; // storage group among the inputs: equal numbers share memory
  readonly duplicate_of: string; // name of the earlier input that is the same tensor, or ""
  readonly synthetic_base: string; // name of the base that this input becomes a view of, or ""
  readonly reason: string; // one sentence: why it is treated so; "" where nothing is special
}

/** One flat output as the user receives it (SYSTEM.md A1, A2). */
export interface OutputRecord {
  readonly name: string;
  readonly output_type: string; // OutputType's name
  readonly dtype: string;
  readonly shape: (number | string)[];
  readonly device: string;
  readonly requires_grad: boolean;
  readonly base: string; // the input, output or intermediate base it is rebuilt from, or ""
  readonly view_chain: string[]; // e.g. ["view([4, 2])", "select(0, 1)"]
  readonly has_tangent: boolean;
  readonly reason: string;
}

/** One value kept from forward to backward (SYSTEM.md G5). */
export interface SavedTensorRecord {
  readonly name: string; // node name in the forward graph
  readonly kind: string; // "tensor" | "symint"
  readonly dtype: string;
  readonly shape: (number | string)[];
  readonly nbytes: number | null; // None where a size is symbolic
  readonly producer: string; // target of the node that makes it, or the input's name
  readonly source: string; // user's source line, or ""
  readonly module: string; // module path, or ""
  readonly why: string; // one sentence: why it is saved rather than recomputed
  readonly version_checked: boolean;
  readonly donated: boolean;
  readonly why_donated: string; // why it is, or is not, donated
}

/** Lines first..last (1-based, inclusive) of a generated source stand there because of `fact`. */
export interface WrapperNote {
  readonly first: number;
  readonly last: number;
  readonly fact: string;
  readonly subject: string; // the input or output that it is about, or ""
}

/** The generated Python that runs on every call (SYSTEM.md G4). */
export interface WrapperRecord {
  readonly filename: string;
  readonly source: string;
  readonly notes: WrapperNote[];
}

/** Why a stage decided as it did. */
export interface Evidence {
  readonly subject: string;
  readonly reason: string;
}

/** One run of one stage. */
export interface StageRecord {
  readonly name: string;
  readonly form: string; // the class of the form that it returned
  readonly summary: string; // one sentence: what changed
  readonly changed: boolean;
  readonly late: boolean; // ran after the compilation had returned, e.g. the lazy backward
  readonly started_ns: number; // since the compilation began
  readonly elapsed_ns: number;
  readonly graphs: ReadonlyMap<string, number>; // role ("joint", "forward", "backward", "inference") -> index into CompilationData.graphs
  readonly evidence: Evidence[];
  readonly code: ReadonlyMap<string, string>; // other texts that it made, by name, e.g. "wrapper"
}

export interface ErrorRecord {
  readonly stage: string;
  readonly type: string;
  readonly message: string;
}

export interface CompilationData {
  readonly id: string; // unique within the recording, in order: "0", "1", ...
  readonly name: string; // the function's or module's name
  readonly kind: string; // "training" | "inference"
  readonly started_unix_ns: number;
  readonly options: ReadonlyMap<string, string>;
  readonly stages: StageRecord[];
  readonly graphs: GraphSnapshot[];
  readonly values: ValueRecord[];
  readonly inputs: InputRecord[];
  readonly outputs: OutputRecord[];
  readonly saved_tensors: SavedTensorRecord[];
  readonly wrapper: WrapperRecord | null;
  readonly error: ErrorRecord | null;
}

/** A whole recording, as in a file. */
export interface RecordingData {
  readonly format: string;
  readonly version: number;
  readonly producer: ReadonlyMap<string, string>; // versions of "aotviz", "torch", "python"
  readonly strings: string[];
  readonly compilations: CompilationData[];
  readonly dropped: number; // compilations left out because the recording was full
}

export const SCHEMA: { readonly [record: string]: RecordSchema } = {
  ValueRecord: {
    array: true,
    fields: [
      ["kind", "str"],
      ["dtype", "int"],
      ["shape", ["list",["or","int","str"]]],
      ["stride", ["list",["or","int","str"]]],
      ["offset", ["or","int","str"]],
      ["device", "int"],
      ["storage", "int"],
      ["requires_grad", "bool"],
      ["parts", ["list","int"]],
      ["text", "int"],
    ],
  },
  GraphSnapshot: {
    array: false,
    fields: [
      ["op", "str"],
      ["name", ["list","int"]],
      ["target", ["list","int"]],
      ["args", ["list","any"]],
      ["kwargs", ["map","int","any"]],
      ["value", ["list","int"]],
      ["stack", ["list","int"]],
      ["module", ["list","int"]],
      ["sequence", ["list","int"]],
      ["backward", "str"],
      ["descriptor", ["map","int","int"]],
      ["output_descriptors", ["list","int"]],
    ],
  },
  InputRecord: {
    array: false,
    fields: [
      ["name", "str"],
      ["kind", "str"],
      ["dtype", "str"],
      ["shape", ["list",["or","int","str"]]],
      ["device", "str"],
      ["requires_grad", "bool"],
      ["is_leaf", "bool"],
      ["mutates_data", "bool"],
      ["mutates_metadata", "bool"],
      ["mutation", "str"],
      ["hidden_from_autograd", "bool"],
      ["under_no_grad", "bool"],
      ["storage_resized", "bool"],
      ["storage_replaced", "bool"],
      ["static", "bool"],
      ["storage", "int"],
      ["duplicate_of", "str"],
      ["synthetic_base", "str"],
      ["reason", "str"],
    ],
  },
  OutputRecord: {
    array: false,
    fields: [
      ["name", "str"],
      ["output_type", "str"],
      ["dtype", "str"],
      ["shape", ["list",["or","int","str"]]],
      ["device", "str"],
      ["requires_grad", "bool"],
      ["base", "str"],
      ["view_chain", ["list","str"]],
      ["has_tangent", "bool"],
      ["reason", "str"],
    ],
  },
  SavedTensorRecord: {
    array: false,
    fields: [
      ["name", "str"],
      ["kind", "str"],
      ["dtype", "str"],
      ["shape", ["list",["or","int","str"]]],
      ["nbytes", ["or","int","none"]],
      ["producer", "str"],
      ["source", "str"],
      ["module", "str"],
      ["why", "str"],
      ["version_checked", "bool"],
      ["donated", "bool"],
      ["why_donated", "str"],
    ],
  },
  WrapperNote: {
    array: false,
    fields: [
      ["first", "int"],
      ["last", "int"],
      ["fact", "str"],
      ["subject", "str"],
    ],
  },
  WrapperRecord: {
    array: false,
    fields: [
      ["filename", "str"],
      ["source", "str"],
      ["notes", ["list",["record","WrapperNote"]]],
    ],
  },
  Evidence: {
    array: false,
    fields: [
      ["subject", "str"],
      ["reason", "str"],
    ],
  },
  StageRecord: {
    array: false,
    fields: [
      ["name", "str"],
      ["form", "str"],
      ["summary", "str"],
      ["changed", "bool"],
      ["late", "bool"],
      ["started_ns", "int"],
      ["elapsed_ns", "int"],
      ["graphs", ["map","str","int"]],
      ["evidence", ["list",["record","Evidence"]]],
      ["code", ["map","str","str"]],
    ],
  },
  ErrorRecord: {
    array: false,
    fields: [
      ["stage", "str"],
      ["type", "str"],
      ["message", "str"],
    ],
  },
  CompilationData: {
    array: false,
    fields: [
      ["id", "str"],
      ["name", "str"],
      ["kind", "str"],
      ["started_unix_ns", "int"],
      ["options", ["map","str","str"]],
      ["stages", ["list",["record","StageRecord"]]],
      ["graphs", ["list",["record","GraphSnapshot"]]],
      ["values", ["list",["record","ValueRecord"]]],
      ["inputs", ["list",["record","InputRecord"]]],
      ["outputs", ["list",["record","OutputRecord"]]],
      ["saved_tensors", ["list",["record","SavedTensorRecord"]]],
      ["wrapper", ["or",["record","WrapperRecord"],"none"]],
      ["error", ["or",["record","ErrorRecord"],"none"]],
    ],
  },
  RecordingData: {
    array: false,
    fields: [
      ["format", "str"],
      ["version", "int"],
      ["producer", ["map","str","str"]],
      ["strings", ["list","str"]],
      ["compilations", ["list",["record","CompilationData"]]],
      ["dropped", "int"],
    ],
  },
};
