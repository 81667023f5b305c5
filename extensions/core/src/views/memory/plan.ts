// Which memory is alive when, planned from the forward and the backward. The same as aotviz/recording/live_bytes.py,
// which says why; a test compares the two.

import { type Graph, type Node, referred } from "../../graph";
import { isSaved, written } from "../../descriptors";
import { elementBytes } from "../../sizes";
import type { CompilationData, ValueRecord } from "../../wire";
import { copiesAStorage, hasStatisticsOfWeights, isNotMade, keepsMore, keptElements, makesAWeight } from "./oversized";
import { evaluated, type Sizes, symbolsIn } from "./sizes";

/** What a storage is to the call: KINDS of live_bytes.py. What stays for long comes first, so it is drawn at the bottom. */
export const KINDS = [
  "parameter",
  "buffer",
  "input",
  "constant",
  "saved",
  "output",
  "update",
  "tangent",
  "gradient",
  "intermediate",
] as const;
export type Kind = (typeof KINDS)[number];

const OF_THE_CALLER: ReadonlySet<string> = new Set(["parameter", "buffer", "input", "constant"]);
const VIEW =
  /^aten\.(?:alias|as_strided|detach|diagonal|expand|permute|select|slice|split|split_with_sizes|squeeze|t|transpose|unbind|_?unsafe_view|unsqueeze|view|view_as_complex|view_as_real)\.\w+$/;
const IN_PLACE = /[^_]_\.\w+$/;
const OF_TORCH = /^\w+AOTInput\((?:idx=(\d{1,9})|target='([^']*)')\)/;
const PRIMAL = /^primals_([1-9]\d{0,8})$/;
const MOST = 2 ** 50; // bytes of a storage
const END = 2 ** 53; // held by the caller when everything has run

/** What is shown of a node that runs, or makes a storage. */
export type Maker = Pick<Node, "index" | "name" | "op" | "target" | "descriptor" | "modules" | "source" | "checkpoint">;

/** A storage, from the moment at which it is made to the last that holds it. */
export interface Holder {
  readonly maker: Maker;
  readonly half: number; // the graph of the maker
  readonly value: Pick<ValueRecord, "dtype" | "shape">;
  readonly device: string; // "" if it is not known
  readonly madeAt: number;
  kind: Kind;
  nbytes: number;
  until: number; // a moment, or half a moment less: gone before it begins
  by: string; // the last node that reads it, or who holds it then
}

/** What runs. */
export interface Moment<Of extends Maker = Maker> {
  readonly half: number;
  readonly phase: string; // "forward", "inference", "backward", or "optimizer step"
  readonly node: Of;
}

export interface Plan {
  readonly moments: readonly Moment[];
  readonly holders: readonly Holder[];
  readonly alive: Float64Array; // bytes, per moment
  readonly peak: number; // a moment; -1 if there is none
  text(number: number): string; // of a dtype
}

/** The plan of one compilation. */
export interface OwnPlan extends Plan {
  readonly moments: readonly Moment<Node>[];
  readonly momentOf: readonly Int32Array[]; // per half and node, its moment; that of what runs next for an input
  readonly holderOf: ReadonlyMap<number, Holder>; // by the number of a value
}

/** Thrown if the sizes of some symbols are not known. */
export class UnknownSizes extends Error {
  constructor(readonly symbols: readonly string[]) {
    super(`the sizes ${symbols.join(", ")} are not known`);
  }
}

/** The symbols in the sizes of a compilation's tensors, in the order in which they occur. */
export function symbolsOf(graphs: readonly Graph[]): string[] {
  const found = new Set<string>();
  for (const { nodes } of graphs)
    for (const { value } of nodes)
      for (const size of value?.shape ?? []) symbolsIn(size).forEach((one) => found.add(one));
  return [...found];
}

/** `halves`: the graphs that run, in order. `text`: the text of a number. Throws UnknownSizes. */
export function planOf(
  halves: readonly Graph[],
  { values, inputs }: Pick<CompilationData, "values" | "inputs">,
  text: (number: number) => string,
  sizes: Sizes,
): OwnPlan {
  return new Planner(halves, values, inputs, text, sizes).plan();
}

class Planner {
  private readonly storages = new Map<number, Holder>();
  private readonly holderOf = new Map<number, Holder>();
  private readonly moments: Moment<Node>[] = [];
  private readonly largest = new Map<number, number>(); // bytes by storage, if they are needed
  private readonly ends = new Map<ValueRecord, number>(); // bytes up to the end of a tensor in its storage
  private readonly unknown = new Set<string>();
  private readonly owners = new Map<number, number>(); // of views, and of what is written in place: the value that has the storage
  private readonly kinds: ReadonlyMap<string, Kind>;
  private readonly givenInOrder: boolean; // the primals of a log are Dynamo's inputs
  private readonly replaced: ReadonlySet<string>; // inputs that get another storage

  constructor(
    private readonly halves: readonly Graph[],
    private readonly values: readonly ValueRecord[],
    private readonly inputs: CompilationData["inputs"],
    private readonly text: (number: number) => string,
    private readonly sizes: Sizes,
  ) {
    this.givenInOrder = halves.length > 0 && primalsOf(halves[0]!.nodes) === inputs.length;
    this.kinds = new Map(inputs.map(({ name, kind }) => [name, kind as Kind]));
    this.replaced = new Set(inputs.flatMap((one) => (one.storage_replaced ? [one.name] : [])));
  }

  plan(): OwnPlan {
    const momentOf = this.halves.map((_, half) => this.read(half));
    const { moments } = this;
    if (this.unknown.size) throw new UnknownSizes([...this.unknown]);
    const holders = [...this.storages.values()];
    for (const one of holders)
      if (OF_THE_CALLER.has(one.kind) || one.kind === "output" || one.until === END) {
        one.until = moments.length;
        one.by = one.kind === "constant" ? "the compiled program" : "the caller";
      }
    const alive = aliveOf(holders, moments.length);
    return { moments, holders, alive, peak: peakOf(alive), momentOf, holderOf: this.holderOf, text: this.text };
  }

  /** Adds a graph's storages, and until when its nodes hold them. Returns the moment of each node. */
  private read(half: number): Int32Array {
    const graph = this.halves[half]!;
    const { nodes } = graph;
    const { op } = graph.snapshot;
    const phase = graph.role.split(" ")[0]!;
    const begins = this.moments.length;
    const at = new Int32Array(nodes.length);
    for (let i = 0; i < nodes.length; i++) {
      at[i] = this.moments.length;
      if (op[i] !== "p" && op[i] !== "o") this.moments.push({ half, phase, node: nodes[i]! });
    }
    for (const [view, owner] of viewsOf(graph)) this.owners.set(view, this.owners.get(owner) ?? owner);
    const { returned, updates, saved } = resultsOf(graph, this.halves[half + 1], this.replaced);
    const passed = new Set<number>();
    for (let i = 0; i < nodes.length; i++)
      if (op[i] === "p") for (const number of this.tensors(graph, i)) passed.add(this.storage(number));
    const [last, isRead] = readersOf(graph);
    const end = this.moments.length - 0.5; // before anything else runs
    for (let i = 0; i < nodes.length; i++) {
      for (const number of [...this.tensors(graph, i), ...this.unnamed(graph, i)]) {
        const own = number >= 0 ? number : ~number; // of an unnamed storage: the value that it is like
        const storage = number >= 0 ? this.storage(number) : 2 ** 26 - 1 - i;
        const key = (passed.has(storage) ? 0 : begins) * 2 ** 26 + storage; // what is recomputed has the forward's number
        const nbytes = Math.max(this.bytes(this.values[own]!), number >= 0 ? this.kept(graph, i, number) : 0);
        let known = this.storages.get(key);
        if (!known)
          this.storages.set(
            key,
            (known = {
              maker: nodes[i]!,
              half,
              value: this.values[own]!,
              device: this.text(this.values[own]!.device),
              madeAt: at[i]!,
              kind: this.kindOf(graph, nodes[i]!),
              nbytes: 0,
              until: -1,
              by: "",
            }),
          );
        if (number >= 0) this.holderOf.set(number, known);
        known.nbytes = Math.max(known.nbytes, nbytes);
        if (returned.has(i)) {
          known.until = END;
          if (known.kind === "intermediate") known.kind = phase === "backward" ? "gradient" : "output";
        } else if (updates.has(i)) {
          [known.until, known.by] = [end, "the wrapper, which copies it into an input"];
          if (known.kind === "intermediate") known.kind = "update";
        }
        if (saved.has(i) && known.until !== END) {
          [known.until, known.by] = [end, "the saved tensors"];
          if (known.kind === "intermediate" || known.kind === "update") known.kind = "saved";
        }
        if ((isRead[i] || op[i] !== "p") && known.until <= at[last[i]!]!)
          [known.until, known.by] = [at[last[i]!]!, nodes[last[i]!]!.name];
      }
    }
    return at;
  }

  /** The tensors that a node's value is or has. */
  private tensors({ snapshot, nodes }: Graph, node: number): number[] {
    const whole = snapshot.value[node]!;
    if (snapshot.op[node] === "o") return [];
    if (this.values[whole]?.kind === "tensor") return [whole];
    const { target, args } = nodes[node]!;
    const found: number[] = [];
    const seen = new Set<number>();
    // A log does not say what a tuple has: its items do.
    const items = (): number[] =>
      nodes[node]!.users.map((user) => nodes[user]!)
        .filter(isItem)
        .map(({ valueIndex }) => valueIndex);
    for (const pending = whole < 0 ? items() : [whole]; pending.length;) {
      const number = pending.pop()!;
      const value = this.values[number];
      if (!value || seen.has(number)) continue;
      seen.add(number);
      pending.push(...value.parts.filter((_, item) => number !== whole || !isNotMade(target, args, item)));
      if (value.kind === "tensor") found.push(number);
    }
    return found;
  }

  /** The storages that a node makes and that are in no graph: ~ the number of a value that each is like. */
  private unnamed({ nodes, inputs: { starts, all } }: Graph, node: number): number[] {
    const { target, args } = nodes[node]!;
    if (!makesAWeight(target, args) || starts[node + 1]! - starts[node]! < 3) return [];
    const { value, valueIndex } = nodes[all[starts[node]! + 2]!]!;
    return value?.kind === "tensor" && this.text(value.device) === "cpu" ? [~valueIndex] : [];
  }

  private storage(number: number): number {
    // A log does not say storages; and a partitioner may insert a copy below a view that was traced.
    const owner = this.owners.get(number) ?? number;
    const storage = this.values[number]!.storage < 0 ? -1 : (this.values[owner]?.storage ?? -1);
    return storage >= 0 ? storage : 2 ** 25 + owner;
  }

  private bytes(value: ValueRecord): number {
    let bytes = this.ends.get(value);
    if (bytes === undefined) {
      const made = this.end(value) * elementBytes(this.text(value.dtype));
      bytes = made >= 0 ? Math.min(made, MOST) : 0; // a stranger's sizes may be any numbers
      this.ends.set(value, bytes);
    }
    return bytes;
  }

  /** The bytes of the storage of a value that is not the first in it. */
  private storageBytes(storage: number): number {
    if (!this.largest.size)
      for (const value of this.values)
        if (value.kind === "tensor" && value.storage >= 0)
          this.largest.set(value.storage, Math.max(this.largest.get(value.storage) ?? 0, this.bytes(value)));
    return this.largest.get(storage) ?? 0;
  }

  /** The bytes that an operator's result keeps at least (oversized.py). */
  private kept({ nodes, inputs: { starts, all } }: Graph, node: number, number: number): number {
    const { target, valueIndex } = nodes[node]!;
    const value = this.values[number]!;
    if (copiesAStorage(target)) return this.storageBytes(nodes[all[starts[node]!]!]?.value?.storage ?? -1);
    if (!keepsMore(target) || this.text(value.device) !== "cpu") return 0;
    const read: ValueRecord[] = [];
    for (let k = starts[node]!; k < starts[node + 1]!; k++)
      read.push(...(nodes[all[k]!]!.value ? [nodes[all[k]!]!.value!] : []));
    if (hasStatisticsOfWeights(target)) {
      const isStatistic = (this.values[valueIndex]?.parts.indexOf(number) ?? 0) > 0;
      return isStatistic && read[1] ? this.end(value) * elementBytes(this.text(read[1].dtype)) : 0;
    }
    const shapes = read.slice(0, 2).map(({ shape }) => shape.map((size) => this.known(size)));
    return Math.min(keptElements(shapes) * elementBytes(this.text(value.dtype)), MOST);
  }

  /** Elements from the beginning of the storage to the end of the tensor. */
  private end({ offset, shape, stride }: ValueRecord): number {
    const [first, sizes, steps] = [
      this.known(offset),
      shape.map((size) => this.known(size)),
      stride.map((size) => this.known(size)),
    ];
    if (sizes.includes(0) || sizes.length !== steps.length) return 0;
    return sizes.reduce((last, size, i) => last + (size - 1) * steps[i]!, first) + 1;
  }

  private known(size: number | string): number {
    if (typeof size === "number") return size;
    const value = evaluated(size, this.sizes);
    if (value === null)
      for (const one of symbolsIn(size).length ? symbolsIn(size) : [size])
        if (!this.sizes.has(one)) this.unknown.add(one);
    return value ?? 1;
  }

  private kindOf({ role }: Graph, { op, name: own, descriptor }: Node): Kind {
    if (op === "a") return "constant";
    if (op !== "p") return "intermediate";
    if (role.startsWith("backward") && this.storages.size) return "tangent";
    const primal = descriptor ? null : PRIMAL.exec(own); // in a log, there may be nothing
    if (primal && this.givenInOrder) return this.inputs[Number(primal[1]) - 1]!.kind as Kind;
    const said = OF_TORCH.exec(descriptor); // in a log: the number of an input, or a name
    const name = said ? (said[1] ? this.inputs[Number(said[1])]?.name : said[2]) : descriptor;
    return this.kinds.get(name ?? "") ?? "input";
  }
}

/** The largest number of a primal. */
function primalsOf(nodes: readonly Node[]): number {
  return nodes.reduce((most, { op, name }) => Math.max(most, (op === "p" && Number(PRIMAL.exec(name)?.[1])) || 0), 0);
}

/** The values of views and writes, with the value whose memory each has, by their operators. */
function* viewsOf({ nodes, inputs }: Graph): Generator<[view: number, owner: number]> {
  const owners = new Map<number, number>(); // by node
  for (const node of nodes) {
    const first =
      inputs.starts[node.index]! < inputs.starts[node.index + 1]! ? inputs.all[inputs.starts[node.index]!]! : -1;
    if (first < 0 || !(VIEW.test(node.target) || IN_PLACE.test(node.target) || (isItem(node) && owners.has(first))))
      continue;
    const owner = owners.get(first) ?? first;
    owners.set(node.index, owner);
    yield [node.valueIndex, nodes[owner]!.valueIndex];
  }
}

function isItem({ target }: Node): boolean {
  return target === "operator.getitem";
}

/** The devices that the storages are on, the one with most bytes first. */
export function devicesOf({ holders }: Plan): string[] {
  const bytes = new Map<string, number>();
  for (const one of holders) bytes.set(one.device, (bytes.get(one.device) ?? 0) + one.nbytes);
  return [...bytes].sort((a, b) => b[1] - a[1]).map(([device]) => device);
}

/** The same moments, with the memory of one device; of all for "". */
export function onDevice(plan: Plan, device: string): Plan {
  if (!device) return plan;
  const holders = plan.holders.filter((one) => one.device === device);
  const alive = aliveOf(holders, plan.moments.length);
  return { moments: plan.moments, holders, alive, peak: peakOf(alive), text: plan.text };
}

/** The bytes that are alive at each moment. */
export function aliveOf(holders: readonly Holder[], length: number): Float64Array {
  const change = new Float64Array(length + 1);
  for (const one of holders) {
    change[one.madeAt]! += one.nbytes;
    const gone = goneAt(one);
    if (gone <= length) change[gone]! -= one.nbytes;
  }
  const alive = new Float64Array(length);
  for (let at = 0, sum = 0; at < length; at++) alive[at] = sum += change[at]!;
  return alive;
}

/** The first of the moments at which most is alive; -1 if there is none. */
export function peakOf(alive: Float64Array, from = 0, to = alive.length): number {
  let peak = from < to ? from : -1;
  for (let at = from + 1; at < to; at++) if (alive[at]! > alive[peak]!) peak = at;
  return peak;
}

/** The first moment at which a storage is not held. */
export function goneAt({ until }: Holder): number {
  return Number.isInteger(until) ? until + 1 : until + 0.5;
}

export function isAlive(holder: Holder, moment: number): boolean {
  return holder.madeAt <= moment && moment < goneAt(holder);
}

/** For each node, the last node that reads it, itself if there is none; and whether there is one. */
function readersOf({ nodes, inputs: { starts, all }, snapshot }: Graph): [Int32Array, Uint8Array] {
  const last = Int32Array.from(nodes, (_, i) => i);
  const isRead = new Uint8Array(nodes.length);
  for (let i = 0; i < nodes.length; i++) {
    if (snapshot.op[i] === "o") continue;
    for (let k = starts[i]!; k < starts[i + 1]!; k++) {
      last[all[k]!] = i;
      isRead[all[k]!] = 1;
    }
  }
  return [last, isRead];
}

/**
 * The nodes that the caller gets, that the wrapper copies into inputs, and that are saved for the backward. The caller
 * gets the new storage of an input that is `replaced`.
 */
function resultsOf(
  graph: Graph,
  following: Graph | undefined,
  replaced: ReadonlySet<string>,
): Record<"returned" | "updates" | "saved", Set<number>> {
  const found = { returned: new Set<number>(), updates: new Set<number>(), saved: new Set<number>() };
  const output = graph.nodes[graph.nodes.length - 1];
  if (output?.op !== "o") return found;
  const list =
    output.args.length === 1 && Array.isArray(output.args[0]) && output.args[0][0] === "L"
      ? output.args[0].slice(1)
      : output.args;
  const said = list.map((_, place) => graph.outputDescriptors[place] ?? "");
  let begins = list.length; // of the saved ones
  if (following) {
    const taken = following.nodes.filter(({ op, name }) => op === "p" && !name.startsWith("tangents_")).length;
    const first = said.findIndex(isSaved);
    begins = first >= 0 ? first : said.some(Boolean) ? list.length : list.length - taken; // a log does not say
  }
  list.forEach((arg, place) => {
    const node = referred(arg, output.index);
    if (node < 0) return;
    const input = written(said[place]!);
    const into = place >= begins ? found.saved : input && !replaced.has(input) ? found.updates : found.returned;
    into.add(node);
  });
  return found;
}
