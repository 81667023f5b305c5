// The memory of a whole training step: its forward, its captured backward and the optimizer's step, which are several
// compilations. Python planned it (aotviz/recording/step_memory.py).

import type { StepHolder, StepNode, StepRecord } from "../../wire";
import { TRAINING_STEP } from "./halves";
import { aliveOf, type Holder, type Kind, KINDS, type Maker, type Moment, peakOf, type Plan } from "./plan";

const MOST = 2 ** 50; // bytes of a storage; a stranger's may be any number

/** A moment and a storage of a node, -1 and null if there is none. */
export interface Found {
  readonly moment: number;
  readonly holder: Holder | null;
}

export interface StepPlan extends Plan {
  readonly graphs: StepRecord["graphs"]; // `half` is a number in it
  /** What is known of the node with this name, of a compilation's graph. */
  find(compilation: string, role: string, name: string): Found;
}

export function planOfStep({ texts, graphs, nodes, moments: run, holders: held }: StepRecord): StepPlan {
  const text = (number: number): string => texts[number] ?? "";
  const makers = nodes.map((node) => makerOf(node, text));
  const moments = run.flatMap((number): Moment[] => {
    const [half, node] = [nodes[number]?.graph ?? -1, makers[number]];
    const phase = graphs[half]?.phase;
    return node && phase !== undefined
      ? [{ half, phase: phase === TRAINING_STEP ? "optimizer step" : phase, node }]
      : [];
  });
  const holders = held.flatMap((one) => {
    const maker = makers[one.maker];
    return maker ? [holderOf(one, maker, nodes[one.maker]!.graph, moments.length, text)] : [];
  });
  const alive = aliveOf(holders, moments.length);
  const keyOf = (half: number, name: string): string => `${graphs[half]?.compilation}\n${graphs[half]?.role}\n${name}`;
  const momentsOf = new Map(moments.map(({ half, node }, at) => [keyOf(half, node.name), at]));
  const holdersOf = new Map(holders.map((one) => [keyOf(one.half, one.maker.name), one]));
  const find = (compilation: string, role: string, name: string): Found => {
    const key = `${compilation}\n${role}\n${name}`;
    return { moment: momentsOf.get(key) ?? -1, holder: holdersOf.get(key) ?? null };
  };
  return { moments, holders, alive, peak: peakOf(alive), text, graphs, find };
}

/** The moment of each phase at which most is alive, in order. */
export function peaksOf({ moments, alive }: Plan): { readonly phase: string; readonly moment: number }[] {
  const begins = moments.flatMap(({ phase }, at) => (phase === moments[at - 1]?.phase ? [] : [at]));
  return begins.map((at, i) => ({ phase: moments[at]!.phase, moment: peakOf(alive, at, begins[i + 1]) }));
}

function makerOf({ index, op, line, ...of }: StepNode, text: (number: number) => string): Maker {
  const [name, target, descriptor, path, file] = [of.name, of.target, of.descriptor, of.module, of.file].map(text);
  return {
    index,
    op,
    name: name!,
    target: target!,
    descriptor: descriptor!,
    checkpoint: text(of.checkpoint),
    modules: path ? [{ path, type: "" }] : [],
    source: file ? { file, line, scope: "", code: text(of.code) } : null,
  };
}

function holderOf(
  { kind, nbytes, dtype, shape, made_at, held_until, held_by, device }: StepHolder,
  maker: Maker,
  half: number,
  moments: number,
  text: (number: number) => string,
): Holder {
  const within = (at: number): number => Math.max(0, Math.min(moments, Math.floor(at) || 0));
  const madeAt = within(made_at);
  return {
    maker,
    half,
    value: { dtype, shape },
    device: text(device),
    madeAt,
    kind: KINDS.find((one): one is Kind => one === text(kind)) ?? "intermediate",
    nbytes: Math.max(0, Math.min(MOST, nbytes || 0)),
    until: Math.max(madeAt, within(held_until)),
    by: text(held_by),
  };
}
