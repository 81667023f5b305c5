// Up to three drawings beside each other: of other stages, or of the same stage of another compilation (or rank). They
// go in step: what the reader selects, opens, searches or pans in one, the others show too. Each drawing beside the
// first has a state of its own, so that it is the same drawing as one alone. This file carries over what changes.

import { called } from "../../called";
import { h, notice, replace } from "../../dom";
import { plural } from "../../format";
import { Panel } from "../../panel";
import { Search } from "../../search/search";
import { type Beside, MOST_BESIDE, type Selection, State } from "../../state";
import { explained } from "../../terms";
import { type Other, optionsOf, others } from "../others";
import type { Context, Mounted, View } from "../view";
import { Drawing } from "./drawing";
import { openLike, type Peers, steerLike } from "./in_step";
import { needsOf } from "./kept";

/** A graph by its names, which may not exist. */
interface Wanted {
  readonly compilation: string; // id
  readonly stage: string;
  readonly role: string;
  readonly named: boolean; // whether the title says which compilation, because there are two
}

export class SideBySide implements Mounted {
  private readonly state: State;
  private readonly first: Drawing;
  private readonly head = h("header", { class: "pane-head" });
  private readonly panes = h("div", { class: "panes" });
  private readonly select = h("select", {
    class: "small",
    "aria-label": "Draw beside",
    ...explained("words", "beside"),
  });
  private readonly stops: (() => void)[];
  private others: Pane[] = [];
  private listed: readonly unknown[] = []; // what the list was made of
  private placing = false; // the panes get their graphs
  private carrying = false; // a change is being carried over, which is no change of the reader's

  constructor(
    parent: HTMLElement,
    private readonly context: Context,
  ) {
    this.state = context.state;
    const place = h("div", { class: "drawing-place" });
    this.panes.append(h("section", { class: "pane" }, this.head, place));
    const view = h("div", { class: "graph-view" }, this.panes);
    replace(parent, view);
    const wishes = this.state.selection.beside.length ? { outline: false } : {};
    this.first = new Drawing(place, context, this.peers, wishes);
    this.first.bar.querySelector(".colour-by")!.after(this.select);
    view.prepend(this.first.bar);
    this.stops = [
      this.state.subscribe((now, before) => this.selected(this.first, now, before)),
      context.search.subscribe(() => this.others.forEach((pane) => pane.search.set(context.search.text))),
    ];
    this.update();
  }

  update(): void {
    const { state } = this;
    const { beside } = state.selection;
    this.first.bar.hidden = !state.graph;
    this.first.update();
    this.list();
    while (this.others.length > beside.length) this.others.pop()!.destroy();
    this.placing = true;
    beside.forEach((one, i) => {
      const wanted = wantedBy(state, one);
      const place = this.others[i]?.state.selection.compilation ?? -1; // which the kernel may have dropped
      if (state.recording.index.compilations[place]?.id !== wanted.compilation) {
        this.others[i]?.destroy();
        this.others[i] = this.add(i, wanted);
      }
      this.others[i]!.show(wanted, state.selection.painting);
    });
    this.placing = false;
    this.head.hidden = !beside.length;
    if (beside.length) replace(this.head, h("span", {}, ...titleOf(state, namesCompilations(state))));
  }

  destroy(): void {
    for (const stop of this.stops) stop();
    for (const pane of this.others) pane.destroy();
    this.first.destroy();
  }

  private add(i: number, wanted: Wanted): Pane {
    const wishes = { ...this.first.wishes, outline: false, values: false };
    const pane: Pane = new Pane(this.context, wanted, wishes, {
      peers: this.peers,
      close: () => this.state.drawBeside(this.state.selection.beside.filter((_, k) => k !== this.others.indexOf(pane))),
      changed: (now, before) => {
        this.moved(pane, now, before);
        if (pane.drawing) this.selected(pane.drawing, now, before);
      },
    });
    if (this.first.wishes.outline) {
      this.first.wishes.outline = false;
      this.first.wished("outline");
    }
    (this.others[i - 1]?.element ?? this.panes.firstElementChild!).after(pane.element);
    return pane;
  }

  /** If a link in a pane led to another stage or graph, the pane shows that one from now on. */
  private moved(pane: Pane, now: Selection, before: Selection): void {
    if (this.placing || (now.stage === before.stage && now.role === before.role)) return;
    if (!before.role) return pane.show(); // its compilation has arrived
    const beside = this.state.selection.beside.map((one, i) =>
      this.others[i] === pane ? { ...one, stage: pane.state.stage!.name, role: now.role } : one,
    );
    this.state.drawBeside(beside);
  }

  /** The graphs that can be drawn beside this one. */
  private list(): void {
    const { state, select } = this;
    const { stage, role, beside } = state.selection;
    const made = [state.compilation.stages, stage, role, beside, state.recording.index];
    if (made.every((part, i) => part === this.listed[i])) return;
    this.listed = made;
    const choices: Other<Beside>[] = others(state).map(({ value, ...rest }) => ({
      ...rest,
      value: namesOf(state, value),
    }));
    replace(select, h("option", { value: "" }, "Beside …"), optionsOf(choices));
    select.disabled = beside.length >= MOST_BESIDE;
    select.hidden = !choices.length;
    select.onchange = () => {
      const chosen = choices[Number(select.value)];
      select.value = "";
      if (chosen) state.drawBeside([...beside, chosen.value]);
    };
  }

  private get drawings(): Drawing[] {
    return [this.first, ...this.others.flatMap(({ drawing }) => drawing ?? [])];
  }

  /** Does something to all other drawings. */
  private carry(from: Drawing | null, act: (to: Drawing) => unknown): void {
    if (this.carrying) return;
    this.carrying = true;
    try {
      for (const to of this.drawings) if (to !== from) act(to);
    } finally {
      this.carrying = false;
    }
  }

  private selected(from: Drawing, now: Selection, before: Selection): void {
    const moved = now.compilation !== before.compilation || now.stage !== before.stage || now.role !== before.role;
    if (now.nodes === before.nodes || (moved && !now.nodes.length)) return;
    this.carry(from, (to) => to.follow(now.nodes.length ? from.followed : []));
  }

  private readonly peers: Peers<Drawing> = {
    grouped: (by) => {
      const model = by === this.first ? this.others[0]?.drawing : this.first;
      if (!model) return;
      openLike(model, by);
      const { followed } = model;
      if (by !== this.first && followed.length)
        queueMicrotask(() => this.carry(model, (to) => to === by && to.follow(followed)));
    },
    opened: (by, group) => this.carry(by, (to) => openLike(by, to) && to.reopen(group)),
    steered: (by, zoom, gentle) => this.carry(by, (to) => steerLike(by, to, zoom, gentle)),
    fitted: (by) => this.carry(by, (to) => to.surface.fit()),
    wished: (by, what) =>
      this.carry(by, (to) => {
        if (what === "outline") return; // each has its own
        to.wishes[what] = by.wishes[what] as never;
        to.wished(what);
      }),
    everything: (open) => this.carry(null, (to) => (open ? to.everything(true) : to.startOver())),
  };
}

interface PaneActions {
  readonly peers: Peers<Drawing>;
  close(): void;
  changed(now: Selection, before: Selection): void;
}

/** A drawing beside the first: its state, its head, and a panel that loads what it needs. */
class Pane {
  readonly state: State;
  readonly search: Search;
  readonly element: HTMLElement;
  drawing: Drawing | null = null;
  private readonly head = h("span");
  private readonly outline = h(
    "button",
    { type: "button", class: "small toggle", "aria-pressed": "false", title: "Outline", "aria-label": "Outline" },
    "☰",
  );
  private readonly absent = h("div", { hidden: true });
  private readonly place = h("div", { class: "panel" });
  private readonly panel: Panel;
  private readonly stop: () => void;
  private wanted: Wanted;

  constructor(
    { state: main, ...context }: Context,
    wanted: Wanted,
    wishes: Drawing["wishes"],
    { peers, close, changed }: PaneActions,
  ) {
    this.wanted = wanted;
    const { compilation, stage, role } = wanted;
    this.state = new State(main.recording, { compilation, stage, role, view: "graph" });
    this.search = new Search(this.state);
    this.search.set(context.search.text);
    const view: View = {
      id: "graph",
      title: "Graph",
      needs: needsOf,
      mount: (parent, inner) => (this.drawing = new Drawing(parent, inner, peers, wishes)),
    };
    this.panel = new Panel(this.place, { ...context, state: this.state, search: this.search }, () => view);
    this.outline.addEventListener("click", () => {
      const { drawing } = this;
      if (!drawing) return;
      drawing.wishes.outline = !drawing.wishes.outline;
      this.outline.setAttribute("aria-pressed", String(drawing.wishes.outline));
      drawing.wished("outline");
    });
    const shut = h(
      "button",
      {
        type: "button",
        class: "small",
        title: "Close this drawing",
        "aria-label": "Close this drawing",
        on: { click: close },
      },
      "×",
    );
    this.element = h(
      "section",
      { class: "pane" },
      h("header", { class: "pane-head" }, this.head, this.outline, shut),
      this.place,
      this.absent,
    );
    this.stop = this.state.subscribe((now, before) => {
      this.update();
      changed(now, before);
    });
  }

  /** Shows a graph of this pane's compilation. */
  show(wanted = this.wanted, painting = this.state.selection.painting): void {
    this.wanted = wanted;
    const { state } = this;
    if (painting !== state.selection.painting) state.openPainting(painting);
    const stage = state.compilation.stages.findIndex(({ name }) => name === wanted.stage);
    const graphs = state.compilation.stages[stage]?.graphs;
    const role = graphs?.has(wanted.role) ? wanted.role : undefined;
    if (stage >= 0 && (stage !== state.selection.stage || (role && role !== state.selection.role)))
      state.openStage(stage, role);
    else this.update();
  }

  destroy(): void {
    this.stop();
    this.panel.destroy();
    this.element.remove();
  }

  private update(): void {
    const { state, wanted } = this;
    const { compilation, recording, selection } = state;
    const loaded = recording.has({ what: "compilation", compilation: selection.compilation });
    const missing = loaded && !compilation.stages.some(({ name }) => name === wanted.stage);
    this.place.hidden = missing;
    this.absent.hidden = !missing;
    replace(this.head, ...titleOf(state, wanted.named, missing ? wanted.stage : ""));
    this.element.ariaLabel = this.head.textContent;
    if (missing)
      replace(this.absent, notice("empty", `Compilation ${compilation.id} has no stage \`${wanted.stage}\`.`));
    else this.panel.update();
  }
}

/** What a pane shows: the stage, its graph, and how many nodes that has. */
function titleOf(state: State, named: boolean, missing = ""): (HTMLElement | string)[] {
  const { compilation, stage, selection, graph } = state;
  const which = named ? `${called(compilation)} · ` : "";
  const name = missing || (stage ? `${selection.stage + 1} ${stage.name}` : "");
  const what = missing ? [] : [selection.role, graph ? plural(graph.nodes.length, "node") : ""].filter((part) => part);
  return [which, h("b", {}, name), what.length ? ` ${what.join(" · ")}` : ""];
}

function namesCompilations({ selection, compilation: { id } }: State): boolean {
  return selection.beside.some(({ compilation = id }) => compilation !== id);
}

function wantedBy(state: State, beside: Beside): Wanted {
  const { compilation, stage, selection } = state;
  return {
    named: namesCompilations(state),
    compilation: beside.compilation ?? compilation.id,
    stage: beside.stage ?? stage?.name ?? "",
    role: beside.role ?? selection.role,
  };
}

function namesOf(
  { recording, compilation, selection }: State,
  { compilation: position, stage, role }: Other["value"],
): Beside {
  const other = position === selection.compilation ? {} : { compilation: recording.index.compilations[position]!.id };
  return { ...other, ...(stage !== undefined && { stage: compilation.stages[stage]!.name, role: role ?? "" }) };
}
