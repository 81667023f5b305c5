// The rail lists every stage in order: what it changed, how long it took, and what graphs exist after it. Stages that
// changed nothing are hidden at first, and the bar says how many. The arrow keys step through the stages, and "play" steps automatically. Later results
// of the compilation are below: a backward that was lowered on first use, compilations of gradients of gradients, and
// the next compilation of the same function.

import { calledIn } from "../../called";
import { changes, type GraphChange } from "../../changes";
import { append, h, keepInView, quoted, replace } from "../../dom";
import { bytes, milliseconds, plural } from "../../format";
import { type Recording } from "../../model";
import { colourOf, endedAs } from "../../outcome";
import { type Related, related } from "../../related";
import { type Replay, replays } from "../../replays";
import type { State } from "../../state";
import { explained } from "../../terms";
import type { CompilationData, ErrorRecord, StageRecord } from "../../wire";
import { chip } from "../table";
import { cacheItem } from "./cache";
import type { Context, Mounted } from "../view";

const STEP_MS = 1400; // between two stages of "play"

export interface Rail extends Mounted {
  /** Steps by `by` stages and skips hidden ones. */
  step(by: number): void;
  play(): void;
}

export function stages(parent: HTMLElement, { state }: Context): Rail {
  let shown: unknown = null;
  let told: boolean | null = null; // of the bar: whether every stage is shown
  let among: unknown = null; // the compilations that were searched for related ones
  let rows: HTMLElement[] = [];
  let timer: ReturnType<typeof setInterval> | undefined;
  const bar = h("div", { class: "rail-bar" });
  const list = h("ol", {
    class: "stages",
    role: "listbox",
    "aria-label": "Stages",
    on: { keydown: (event: KeyboardEvent) => onKey(event) },
  });
  const said = h("p", { class: "rail-news", role: "status" });
  const before = h("div", { class: "rail-related" });
  const asked = h("div", {}); // what the cache said
  const after = h("div", { class: "rail-related" });
  replace(parent, bar, said, h("div", { class: "rail-list" }, before, asked, list, after));

  const visible = (): number[] => rows.flatMap((row, i) => (row.hidden ? [] : [i]));
  const build = (): void => {
    const { compilation, recording } = state;
    const longest = Math.max(1, ...compilation.stages.map((stage) => stage.elapsed_ns));
    rows = compilation.stages.map((stage, i) => row(recording, compilation, stage, i, longest));
    rows.forEach((element, i) => element.addEventListener("click", () => state.openStage(i)));
    const late = compilation.stages.findIndex((stage) => stage.late);
    replace(list);
    replace(asked, cacheItem(compilation));
    const first = compilation.stages.findIndex((stage) => stage.replayed);
    const found = replays(compilation, recording.cacheLookups(compilation), (number) => recording.text(number));
    const replayed = (after: number): HTMLElement[] => found.filter((one) => one.after === after).map(replay);
    append(
      list,
      rows.map((element, i) => [
        replayed(i),
        i === first && divider("replayed from the cache: recorded when the program was compiled"),
        i === late && divider("when the backward was first needed"),
        element,
      ]),
    );
    const position = state.selection.compilation;
    const here = recording.has({ what: "compilation", compilation: position });
    append(list, [
      replayed(rows.length),
      here ? unfinished(compilation) : coming(recording.index.compilations[position]!.stages),
    ]);
    linkRelated();
  };
  const linkRelated = (): void => {
    const { recording } = state;
    among = recording.index;
    const others = related(recording.index, state.selection.compilation);
    replace(
      before,
      others.filter(({ kind }) => kind === "earlier" || kind === "of").map((other) => link(state, other)),
    );
    replace(
      after,
      others.filter(({ kind }) => kind === "gradient" || kind === "again").map((other) => link(state, other)),
    );
  };
  const renderBar = (): void => {
    const same = rows.filter(isUnchanged).length;
    const all = state.selection.everyStage;
    replace(
      bar,
      h(
        "button",
        {
          type: "button",
          class: "small play",
          "aria-pressed": String(timer !== undefined),
          title: "Play: step through the stages automatically (p)",
          on: { click: () => play() },
        },
        timer === undefined ? "Play" : "Pause",
      ),
      same > 0 &&
        h(
          "button",
          {
            type: "button",
            class: "link hide-same",
            "aria-pressed": String(all),
            ...explained("words", "no-op stage"),
            on: {
              click: () => {
                state.showEveryStage(!all);
                bar.querySelector<HTMLElement>(".hide-same")?.focus({ preventScroll: true });
              },
            },
          },
          all ? `hide ${same} that changed nothing` : `${same} changed nothing: show`,
        ),
    );
  };
  const go = (index: number | undefined, focus: boolean): void => {
    if (index === undefined) return;
    state.openStage(index);
    if (focus) rows[index]?.focus({ preventScroll: true });
  };
  const step = (by: number, focus = false): void => {
    const open = visible();
    const at = open.indexOf(state.selection.stage);
    go(open[Math.max(0, Math.min(open.length - 1, at + by))], focus);
  };
  const onKey = (event: KeyboardEvent): void => {
    const open = visible();
    const by = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1, Home: -open.length, End: open.length }[event.key];
    if (by === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    step(by, true);
  };
  const play = (): void => {
    if (timer !== undefined) {
      clearInterval(timer);
      timer = undefined;
    } else {
      if (visible().at(-1) === state.selection.stage) go(visible()[0], false);
      timer = setInterval(() => {
        step(1);
        if (visible().at(-1) === state.selection.stage) play();
      }, STEP_MS);
    }
    renderBar();
  };

  const update = (): void => {
    const { everyStage } = state.selection;
    if (shown !== state.compilation.stages) {
      shown = state.compilation.stages;
      build();
      told = !everyStage;
    }
    if (told !== everyStage) {
      told = everyStage;
      renderBar();
    }
    if (among !== state.recording.index) linkRelated();
    said.textContent = state.news && `New: ${state.news}`;
    rows.forEach((element, i) => {
      const selected = i === state.selection.stage;
      element.hidden = !state.selection.everyStage && !selected && isUnchanged(element);
      element.setAttribute("aria-selected", String(selected));
      element.tabIndex = selected ? 0 : -1;
    });
    const current = rows[state.selection.stage];
    if (current) requestAnimationFrame(() => keepInView(list.parentElement!, current)); // after layout
  };
  update();
  return { update, step, play, destroy: () => clearInterval(timer) };
}

function isUnchanged(row: HTMLElement): boolean {
  return row.classList.contains("same");
}

function row(
  recording: Recording,
  compilation: CompilationData,
  stage: StageRecord,
  index: number,
  longest: number,
): HTMLElement {
  const failed = compilation.error?.stage === stage.name;
  const bar = h("i");
  const share = stage.elapsed_ns / longest;
  bar.style.width = `${(100 * share).toFixed(1)}%`;
  return h(
    "li",
    {
      role: "option",
      class: `stage${stage.changed || failed ? "" : " same"}${stage.replayed ? " replayed" : ""}${failed ? ` ${endedIn(compilation.error!)}` : ""}`,
      data: { stage: stage.name },
      ...explained("stages", stage.name, stage.summary),
    },
    h("span", { class: "number" }, index + 1),
    h(
      "span",
      { class: "name" },
      stage.name,
      stage.replayed && h("span", { class: "replay" }, "replayed"),
      failed && chip(endedAs(compilation.error!), colourOf(compilation.error!)),
    ),
    h(
      "span",
      { class: "time" },
      (stage.elapsed_ns > 0 || !compilation.compile_id) && milliseconds(stage.elapsed_ns),
    ) /* of torch's own, 0 is unknown */,
    h("span", { class: "what" }, quoted(stage.summary)),
    h(
      "span",
      { class: "counts" },
      changes(recording, compilation, index).map(counted),
      written(recording, compilation, index),
    ),
    share > 0.02 && h("span", { class: "share", "aria-hidden": "true" }, bar),
  );
}

/** The class of the row of the stage that ended a compilation. */
function endedIn({ ran_in_eager }: ErrorRecord): string {
  return ran_in_eager ? "refused" : "failed";
}

function divider(text: string): HTMLElement {
  return h("li", { class: "rail-divider", role: "presentation" }, text);
}

function replay({ cache, what, saved_ns }: Replay): HTMLElement {
  return h(
    "li",
    { class: "rail-replay", role: "presentation" },
    h("span", { class: "name" }, `Found in ${cache}`),
    h("span", { class: "what" }, quoted(what)),
    saved_ns > 0 && h("span", { class: "faint" }, `saved ${milliseconds(saved_ns)} of compile time`),
  );
}

/** A stage that raised returned nothing to record, but it is still listed at the end. */
function unfinished({ stages: done, error }: CompilationData): HTMLElement | null {
  if (!error || done.some((stage) => stage.name === error.stage)) return null;
  return h(
    "li",
    { class: `stage ${endedIn(error)}`, role: "presentation" },
    h("span", { class: "number" }, done.length + 1),
    h("span", { class: "name" }, error.stage, chip(endedAs(error), colourOf(error))),
    h("span", { class: "what" }, error.type),
  );
}

/** `forward 210 nodes +12 −3 · 1.2 MiB`. */
function counted({ role, nodes, added, removed, bytes: size }: GraphChange): HTMLElement {
  const memory = size > 0 ? `; their results take ${bytes(size)}` : "";
  return h(
    "span",
    { title: `${plural(nodes, "node")} in the ${role} graph${memory}` },
    `${role} ${plural(nodes, "node")}`,
    added > 0 && [" ", h("em", { class: "more" }, `+${added}`)],
    removed > 0 && [" ", h("em", { class: "less" }, `−${removed}`)],
    size > 0 && ["\u00a0", h("small", {}, `· ${bytes(size)}`)],
  );
}

/** The amount of a stage's text: lines of each text, and reasons. */
function written(recording: Recording, compilation: CompilationData, index: number): HTMLElement[] {
  const lines = [...recording.codeLines(compilation, index)].map(([name, count]) =>
    h("span", {}, `${name} ${plural(count, "line")}`),
  );
  const reasons = compilation.stages[index]!.evidence.length;
  return reasons ? [...lines, h("span", {}, plural(reasons, "reason"))] : lines;
}

const SAID: Record<Related["kind"], string> = {
  of: "compiled for the gradient of a gradient of",
  earlier: "compiled before",
  gradient: "second order",
  again: "compiled again",
};

/** Stands in for stages that the kernel has not sent yet. */
function coming(count: number): HTMLElement {
  return h(
    "li",
    { class: "coming", role: "presentation" },
    `${count ? plural(count, "stage") : "Stages"}, not loaded yet`,
  );
}

function link(state: State, { position, head, kind }: Related): HTMLElement {
  const because =
    kind === "again"
      ? state.recording.whyInShort(position)
      : kind === "earlier"
        ? state.recording.whyInShort(state.selection.compilation)
        : "";
  return h(
    "button",
    { type: "button", class: "related", data: { kind }, on: { click: () => state.openCompilation(position) } },
    h("span", { class: "faint" }, SAID[kind]),
    h("b", {}, calledIn(head)),
    because && h("span", { class: "what" }, quoted(because)),
  );
}
