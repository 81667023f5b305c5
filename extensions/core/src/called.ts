// The one name of a compilation, wherever one is named. Python's sentences have the same (aotviz/explain/rows.py, `called`).

import { type Child, h } from "./dom";

export interface Named {
  readonly id: string;
  readonly name: string;
  readonly kind?: string;
}

const NUMBERED = / (\[[\d/!_]+\])$/; // our own pipeline names what Dynamo captured `step [0/1]`

/** `forward [0/1]`, `rank 1: forward [0/1]`, `export 2`. */
export function called(one: Named): string {
  const [name, number] = parts(one);
  return number ? `${name} ${number}` : name;
}

/** The same as elements: the number stays on one line. */
export function calledIn(one: Named): Child[] {
  const [name, number] = parts(one);
  return [name, number && [" ", h("span", { class: "id" }, number)]];
}

function parts({ id, name, kind = "" }: Named): [name: string, number: string] {
  const [, before = "", number = id] = /^(.*: )?(.*)$/s.exec(id) ?? [];
  if (kind.endsWith("export") || name === number) return [id, ""];
  const own = NUMBERED.exec(name);
  return own ? [before + name.slice(0, own.index), own[1]!] : [before + name, `[${number}]`];
}
