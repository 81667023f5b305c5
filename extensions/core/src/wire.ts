// Generated from aotviz.recording.schema and aotviz.recording.findings and aotviz.widgets.parts by generate_types.py; don't edit.

export const FORMAT = "aotviz";
export const VERSION = 5;
export const NONE = -1;
export const MAGIC = [0x93, 0x41, 0x4f, 0x54, 0x56, 0x49, 0x5a, 0x0a]; // a file's first bytes

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
  // name, form, and what stands for it in a recording of an older version, which lacks it
  readonly fields: readonly (readonly [string, Schema, unknown?])[];
}

/** What is known of one traced value. Two nodes (of any stages) with the same record index hold the same value. */
export interface ValueRecord {
  readonly kind: string; // "tensor" | "symint" | "symfloat" | "symbool" | "tuple" | "other"
  readonly dtype: number; // string, e.g. "torch.float32"
  readonly shape: (number | string)[]; // elements; symbolic sizes as text, e.g. "s0"
  readonly stride: (number | string)[]; // elements; empty for a layout without strides
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
 * An argument is a plain value as it is; `[d]` is the result of the node d places before; `["L", ...]` is a sequence;
 * `{"d": {...}}` a dict; `{"s": [start, stop, step]}` a slice; `{"r": i}` anything else, by its text in `strings`.
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
  readonly sequence: number[]; // autograd sequence number, -1 if it made no autograd node; an op and its backward share it
  readonly backward: string; // "1" where the node was traced in the backward, else "0"
  readonly descriptor: ReadonlyMap<number, number>; // placeholder's node index -> string
  readonly output_descriptors: number[]; // string, one per graph output
  readonly checkpoint: ReadonlyMap<number, number[]>; // node index -> [tag in graph.CHECKPOINT_TAGS, number of the region or -1]
}

/** One flat input as the user passed it (docs/design/system.md A3). */
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
  readonly under_no_grad: boolean; // all writes to it; nothing about reads
  readonly storage_resized: boolean;
  readonly storage_replaced: boolean; // `set_`
  readonly static: boolean;
  readonly storage: number; // storage group among the inputs: equal numbers share memory
  readonly duplicate_of: string; // name of the earlier input that is the same tensor, or ""
  readonly synthetic_base: string; // name of the base that this input becomes a view of, or ""
  readonly reason: string; // one sentence: why it is treated so; "" where nothing is special
  readonly stride: (number | string)[]; // elements, as the user passed it; empty for a layout without strides
  readonly offset: number | string; // elements from the beginning of its storage
}

/** One flat output as the user receives it (docs/design/system.md A1, A2). */
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
  readonly stride: (number | string)[]; // elements; empty for a layout without strides
  readonly offset: number | string; // elements from the beginning of its storage
}

/** One value kept from forward to backward (docs/design/system.md G5). */
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
  readonly hook: string; // what a saved-tensor hook did to make it, or ""
  readonly consumers: string[]; // nodes of the backward graph that read it, in their order
  readonly dies_at: number; // position in the backward graph of the last of them, -1 if unknown
  readonly memory_of: string; // the input in whose memory it lies, so that keeping it costs nothing, or ""
  readonly shares_with: string; // the other saved value in whose memory it lies, and with which it is counted, or ""
  readonly held_bytes: number | null; // of the storage that is kept for it; 0 where `memory_of` or `shares_with` has it;
  readonly held_until: number; // position in the backward graph of the last that reads any value there, -1 if unknown
}

/** One value of the forward that the backward computes again, and that is not kept (docs/design/system.md G5). */
export interface RecomputedRecord {
  readonly name: string; // node name in both graphs
  readonly dtype: string;
  readonly shape: (number | string)[];
  readonly nbytes: number | null; // None where a size is symbolic; a view takes none, and what is not a tensor
  readonly producer: string; // target of the node
  readonly source: string; // user's source line, or ""
  readonly module: string; // module path, or ""
  readonly consumers: string[]; // nodes of the backward graph that read it, in their order
  readonly made_at: number; // position in the backward graph
  readonly dies_at: number; // the same, of the last that reads it
}

/** A tensor that the user's code held, as a window on a storage (docs/design/system.md G3). */
export interface AliasTensor {
  readonly names: string[]; // the user's names, e.g. ["x", "output[1]"] for an input that is returned; [] for an intermediate
  readonly role: string; // "input" | "output" | "intermediate" | "base": the synthetic base of several inputs
  readonly shape: (number | string)[]; // elements
  readonly stride: (number | string)[]; // elements
  readonly offset: number | string; // elements from the beginning of the storage
  readonly itemsize: number; // bytes of an element
  readonly view_of: number; // the tensor of the same storage that it was taken from, -1 if it was not taken from one
  readonly step: string; // how it was taken from that, e.g. "select(0, 1)"
  readonly node: string; // its node in the graph of the stage "metadata", or ""
  readonly source: string; // the user's source line, or ""
}

/** A statement of the user's that changed a tensor in place. */
export interface StorageWrite {
  readonly order: number; // among all such statements of the call, and the views that it takes
  readonly tensor: number; // of the storage
  readonly kind: string; // "data" | "metadata": where the tensor lies in its storage
  readonly operator: string; // e.g. "mul_"
  readonly node: string; // its node in the graph of the stage "metadata", or ""
  readonly source: string; // the user's source line, or ""
  readonly grad_mode: boolean; // whether grad mode was on
}

/** A piece of memory: the tensors that lie in it, and what is written to it, in the user's order. */
export interface StorageRecord {
  readonly nbytes: number | null; // None where a size is symbolic
  readonly device: string;
  readonly tensors: AliasTensor[]; // of intermediates, those that are written, and those that an output is made from
  readonly writes: StorageWrite[];
  readonly left_out: number; // tensors and writes, where there are too many to be shown
}

/** What was made of an event. */
export interface RunFact {
  readonly subject: number; // the input or output that it is about; "" for a value inside the graph
  readonly fact: number; // a word of terms.toml, e.g. "data", "alias_of_input"; "" if there is none
  readonly text: number; // what it means, e.g. "the wrapper writes it after the graph ran"
}

/** One thing that the user's function did, as its first run saw it. */
export interface RunEvent {
  readonly what: number; // "argument" | "view" | "detach" | "write" | "metadata" | "set_" | "resize" | "storage resized" |
  readonly tensor: number; // its number in RunLog.tensors, -1 for a random draw or an effect
  readonly of: number; // the number of the tensor that it was taken from, or was set to; -1 if there is none
  readonly operator: number; // e.g. "select(0, 1)"
  readonly node: number; // its node in the graph of the stage "metadata"
  readonly source: number; // the user's source line
  readonly mode: number; // "no_grad" | "inference mode"; "" in grad mode, or if unknown
  readonly made: RunFact[];
}

/** What the user's function did with its tensors, in its order: first its arguments, last its results. */
export interface RunLog {
  readonly tensors: number[]; // by their numbers: the names that `storages` has for them; "" for one that has none
  readonly events: RunEvent[];
}

/** Lines first..last (1-based, inclusive) of a generated source stand there because of `fact`. */
export interface WrapperNote {
  readonly first: number;
  readonly last: number;
  readonly fact: string;
  readonly subject: string; // the input or output that it is about, or ""
}

/** The generated Python that runs on every call (docs/design/system.md G4). */
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
  readonly kernels: ReadonlyMap<string, ReadonlyMap<string, string[]>>; // name of a text -> "kernel:number" of a call in it -> nodes computed
  readonly replays: ReadonlyMap<string, number>; // role of a graph that Inductor's cache had -> what compiling it took then, ns
  readonly replayed: boolean; // it did not run here: its record is from the cache, and its times are of the compilation
}

/** Why a compilation was not finished. */
export interface ErrorRecord {
  readonly stage: string;
  readonly type: string;
  readonly message: string;
  readonly ran_in_eager: boolean; // the caller got no error: the graph runs in eager, as Dynamo captured it
  readonly place: string; // "file:line in function" of the user's code, "" if unknown
}

/** An error that stopped a call of a compiled function, or a hook that its programs do not call. Logs lack these. */
export interface CallError {
  readonly type: string; // of a hook: "forward hook" or another kind
  readonly message: string; // its first lines; of a hook: its name
  readonly guards: string[]; // of a call that needed a new program: "0/0: x is None" for each; of a hook: [compilation]
  readonly function: string; // the user's, in which it was raised; "" if unknown; of a hook: the path of its module
  readonly source: string; // the user's line: "file:line code"; "" if unknown; of a hook: where it is defined
  readonly during: string; // "program" | its "backward" | "eager" part | "compile" | "export" | "outside" | "hook", or ""
  readonly kernel: string; // of Inductor's, in which it was raised: "cpp_fused_mul_0"; "" if in none; of a hook: the class
  readonly about: string[]; // the inference tensors among the values; of an operator: where its fake kernel is defined
}

/** One node of the autograd graph in a captured backward, in the order in which they run. */
export interface VisitRecord {
  readonly node: string; // e.g. "MulBackward0"
  readonly subject: string; // of AccumulateGrad: the leaf, by the user's name; "" if unknown, or for others
  readonly steps: string[]; // nodes of the captured graph, as the stage "dead nodes" leaves it
  readonly hooks: string[]; // the kinds of the hooks that are called at it, in order
  readonly waits_for: number[]; // positions of the visits whose results it reads
  readonly frees: string[]; // inputs of the captured graph that nothing reads after it
  readonly parts: number[]; // numbers of the compiled parts that compute it; empty if only Python does
  readonly copied: string; // the prefix of the steps that come from a compiled backward, e.g. "aot0"
}

/** The lines of an ingredient of a key that differ from those of the nearest earlier key. */
export interface Differing {
  readonly name: string; // of the ingredient, e.g. "Inductor's settings"
  readonly before: string; // the first lines that differ, in the earlier key; "" if it has none
  readonly after: string;
}

/** What aotviz's cache said about a compilation, in short. The look-up is in RecordingData.cache_lookups. */
export interface CacheAnswer {
  readonly outcome: string; // "hit" | "guard miss" | "miss" | "bypass"
  readonly words: string; // one sentence: what differs from the nearest key, which guard failed, or why it was bypassed
  readonly place: string; // "file:line in function": the user's line that it is about
  readonly key: string; // hex; "" if there is none
  readonly nearest: string; // after a miss: the most similar earlier key
  readonly differs: Differing[]; // after a miss: what differs from it
  readonly saved_ns: number; // after a hit: how long compiling took when the entry was made
  readonly saved_at_unix_s: number; // after a hit: when the entry was made; 0 if unknown
}

/** A compilation that aotviz's cache had: it was compiled earlier, maybe by another process. */
export interface ReplayRecord {
  readonly key: string; // of the entry, hex; "" if unknown
  readonly saved_ns: number; // how long compiling took then; 0 if unknown
  readonly saved_at_unix_s: number; // when the entry was made; 0 if unknown
  readonly note: string; // why there are no stages from the cache; "" if there are
}

/** One function's way through the compiler. Of a log: all attempts at one compile id on one rank. */
export interface CompilationData {
  readonly id: string; // unique within the recording: "0", "1", ... of our own; of a log e.g. "0/3", or "rank 1: 0/3"
  readonly name: string; // the function's or module's name
  readonly kind: string; // "training" | "inference" | "compiled autograd"; "" where a log doesn't say, or it failed before
  readonly started_unix_ns: number; // 0 where a log doesn't say
  readonly options: ReadonlyMap<string, string>;
  readonly stages: StageRecord[];
  readonly graphs: GraphSnapshot[];
  readonly values: ValueRecord[];
  readonly inputs: InputRecord[];
  readonly outputs: OutputRecord[];
  readonly saved_tensors: SavedTensorRecord[];
  readonly wrapper: WrapperRecord | null;
  readonly error: ErrorRecord | null;
  readonly compile_id: string; // Dynamo's, e.g. "0/3", or "!1/0/3" in compiled autograd; "" for our own
  readonly attempts: number; // how often Dynamo tried; it starts again after e.g. a graph break
  readonly rank: number; // of the process that compiled it, -1 where there is one process
  readonly log: number; // index into RecordingData.logs
  readonly stack: number; // the user's frames when it began, the compiled function's own last
  readonly because: string[]; // why each program there was did not do, the newest first; empty for the first
  readonly graph_texts: number[]; // one per graph: what it was parsed from; empty for our own
  readonly recomputed: RecomputedRecord[];
  readonly storages: StorageRecord[]; // of our own: the memory of inputs, outputs, and what is written in between
  readonly frame: number; // the function that Dynamo compiled: a number that its compilations share, up to a reset
  readonly visits: VisitRecord[]; // of a captured backward
  readonly reset: number; // calls of torch._dynamo.reset() before, as far as they are known of
  readonly cache: CacheAnswer | null; // aotviz's cache was asked for it before its first stage
  readonly replayed: ReplayRecord | null; // that cache had it
  readonly run: RunLog | null; // of our own
  readonly sizes: ReadonlyMap<string, number>; // by its symbol, each symbolic size in the call that was compiled
}

/** Where in the logs a record stands, and what it is about. */
export interface Origin {
  readonly log: number; // index into RecordingData.logs
  readonly line: number; // of the log, 1-based
  readonly compilation: number; // index into RecordingData.compilations, -1 if it is about none
  readonly attempt: number; // of that compilation, from 0
  readonly unix_ns: number; // when it was written; 0 if unknown
}

/** A line of a log that could not be read. */
export interface BadLine {
  readonly line: number; // 1-based
  readonly reason: string;
  readonly text: string; // how it begins
}

/** One file of a log, or one live watch. */
export interface LogRecord {
  readonly name: string; // the path, as the reader was given it or found it
  readonly rank: number; // -1 if it says none
  readonly nbytes: number; // unpacked
  readonly lines: number;
  readonly records: ReadonlyMap<string, number>; // record type (an artifact: "artifact/name") -> how many
  readonly unknown: ReadonlyMap<string, number>; // the same, of the types that this aotviz doesn't know; kept as artifacts
  readonly bad: BadLine[]; // the first of them
  readonly bad_lines: number; // how many there are
  readonly torch: string; // version that wrote it, "" if it doesn't say
  readonly processes: number[]; // the process or thread ids that wrote it
}

/** One check that Dynamo makes before it reuses a compilation. */
export interface GuardRecord {
  readonly origin: Origin;
  readonly kind: string; // e.g. "TENSOR_MATCH", "EQUALS_MATCH", "SHAPE_ENV"; "" if unknown
  readonly source: number; // the expression that it is about, e.g. "L['x']"
  readonly text: number; // the check
  readonly code: number; // the user's source line that made it
  readonly place: number; // "file:line in function" of that line
  readonly stack: number; // the user's frames as a traceback prints them
}

/** A check of an earlier compilation that a call did not pass, found by trying each of its checks. */
export interface FailedGuard {
  readonly guard: number; // the check
  readonly now: number; // what it found instead; -1 if that can't be told in a few words
  readonly source: number; // the expression that it is about
  readonly code: number; // the user's source line that made the check
  readonly place: number; // "file:line in function" of that line
  readonly stack: number; // the user's frames
}

/** Why one earlier compilation could not be used. */
export interface RecompileReason {
  readonly earlier: string; // its compile id, e.g. "0/0"; "" where the log doesn't say
  readonly guard: number; // the check that failed
  readonly code: number; // the user's source line that made the check
  readonly place: number; // "file:line in function" of that line
  readonly stack: number; // the user's frames
  readonly raw: number; // as logged
  readonly failed: FailedGuard[]; // every check that the call did not pass; empty where not all were tried
}

/** A frame was compiled again: the compilation of `origin` is the new one. */
export interface RecompileRecord {
  readonly origin: Origin;
  readonly reasons: RecompileReason[]; // one per earlier compilation, the newest first
  readonly left_out: number; // reasons like those, which differ in a value: see guard_texts.telling
}

/** What a key was made of differs from what an earlier one was made of. */
export interface KeyDifference {
  readonly name: string; // of the ingredient, e.g. "Inductor's settings"
  readonly before: number; // its text in the earlier key
  readonly after: number;
}

/** One look-up in aotviz's cache, or in one of torch's compile caches. */
export interface CacheLookup {
  readonly origin: Origin;
  readonly cache: string; // "aotviz", or torch's: "aotautograd" | "fx" | "fx bundled" | "dynamo" | "precompile"
  readonly outcome: string; // "hit" | "miss" | "bypass"; of aotviz's cache also "guard miss": the sizes of the call don't fit
  readonly key: string; // "" where there is none
  readonly components: number[]; // "name: content": what the key was made of
  readonly component_hashes: number[]; // one per component
  readonly reason: number; // why it was bypassed, or why the guards of the entries failed
  readonly fields: ReadonlyMap<string, number>; // what else the log says, as JSON
  readonly place: number; // "file:line in function": the user's line that the reason is about
  readonly nearest: string; // after a miss of aotviz's cache: the most similar earlier key
  readonly differs: KeyDifference[]; // after such a miss: what differs from the nearest key
  readonly saved_ns: number; // after a hit of aotviz's cache: how long compiling took when the entry was made
  readonly saved_at_unix_s: number; // after such a hit: when the entry was made; 0 if unknown
}

/** Dynamo ended a graph before the function's end. */
export interface GraphBreak {
  readonly origin: Origin;
  readonly reason: number; // the first line of the explanation
  readonly place: number; // "file:line" of the user's code
  readonly stack: number; // the user's frames
  readonly text: number; // all that the log says
}

/** What a reader sees in place of one of torch's texts. */
export interface PlainText {
  readonly text: number;
  readonly words: string;
}

/** What torch counted and timed for one compilation, or one later part of it. */
export interface MetricsRecord {
  readonly origin: Origin;
  readonly kind: string; // "compilation" | "backward" | "runtime"
  readonly start_unix_s: number; // 0 if unknown
  readonly end_unix_s: number; // 0 if unknown
  readonly fail_type: string; // "" where it did not fail
  readonly fail_reason: number;
  readonly fail_place: number; // "file:line" of the user's code
  readonly numbers: ReadonlyMap<string, number | number>; // all fields that are numbers, by torch's name; its units are in the name
  readonly texts: ReadonlyMap<string, number>; // all other fields that say something; lists and mappings as JSON
}

/** The timeline in columns, one row an event, in the order of their beginnings. */
export interface EventTable {
  readonly name: number[];
  readonly start_us: number[]; // unix time
  readonly duration_us: number[]; // 0 for an instant, -1 for one without an end
  readonly parent: number[]; // row of the event around it in the same thread, -1 if none
  readonly compilation: number[]; // index into RecordingData.compilations, -1 if none
  readonly log: number[]; // index into RecordingData.logs
  readonly line: number[]; // of the log, where it begins
  readonly thread: number[];
  readonly args: number[]; // JSON, -1 if there are none
}

/** A step in the life of symbolic shapes: a symbol made or specialised, an expression guarded on. */
export interface ShapeRecord {
  readonly origin: Origin;
  readonly kind: string; // the record's type, e.g. "create_symbol", "guard_added", "symbolic_shape_specialization"
  readonly expression: number; // the symbol or expression
  readonly value: number;
  readonly source: number; // where the symbol comes from, e.g. "L['x'].size()[0]"
  readonly reason: number;
  readonly stack: number; // the user's frames
  readonly framework_stack: number; // all frames
  readonly fields: number; // what else the log says, as JSON
}

/** A storage that the compiler met among a function's inputs. */
export interface StorageDescription {
  readonly origin: Origin;
  readonly describer: number; // numbers of different describers don't compare
  readonly storage: number;
  readonly nbytes: number;
  readonly fields: number; // what else the log says, as JSON
}

/** A tensor that the compiler met among a function's inputs. */
export interface TensorDescription {
  readonly origin: Origin;
  readonly describer: number; // numbers of different describers don't compare
  readonly tensor: number;
  readonly storage: number; // -1 without a storage
  readonly base: number; // tensor that it is a view of, -1 if none
  readonly sources: number[]; // where it was found, e.g. "L['x']"
  readonly dtype: string;
  readonly device: string;
  readonly shape: (number | string)[];
  readonly stride: (number | string)[];
  readonly offset: number | string;
  readonly is_leaf: boolean;
  readonly requires_grad: boolean;
  readonly fields: number; // what else the log says, as JSON
}

/** The collectives that one compiled graph runs, in order. */
export interface CollectiveSchedule {
  readonly origin: Origin;
  readonly name: string; // the artifact that said so
  readonly operations: number[];
}

/** A text of a log, and every record that has no list of its own. */
export interface ArtifactRecord {
  readonly origin: Origin;
  readonly type: number; // the record's type, e.g. "artifact", "aot_joint_graph", "inductor_output_code"
  readonly name: number; // the artifact's name; of another type its file name, if it has one
  readonly encoding: string; // "string" | "json" | ""
  readonly text: number; // the payload, -1 if there is none
  readonly fields: number; // the record without its payload, as JSON; -1 if that says no more
}

/** A recording. Logs fill the lists after `notes`, our pipeline cache lookups, guards, graph breaks and shapes. */
export interface RecordingData {
  readonly format: string;
  readonly version: number;
  readonly producer: ReadonlyMap<string, string>; // versions of "aotviz", "torch", "python"
  readonly strings: string[];
  readonly compilations: CompilationData[];
  readonly dropped: number; // compilations left out because the recording was full
  readonly notes: string[]; // what a user should know of how it was read, e.g. files that were ignored
  readonly logs: LogRecord[];
  readonly guards: GuardRecord[];
  readonly recompiles: RecompileRecord[];
  readonly cache_lookups: CacheLookup[];
  readonly graph_breaks: GraphBreak[];
  readonly metrics: MetricsRecord[];
  readonly events: EventTable;
  readonly shapes: ShapeRecord[];
  readonly storages: StorageDescription[];
  readonly tensors: TensorDescription[];
  readonly collectives: CollectiveSchedule[];
  readonly artifacts: ArtifactRecord[];
  readonly compared: ComparedInputs | null; // what `aotviz.compare_inputs` found
  readonly rank_differences: RankDifference[]; // found when it is shown or saved (explain/ranks.py)
  readonly why: WhyCompiled[]; // one for each recompile, found in the same way (explain/recompiles.py)
  readonly plain: PlainText[]; // of the texts of the rows, found in the same way (explain/plain_texts.py)
  readonly overview: OverviewRecord | null; // found in the same way (explain/overview.py)
  readonly peaks: PeakRecord[]; // of small compilations, found in the same way (explain/peaks.py)
  readonly step: StepRecord | null; // the memory of a training step, found in the same way (explain/steps.py)
  readonly paintings: Painting[]; // in the order in which they were added
  readonly call_errors: CallError[]; // in the order in which they were raised
}

/** One of several sets of inputs that a function was compiled for. */
export interface InputSet {
  readonly name: string; // the user's
  readonly compilation: string; // its id, "" if nothing was recorded
  readonly error: string; // why it was not compiled, in words; "" if it was
}

/** One function, compiled for several sets of inputs. */
export interface ComparedInputs {
  readonly function: string;
  readonly sets: InputSet[];
  readonly sentences: string[]; // one for each difference; `code` in backquotes
}

/** A number or a category of the user's for each of some nodes, shown as the colour of these nodes. */
export interface Painting {
  readonly compilation: string; // its id
  readonly label: string; // the user's; one compilation has each label once
  readonly unit: string; // of the numbers, "" if unknown
  readonly note: string; // a remark to show with it, or ""
  readonly groups: string; // what a closed module shows: "largest" | "sum" of its nodes
  readonly names: string[]; // of the nodes
  readonly stages: string[]; // one per name: the stage that it is of; "" means every stage
  readonly graphs: string[]; // one per name: the role of the graph that it is of; "" means every graph
  readonly numbers: number[]; // one per name; empty for categories
  readonly texts: string[]; // one per name: its category; empty for numbers
  readonly stage: string; // where it is opened: the name of the stage
  readonly graph: string; // the role of the graph
  readonly node: string; // the node that is selected, or ""
}

/** A change that would lower the peak of a compilation (recording/peak_changes.py). */
export interface PeakChange {
  readonly kind: string; // "recompute" | "checkpoint" | "reorder" | "let go" | "keep the cast"
  readonly what: string; // a sentence; `code` in backquotes
  readonly saves: number; // bytes, of the peak
  readonly peak: number; // bytes, with the change
  readonly at: string; // the node at that peak
  readonly recompute_ms: number; // what the backward runs again, estimated
  readonly source: string; // the line of the largest value that it is about, or ""
  readonly values: string[]; // the nodes that make these values
}

/** What would lower the peak of a compilation, and what it keeps for the backward beside eager. */
export interface PeakRecord {
  readonly compilation: string; // its id
  readonly peak: number; // bytes, as recorded
  readonly changes: PeakChange[]; // the best first
  readonly beside_eager: string[]; // sentences (recording/beside_eager.py); empty if there is no backward
  readonly inductor: string[]; // sentences (recording/inductor_memory.py); empty if Inductor did not compile it
  readonly device: string; // whose memory it is; "" where all of it is on one
}

/** A graph that runs in a training step. */
export interface StepGraph {
  readonly phase: string; // "forward" | "backward" | "step"
  readonly compilation: string; // its id
  readonly stage: string;
  readonly role: string;
}

/** A node that runs in a training step, or makes a value of it. Its texts are numbers in `StepRecord.texts`. */
export interface StepNode {
  readonly graph: number; // in `StepRecord.graphs`
  readonly index: number; // in that graph
  readonly op: string; // one letter, as in GraphSnapshot
  readonly name: number;
  readonly target: number;
  readonly descriptor: number;
  readonly module: number;
  readonly file: number; // of the user's line
  readonly line: number;
  readonly code: number;
  readonly checkpoint: number; // its tag in a checkpoint, in words
}

/** A storage of a training step, from the moment at which it is made to the last that holds it. */
export interface StepHolder {
  readonly maker: number; // in `StepRecord.nodes`
  readonly kind: number; // a text, as the rest without a remark
  readonly nbytes: number;
  readonly dtype: number;
  readonly shape: (number | string)[];
  readonly made_at: number; // a moment
  readonly held_until: number; // a moment
  readonly held_by: number;
  readonly device: number;
}

/** The planned memory of a training step that was compiled in pieces (recording/step_memory.py). */
export interface StepRecord {
  readonly texts: string[];
  readonly graphs: StepGraph[];
  readonly nodes: StepNode[];
  readonly moments: number[]; // for each, the node in `nodes` that runs
  readonly holders: StepHolder[];
}

/** What some ranks run, in order. */
export interface RankLane {
  readonly ranks: string; // "rank 1", "ranks 0, 2 and 3"
  readonly steps: string[];
  readonly before: number; // steps left out before these, which are the same on all ranks
  readonly after: number; // steps left out after these
}

/** One thing to look at, in the order of `explain`. */
export interface CauseRecord {
  readonly kind: string; // "recompile" | "graph break" | "restart" | "cache" | "failed" | "eager" | "ranks" | "export"
  readonly title: string; // what it is, in some words; `code` in backquotes
  readonly text: string; // all that is known of it
  readonly code: string; // the user's line, or ""
  readonly place: string; // where it is: "model.py:17", or ""
  readonly fix: string; // what to do, or ""
  readonly seconds: number; // what it cost, 0 if that is not timed
  readonly failed: boolean; // something failed, runs in eager since, or may hang
  readonly ids: string[]; // the compilations that it is about
  readonly followed: string[]; // what came of it: cache misses, restarts
}

/** A part of the time that compiling took. */
export interface TimeShare {
  readonly name: string;
  readonly seconds: number;
}

/** One function, with all its compilations; or what Dynamo made of its rest after a graph break. */
export interface FunctionRecord {
  readonly name: string;
  readonly place: string; // "model.py:17", or ""
  readonly after: string; // "" | "after line 8": the rest of the function before it in the list
  readonly ids: string[]; // of the compilations, in order
  readonly again: number; // recompiles among them
  readonly seconds: number; // 0 if not timed
  readonly nodes: number; // of the largest graph of the last compilation; -1 if unknown
  readonly kept_bytes: number; // for the backward, of the last compilation; -1 if unknown
  readonly aliases: string; // inputs that are written, and results that are views, of the last compilation; "" if none is known
  readonly in_eager: string; // why it ran in eager, or ""
}

/** A frame of the flame graph of the compile time (explain/flame.py), in front of those in it. */
export interface TimeFrame {
  readonly name: string; // a module's, `h.*` for several equal ones; a function's; or a line
  readonly depth: number;
  readonly seconds: number; // of all in it
  readonly kind: string; // the module's class, or ""
  readonly place: string; // of a line: "model.py:17"
  readonly code: string; // of a line
  readonly ids: string[]; // the compilations
}

/** What a person sees first of a recording (explain/overview.py). */
export interface OverviewRecord {
  readonly headline: string;
  readonly healthy: boolean; // nothing failed, was compiled again or ended a graph
  readonly seconds: number; // that compiling took, 0 if not timed
  readonly times: TimeShare[]; // they add up to `seconds`
  readonly causes: CauseRecord[];
  readonly functions: FunctionRecord[];
  readonly remarks: string[];
  readonly frames: TimeFrame[]; // shown by the timeline
}

/** One thing in which the ranks of a job differ. */
export interface RankDifference {
  readonly kind: string; // "collectives", "execution order", "compilation", "graph", "tensor metadata", ...
  readonly function: string; // "" for a difference that is not about one function
  readonly ids: string[]; // the compilations
  readonly words: string;
  readonly fix: string;
  readonly lanes: RankLane[]; // one for the ranks that run the same
}

/** Why a function was compiled again, in words. */
export interface WhyCompiled {
  readonly compilation: string; // its id
  readonly words: string; // sentences; `code` in backquotes
  readonly code: string; // the user's line that they are about, "" if unknown
  readonly place: string; // where that line is: "model.py:17"
  readonly fix: string; // what to do; "" if nothing
}

/** What a list of compilations shows of one. */
export interface CompilationHead {
  readonly id: string; // unique within the recording
  readonly name: string; // the function's or module's name
  readonly kind: string; // "training" | "inference"; "" where a log doesn't say
  readonly started_unix_ns: number; // 0 where a log doesn't say
  readonly elapsed_ns: number; // of all stages that ran here; 0 where that is not known yet
  readonly stages: number; // how many; 0 where that is not known yet
  readonly nodes: number; // of the largest graph; 0 where that is not known yet
  readonly compile_id: string; // Dynamo's, "" for our own
  readonly attempts: number;
  readonly rank: number; // -1 where there is one process
  readonly because: string[]; // for each existing program, the reason it did not match
  readonly options: ReadonlyMap<string, string>;
  readonly error: ErrorRecord | null;
  readonly revision: number; // changes when there is more to see; 0 when the compilation is complete
  readonly frame: number; // the function, by a number that its compilations share; -1 if unknown
  readonly cache: CacheAnswer | null; // what aotviz's cache said about it
}

/** What a page must know before its reader has looked at anything. */
export interface RecordingIndex {
  readonly format: string;
  readonly version: number;
  readonly producer: ReadonlyMap<string, string>;
  readonly dropped: number;
  readonly notes: string[];
  readonly compilations: CompilationHead[];
  readonly rows: ReadonlyMap<string, number>; // kind of rows (see RowsPart) -> how many there are
  readonly compared: ComparedInputs | null; // the sets of inputs, and how they differ
  readonly paintings: Painting[];
}

/** Some of a recording's texts: `texts[i]` is the text of number `numbers[i]`. */
export interface TextTable {
  readonly numbers: number[];
  readonly texts: string[];
}

/** A compilation without its graphs, its values and what its stages' texts say (only their names are there). */
export interface CompilationPart {
  readonly compilation: CompilationData;
  readonly graph_values: number[][]; // per graph of the compilation, the value of each node
  readonly graph_bytes: number[]; // per graph, what its operators make (sizes.py); -1 where a size is symbolic
  readonly code_lines: (ReadonlyMap<string, number>)[]; // per stage, the length of each of its texts
  readonly cache_lookups: CacheLookup[]; // that it made, without what their keys were made of
  readonly text_table: TextTable;
}

/** One graph, with the values of its nodes: `values[i]` has the number `value_numbers[i]`. */
export interface GraphPart {
  readonly graph: GraphSnapshot;
  readonly value_numbers: number[];
  readonly values: ValueRecord[];
  readonly text_table: TextTable;
}

/** The texts of one stage. */
export interface CodePart {
  readonly code: ReadonlyMap<string, string>;
}

/** The paintings alone: what a notebook keeps of those that were added after a recording was shown. */
export interface PaintingsPart {
  readonly paintings: Painting[];
}

/** When a stage of aotviz's own pipeline ran here. */
export interface StageSpan {
  readonly name: string;
  readonly started_ns: number; // since the compilation began
  readonly elapsed_ns: number;
  readonly late: boolean; // after the compilation had returned
}

/**
 * The rows of one kind, of all compilations. The lists of other kinds are empty.
 *
 * The kinds are "timeline" (`own`, `events`, `logs`, and what is drawn as marks), "stacks" (with `metrics`), "ranks"
 * (`rank_differences`), "why", "overview", "peak ID" (`peaks`, of the compilation with that id), "step", and the
 * names of the lists `guards`, `metrics`, `shapes`, `graph_breaks`, `cache_lookups` and `links`.
 */
export interface RowsPart {
  readonly compilations: string[]; // the ids of the compilations, by the number that the rows have
  readonly text_table: TextTable;
  readonly own: ReadonlyMap<string, StageSpan[]>; // id of a compilation of aotviz's own pipeline -> its stages that ran here
  readonly logs: LogRecord[]; // without bad lines
  readonly events: EventTable; // without arguments
  readonly restarts: Origin[]; // where each later attempt of a compilation begins
  readonly stacks: number[]; // per compilation, the user's frames when it began
  readonly guards: GuardRecord[];
  readonly metrics: MetricsRecord[];
  readonly shapes: ShapeRecord[];
  readonly graph_breaks: GraphBreak[];
  readonly cache_lookups: CacheLookup[]; // without what their keys were made of
  readonly links: ArtifactRecord[];
  readonly rank_differences: RankDifference[];
  readonly why: WhyCompiled[];
  readonly plain: PlainText[]; // what is seen in place of texts of these rows
  readonly overview: OverviewRecord | null;
  readonly peaks: PeakRecord[];
  readonly step: StepRecord | null;
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
      ["checkpoint", ["map","int",["list","int"]], {}],
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
      ["stride", ["list",["or","int","str"]], []],
      ["offset", ["or","int","str"], 0],
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
      ["stride", ["list",["or","int","str"]], []],
      ["offset", ["or","int","str"], 0],
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
      ["hook", "str", ""],
      ["consumers", ["list","str"], []],
      ["dies_at", "int", -1],
      ["memory_of", "str", ""],
      ["shares_with", "str", ""],
      ["held_bytes", ["or","int","none"], -1],
      ["held_until", "int", -1],
    ],
  },
  RecomputedRecord: {
    array: false,
    fields: [
      ["name", "str"],
      ["dtype", "str"],
      ["shape", ["list",["or","int","str"]]],
      ["nbytes", ["or","int","none"]],
      ["producer", "str"],
      ["source", "str"],
      ["module", "str"],
      ["consumers", ["list","str"]],
      ["made_at", "int"],
      ["dies_at", "int"],
    ],
  },
  AliasTensor: {
    array: true,
    fields: [
      ["names", ["list","str"]],
      ["role", "str"],
      ["shape", ["list",["or","int","str"]]],
      ["stride", ["list",["or","int","str"]]],
      ["offset", ["or","int","str"]],
      ["itemsize", "int"],
      ["view_of", "int"],
      ["step", "str"],
      ["node", "str"],
      ["source", "str"],
    ],
  },
  StorageWrite: {
    array: true,
    fields: [
      ["order", "int"],
      ["tensor", "int"],
      ["kind", "str"],
      ["operator", "str"],
      ["node", "str"],
      ["source", "str"],
      ["grad_mode", "bool"],
    ],
  },
  StorageRecord: {
    array: false,
    fields: [
      ["nbytes", ["or","int","none"]],
      ["device", "str"],
      ["tensors", ["list",["record","AliasTensor"]]],
      ["writes", ["list",["record","StorageWrite"]]],
      ["left_out", "int", 0],
    ],
  },
  RunFact: {
    array: true,
    fields: [
      ["subject", "int"],
      ["fact", "int"],
      ["text", "int"],
    ],
  },
  RunEvent: {
    array: true,
    fields: [
      ["what", "int"],
      ["tensor", "int"],
      ["of", "int"],
      ["operator", "int"],
      ["node", "int"],
      ["source", "int"],
      ["mode", "int"],
      ["made", ["list",["record","RunFact"]]],
    ],
  },
  RunLog: {
    array: false,
    fields: [
      ["tensors", ["list","int"]],
      ["events", ["list",["record","RunEvent"]]],
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
      ["kernels", ["map","str",["map","str",["list","str"]]], {}],
      ["replays", ["map","str","int"], {}],
      ["replayed", "bool", false],
    ],
  },
  ErrorRecord: {
    array: false,
    fields: [
      ["stage", "str"],
      ["type", "str"],
      ["message", "str"],
      ["ran_in_eager", "bool", false],
      ["place", "str", ""],
    ],
  },
  CallError: {
    array: false,
    fields: [
      ["type", "str"],
      ["message", "str"],
      ["guards", ["list","str"]],
      ["function", "str"],
      ["source", "str"],
      ["during", "str", ""],
      ["kernel", "str", ""],
      ["about", ["list","str"], []],
    ],
  },
  VisitRecord: {
    array: false,
    fields: [
      ["node", "str"],
      ["subject", "str"],
      ["steps", ["list","str"]],
      ["hooks", ["list","str"]],
      ["waits_for", ["list","int"]],
      ["frees", ["list","str"]],
      ["parts", ["list","int"]],
      ["copied", "str", ""],
    ],
  },
  Differing: {
    array: true,
    fields: [
      ["name", "str"],
      ["before", "str"],
      ["after", "str"],
    ],
  },
  CacheAnswer: {
    array: false,
    fields: [
      ["outcome", "str"],
      ["words", "str"],
      ["place", "str", ""],
      ["key", "str", ""],
      ["nearest", "str", ""],
      ["differs", ["list",["record","Differing"]], []],
      ["saved_ns", "int", 0],
      ["saved_at_unix_s", "float", 0.0],
    ],
  },
  ReplayRecord: {
    array: false,
    fields: [
      ["key", "str"],
      ["saved_ns", "int"],
      ["saved_at_unix_s", "float"],
      ["note", "str", ""],
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
      ["compile_id", "str", ""],
      ["attempts", "int", 1],
      ["rank", "int", -1],
      ["log", "int", -1],
      ["stack", "int", -1],
      ["because", ["list","str"], []],
      ["graph_texts", ["list","int"], []],
      ["recomputed", ["list",["record","RecomputedRecord"]], []],
      ["storages", ["list",["record","StorageRecord"]], []],
      ["frame", "int", -1],
      ["visits", ["list",["record","VisitRecord"]], []],
      ["reset", "int", 0],
      ["cache", ["or",["record","CacheAnswer"],"none"], null],
      ["replayed", ["or",["record","ReplayRecord"],"none"], null],
      ["run", ["or",["record","RunLog"],"none"], null],
      ["sizes", ["map","str","int"], {}],
    ],
  },
  Origin: {
    array: true,
    fields: [
      ["log", "int"],
      ["line", "int"],
      ["compilation", "int"],
      ["attempt", "int"],
      ["unix_ns", "int"],
    ],
  },
  BadLine: {
    array: true,
    fields: [
      ["line", "int"],
      ["reason", "str"],
      ["text", "str"],
    ],
  },
  LogRecord: {
    array: false,
    fields: [
      ["name", "str"],
      ["rank", "int"],
      ["nbytes", "int"],
      ["lines", "int"],
      ["records", ["map","str","int"]],
      ["unknown", ["map","str","int"]],
      ["bad", ["list",["record","BadLine"]]],
      ["bad_lines", "int"],
      ["torch", "str"],
      ["processes", ["list","int"]],
    ],
  },
  GuardRecord: {
    array: false,
    fields: [
      ["origin", ["record","Origin"]],
      ["kind", "str"],
      ["source", "int"],
      ["text", "int"],
      ["code", "int"],
      ["place", "int"],
      ["stack", "int"],
    ],
  },
  FailedGuard: {
    array: true,
    fields: [
      ["guard", "int"],
      ["now", "int"],
      ["source", "int"],
      ["code", "int"],
      ["place", "int"],
      ["stack", "int"],
    ],
  },
  RecompileReason: {
    array: true,
    fields: [
      ["earlier", "str"],
      ["guard", "int"],
      ["code", "int"],
      ["place", "int"],
      ["stack", "int"],
      ["raw", "int"],
      ["failed", ["list",["record","FailedGuard"]], []],
    ],
  },
  RecompileRecord: {
    array: false,
    fields: [
      ["origin", ["record","Origin"]],
      ["reasons", ["list",["record","RecompileReason"]]],
      ["left_out", "int", 0],
    ],
  },
  KeyDifference: {
    array: true,
    fields: [
      ["name", "str"],
      ["before", "int"],
      ["after", "int"],
    ],
  },
  CacheLookup: {
    array: false,
    fields: [
      ["origin", ["record","Origin"]],
      ["cache", "str"],
      ["outcome", "str"],
      ["key", "str"],
      ["components", ["list","int"]],
      ["component_hashes", ["list","int"]],
      ["reason", "int"],
      ["fields", ["map","str","int"]],
      ["place", "int", -1],
      ["nearest", "str", ""],
      ["differs", ["list",["record","KeyDifference"]], []],
      ["saved_ns", "int", 0],
      ["saved_at_unix_s", "float", 0.0],
    ],
  },
  GraphBreak: {
    array: false,
    fields: [
      ["origin", ["record","Origin"]],
      ["reason", "int"],
      ["place", "int"],
      ["stack", "int"],
      ["text", "int"],
    ],
  },
  PlainText: {
    array: false,
    fields: [
      ["text", "int"],
      ["words", "str"],
    ],
  },
  MetricsRecord: {
    array: false,
    fields: [
      ["origin", ["record","Origin"]],
      ["kind", "str"],
      ["start_unix_s", "float"],
      ["end_unix_s", "float"],
      ["fail_type", "str"],
      ["fail_reason", "int"],
      ["fail_place", "int"],
      ["numbers", ["map","str",["or","int","float"]]],
      ["texts", ["map","str","int"]],
    ],
  },
  EventTable: {
    array: false,
    fields: [
      ["name", ["list","int"]],
      ["start_us", ["list","float"]],
      ["duration_us", ["list","float"]],
      ["parent", ["list","int"]],
      ["compilation", ["list","int"]],
      ["log", ["list","int"]],
      ["line", ["list","int"]],
      ["thread", ["list","int"]],
      ["args", ["list","int"]],
    ],
  },
  ShapeRecord: {
    array: false,
    fields: [
      ["origin", ["record","Origin"]],
      ["kind", "str"],
      ["expression", "int"],
      ["value", "int"],
      ["source", "int"],
      ["reason", "int"],
      ["stack", "int"],
      ["framework_stack", "int"],
      ["fields", "int"],
    ],
  },
  StorageDescription: {
    array: true,
    fields: [
      ["origin", ["record","Origin"]],
      ["describer", "int"],
      ["storage", "int"],
      ["nbytes", "int"],
      ["fields", "int"],
    ],
  },
  TensorDescription: {
    array: false,
    fields: [
      ["origin", ["record","Origin"]],
      ["describer", "int"],
      ["tensor", "int"],
      ["storage", "int"],
      ["base", "int"],
      ["sources", ["list","int"]],
      ["dtype", "str"],
      ["device", "str"],
      ["shape", ["list",["or","int","str"]]],
      ["stride", ["list",["or","int","str"]]],
      ["offset", ["or","int","str"]],
      ["is_leaf", "bool"],
      ["requires_grad", "bool"],
      ["fields", "int"],
    ],
  },
  CollectiveSchedule: {
    array: false,
    fields: [
      ["origin", ["record","Origin"]],
      ["name", "str"],
      ["operations", ["list","int"]],
    ],
  },
  ArtifactRecord: {
    array: true,
    fields: [
      ["origin", ["record","Origin"]],
      ["type", "int"],
      ["name", "int"],
      ["encoding", "str"],
      ["text", "int"],
      ["fields", "int"],
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
      ["notes", ["list","str"], []],
      ["logs", ["list",["record","LogRecord"]], []],
      ["guards", ["list",["record","GuardRecord"]], []],
      ["recompiles", ["list",["record","RecompileRecord"]], []],
      ["cache_lookups", ["list",["record","CacheLookup"]], []],
      ["graph_breaks", ["list",["record","GraphBreak"]], []],
      ["metrics", ["list",["record","MetricsRecord"]], []],
      ["events", ["record","EventTable"], {"name":[],"start_us":[],"duration_us":[],"parent":[],"compilation":[],"log":[],"line":[],"thread":[],"args":[]}],
      ["shapes", ["list",["record","ShapeRecord"]], []],
      ["storages", ["list",["record","StorageDescription"]], []],
      ["tensors", ["list",["record","TensorDescription"]], []],
      ["collectives", ["list",["record","CollectiveSchedule"]], []],
      ["artifacts", ["list",["record","ArtifactRecord"]], []],
      ["compared", ["or",["record","ComparedInputs"],"none"], null],
      ["rank_differences", ["list",["record","RankDifference"]], []],
      ["why", ["list",["record","WhyCompiled"]], []],
      ["plain", ["list",["record","PlainText"]], []],
      ["overview", ["or",["record","OverviewRecord"],"none"], null],
      ["peaks", ["list",["record","PeakRecord"]], []],
      ["step", ["or",["record","StepRecord"],"none"], null],
      ["paintings", ["list",["record","Painting"]], []],
      ["call_errors", ["list",["record","CallError"]], []],
    ],
  },
  InputSet: {
    array: false,
    fields: [
      ["name", "str"],
      ["compilation", "str"],
      ["error", "str"],
    ],
  },
  ComparedInputs: {
    array: false,
    fields: [
      ["function", "str"],
      ["sets", ["list",["record","InputSet"]]],
      ["sentences", ["list","str"]],
    ],
  },
  Painting: {
    array: false,
    fields: [
      ["compilation", "str"],
      ["label", "str"],
      ["unit", "str"],
      ["note", "str"],
      ["groups", "str"],
      ["names", ["list","str"]],
      ["stages", ["list","str"]],
      ["graphs", ["list","str"]],
      ["numbers", ["list","float"]],
      ["texts", ["list","str"]],
      ["stage", "str"],
      ["graph", "str"],
      ["node", "str", ""],
    ],
  },
  PeakChange: {
    array: false,
    fields: [
      ["kind", "str"],
      ["what", "str"],
      ["saves", "int"],
      ["peak", "int"],
      ["at", "str"],
      ["recompute_ms", "float"],
      ["source", "str"],
      ["values", ["list","str"]],
    ],
  },
  PeakRecord: {
    array: false,
    fields: [
      ["compilation", "str"],
      ["peak", "int"],
      ["changes", ["list",["record","PeakChange"]]],
      ["beside_eager", ["list","str"]],
      ["inductor", ["list","str"], []],
      ["device", "str", ""],
    ],
  },
  StepGraph: {
    array: false,
    fields: [
      ["phase", "str"],
      ["compilation", "str"],
      ["stage", "str"],
      ["role", "str"],
    ],
  },
  StepNode: {
    array: true,
    fields: [
      ["graph", "int"],
      ["index", "int"],
      ["op", "str"],
      ["name", "int"],
      ["target", "int"],
      ["descriptor", "int"],
      ["module", "int"],
      ["file", "int"],
      ["line", "int"],
      ["code", "int"],
      ["checkpoint", "int", -1],
    ],
  },
  StepHolder: {
    array: true,
    fields: [
      ["maker", "int"],
      ["kind", "int"],
      ["nbytes", "int"],
      ["dtype", "int"],
      ["shape", ["list",["or","int","str"]]],
      ["made_at", "int"],
      ["held_until", "int"],
      ["held_by", "int"],
      ["device", "int", -1],
    ],
  },
  StepRecord: {
    array: false,
    fields: [
      ["texts", ["list","str"]],
      ["graphs", ["list",["record","StepGraph"]]],
      ["nodes", ["list",["record","StepNode"]]],
      ["moments", ["list","int"]],
      ["holders", ["list",["record","StepHolder"]]],
    ],
  },
  RankLane: {
    array: false,
    fields: [
      ["ranks", "str"],
      ["steps", ["list","str"]],
      ["before", "int", 0],
      ["after", "int", 0],
    ],
  },
  CauseRecord: {
    array: false,
    fields: [
      ["kind", "str"],
      ["title", "str"],
      ["text", "str"],
      ["code", "str"],
      ["place", "str"],
      ["fix", "str"],
      ["seconds", "float"],
      ["failed", "bool"],
      ["ids", ["list","str"]],
      ["followed", ["list","str"]],
    ],
  },
  TimeShare: {
    array: false,
    fields: [
      ["name", "str"],
      ["seconds", "float"],
    ],
  },
  FunctionRecord: {
    array: false,
    fields: [
      ["name", "str"],
      ["place", "str"],
      ["after", "str"],
      ["ids", ["list","str"]],
      ["again", "int"],
      ["seconds", "float"],
      ["nodes", "int"],
      ["kept_bytes", "int"],
      ["aliases", "str"],
      ["in_eager", "str"],
    ],
  },
  TimeFrame: {
    array: false,
    fields: [
      ["name", "str"],
      ["depth", "int"],
      ["seconds", "float"],
      ["kind", "str"],
      ["place", "str"],
      ["code", "str"],
      ["ids", ["list","str"]],
    ],
  },
  OverviewRecord: {
    array: false,
    fields: [
      ["headline", "str"],
      ["healthy", "bool"],
      ["seconds", "float"],
      ["times", ["list",["record","TimeShare"]]],
      ["causes", ["list",["record","CauseRecord"]]],
      ["functions", ["list",["record","FunctionRecord"]]],
      ["remarks", ["list","str"]],
      ["frames", ["list",["record","TimeFrame"]], []],
    ],
  },
  RankDifference: {
    array: false,
    fields: [
      ["kind", "str"],
      ["function", "str"],
      ["ids", ["list","str"]],
      ["words", "str"],
      ["fix", "str"],
      ["lanes", ["list",["record","RankLane"]], []],
    ],
  },
  WhyCompiled: {
    array: false,
    fields: [
      ["compilation", "str"],
      ["words", "str"],
      ["code", "str"],
      ["place", "str"],
      ["fix", "str"],
    ],
  },
  CompilationHead: {
    array: false,
    fields: [
      ["id", "str"],
      ["name", "str"],
      ["kind", "str"],
      ["started_unix_ns", "int"],
      ["elapsed_ns", "int"],
      ["stages", "int"],
      ["nodes", "int"],
      ["compile_id", "str"],
      ["attempts", "int"],
      ["rank", "int"],
      ["because", ["list","str"]],
      ["options", ["map","str","str"]],
      ["error", ["or",["record","ErrorRecord"],"none"]],
      ["revision", "int"],
      ["frame", "int", -1],
      ["cache", ["or",["record","CacheAnswer"],"none"], null],
    ],
  },
  RecordingIndex: {
    array: false,
    fields: [
      ["format", "str"],
      ["version", "int"],
      ["producer", ["map","str","str"]],
      ["dropped", "int"],
      ["notes", ["list","str"]],
      ["compilations", ["list",["record","CompilationHead"]]],
      ["rows", ["map","str","int"], {}],
      ["compared", ["or",["record","ComparedInputs"],"none"], null],
      ["paintings", ["list",["record","Painting"]], []],
    ],
  },
  TextTable: {
    array: false,
    fields: [
      ["numbers", ["list","int"]],
      ["texts", ["list","str"]],
    ],
  },
  CompilationPart: {
    array: false,
    fields: [
      ["compilation", ["record","CompilationData"]],
      ["graph_values", ["list",["list","int"]]],
      ["graph_bytes", ["list","int"]],
      ["code_lines", ["list",["map","str","int"]]],
      ["cache_lookups", ["list",["record","CacheLookup"]]],
      ["text_table", ["record","TextTable"]],
    ],
  },
  GraphPart: {
    array: false,
    fields: [
      ["graph", ["record","GraphSnapshot"]],
      ["value_numbers", ["list","int"]],
      ["values", ["list",["record","ValueRecord"]]],
      ["text_table", ["record","TextTable"]],
    ],
  },
  CodePart: {
    array: false,
    fields: [
      ["code", ["map","str","str"]],
    ],
  },
  PaintingsPart: {
    array: false,
    fields: [
      ["paintings", ["list",["record","Painting"]]],
    ],
  },
  StageSpan: {
    array: true,
    fields: [
      ["name", "str"],
      ["started_ns", "int"],
      ["elapsed_ns", "int"],
      ["late", "bool"],
    ],
  },
  RowsPart: {
    array: false,
    fields: [
      ["compilations", ["list","str"]],
      ["text_table", ["record","TextTable"]],
      ["own", ["map","str",["list",["record","StageSpan"]]], {}],
      ["logs", ["list",["record","LogRecord"]], []],
      ["events", ["record","EventTable"], {"name":[],"start_us":[],"duration_us":[],"parent":[],"compilation":[],"log":[],"line":[],"thread":[],"args":[]}],
      ["restarts", ["list",["record","Origin"]], []],
      ["stacks", ["list","int"], []],
      ["guards", ["list",["record","GuardRecord"]], []],
      ["metrics", ["list",["record","MetricsRecord"]], []],
      ["shapes", ["list",["record","ShapeRecord"]], []],
      ["graph_breaks", ["list",["record","GraphBreak"]], []],
      ["cache_lookups", ["list",["record","CacheLookup"]], []],
      ["links", ["list",["record","ArtifactRecord"]], []],
      ["rank_differences", ["list",["record","RankDifference"]], []],
      ["why", ["list",["record","WhyCompiled"]], []],
      ["plain", ["list",["record","PlainText"]], []],
      ["overview", ["or",["record","OverviewRecord"],"none"], null],
      ["peaks", ["list",["record","PeakRecord"]], []],
      ["step", ["or",["record","StepRecord"],"none"], null],
    ],
  },
};
