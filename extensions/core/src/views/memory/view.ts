// Which memory is alive when: a drawing over the forward and then the backward, or over a training step in pieces, and
// below it a table of who holds what at one moment. The moment is chosen in the drawing; a selected node's life is lit
// in it. Nothing is measured: it is planned from the recorded sizes, so it works for a file and for a log as well.

import { type Child, h, notice, quoted, replace } from "../../dom";
import { bytes, dtype, place, plural, shape, thousands } from "../../format";
import styles from "../../styles/memory.css";
import type { Column } from "../table";
import type { State } from "../../state";
import type { LaterMount, Tools } from "../mounted";
import { Chart, FILLS, readColours } from "./chart";
import { graphsOf, halvesIn, TRAINING_STEP } from "./halves";
import { lowering } from "./lowering";
import { type Layer, layersOf, REST, type StackedBy } from "./layers";
import { devicesOf, goneAt, type Holder, KINDS, onDevice, type Plan, symbolsOf, UnknownSizes } from "./plan";
import { follow } from "./pointer";
import { layersIn, lineOf, type Row, rowsAt } from "./rows";
import { ofCompilation, ofStep, type Shown } from "./shown";
import { peaksOf } from "./step";

const PAN = 0.15; // of the window, for Shift and an arrow key
const ZOOM = 1.6;
const MOST_SIZES = 12; // that can be chosen
const LARGEST = 4; // times the recorded size, at the end of a slider
const KEYS =
  "Click, or ← →: a moment. Drag, or Shift ← →: pan. Ctrl and the wheel, or + −: zoom. ↑: the peak. Enter: its node.";

const wanted = new WeakMap<State, "compilation" | typeof TRAINING_STEP>(); // the plan that a reader chose last

export const mountMemory: LaterMount = (parent, { state, search }, tools) => {
  const chart = new Chart();
  const [lead, legend, list, said, sliders, phases] = [
    h("p", { class: "lead" }),
    h("div", { class: "legend" }),
    h("div", { class: "page" }),
    h("output", { class: "said", "aria-live": "polite" }),
    h("span", { class: "sizes" }),
    h("div", { class: "phases" }),
  ];
  const by = h(
    "select",
    { "aria-label": "Stacked by" },
    h("option", { value: "kind" }, "by kind"),
    h("option", { value: "module" }, "by module"),
  );
  const device = h("select", { "aria-label": "Memory of the device" });
  const button = (text: string, label: string, click: () => void): HTMLElement =>
    h("button", { type: "button", class: "small", title: label, "aria-label": label, on: { click } }, text);
  const choice = h("div", { class: "choice", role: "radiogroup", "aria-label": "Memory of" });
  const middle = (): number => {
    const { from, to } = chart.window;
    return chart.pinned >= from && chart.pinned < to ? chart.pinned + 0.5 : (from + to) / 2;
  };
  const bar = h(
    "div",
    { class: "bar" },
    choice,
    device,
    by,
    h(
      "span",
      {},
      button("−", "Zoom out (-)", () => chart.zoom(1 / ZOOM, middle())),
      " ",
      button("+", "Zoom in (+)", () => chart.zoom(ZOOM, middle())),
      " ",
      button("Fit", "Show everything (0)", () => chart.move(chart.whole)),
      " ",
      button("Peak", "Go to the peak (↑)", () => now && pin(now.plan.peak)),
    ),
    sliders,
  );
  const lower = lowering(state, (names) => {
    const holders =
      now?.plan.holders.filter(({ half, maker }) => half === 0 && names.has(maker.descriptor || maker.name)) ?? [];
    if (!holders.length) return;
    openRow({ holders });
    legend.scrollIntoView({ block: "nearest" }); // with the drawing above it, below the facts of a narrow page
  });
  const view = h(
    "div",
    { class: "memory-view" },
    h("style", {}, styles),
    lead,
    phases,
    lower.element,
    bar,
    chart.canvas,
    legend,
    h("div", { class: "readout" }, said),
    list,
  );

  let now: Shown | null = null;
  let layers: Layer[] = [];
  let shown: readonly unknown[] = [];
  let sizes = new Map<string, number>();
  let everywhere: Shown | null = null; // what is shown, with the memory of all devices
  let seen = ""; // the selection that was last drawn

  /** Whether a training step is shown: where the reader chose it, or there is nothing else. */
  const isStep = (): boolean =>
    state.recording.rowCount(TRAINING_STEP) > 0 &&
    (wanted.get(state) === TRAINING_STEP || !halvesIn(state.compilation).length);
  /** Chooses a moment; `andNode`: and its node. */
  const pin = (moment: number, andNode = false): void => {
    if (!now || moment < 0 || moment >= now.plan.moments.length) return;
    chart.pinned = moment;
    chart.reveal(moment);
    chart.ask();
    tell(moment);
    fillList();
    const { half, node } = now.plan.moments[moment]!;
    if (andNode) open({ half, maker: node });
  };
  const open = ({ half, maker }: Pick<Holder, "half" | "maker">): void => {
    if (isStep()) wanted.set(state, TRAINING_STEP); // also when the node's compilation has a plan of its own
    now?.open(half, maker);
  };
  const tell = (moment: number): void => {
    const at = moment < 0 ? chart.pinned : moment;
    if (!now || at < 0) return;
    replace(said, ...describe(now.plan, at), h("br"), h("span", { class: "muted" }, KEYS));
    paintLegend(at);
  };
  const paintLegend = (moment: number): void => {
    const { fills, of: colours } = readColours(chart.canvas);
    const entries = layers.map(({ name, bytes: of }, i) => {
      const box = h("i");
      box.style.background = fills[fillOf(name, i)]!;
      const about = by.value === "kind" ? tools.explained("colours", `memory: ${name}`) : { title: name };
      return h("span", about, box, `${name} ${bytes(of[moment] ?? 0)}`);
    });
    replace(legend, ...entries.reverse(), chart.lit.length > 1 && litEntry(chart.lit, moment, colours.accent));
  };
  const fillOf = (name: string, layer: number): number =>
    by.value === "kind"
      ? KINDS.indexOf(name as (typeof KINDS)[number])
      : name === REST
        ? 0
        : 1 + ((layer + 1) % (FILLS - 1));
  const fillList = (): void => {
    if (!now?.plan.moments.length) return replace(list);
    const { plan } = now;
    const rows = rowsAt(plan, chart.pinned);
    const text = search.textIn("memory").trim().toLowerCase();
    const found = rows.filter((row) =>
      `${row.name} ${row.module} ${row.holders[0]!.kind} ${lineOf(row.holders[0]!)}`.toLowerCase().includes(text),
    );
    const values = rows.reduce((sum, { holders }) => sum + holders.length, 0);
    const { node, phase } = plan.moments[chart.pinned]!;
    const of = found.length < rows.length ? `, ${found.length} of ${rows.length} rows` : "";
    replace(
      list,
      tools.table(
        `Alive while ${node.name} runs in the ${phase}: ${bytes(plan.alive[chart.pinned]!)} in ${plural(values, "value")}${of}`,
        columns(plan, tools),
        found,
        { onRow: openRow, selected: (row) => row.holders.some((one) => chart.lit.includes(one)) },
      ),
    );
  };
  const openRow = ({ holders }: Pick<Row, "holders">): void => {
    const [first] = holders as [Holder];
    if (!now) return;
    chart.lit = kept = holders;
    const there = now.isOpen(first.half);
    const { compilation, stage, role } = state.selection;
    if (there) {
      seen = [compilation, stage, role, first.maker.index].join(); // this selection moves no moment
      state.openNodes(holders.flatMap(({ half, maker }) => (half === first.half ? [maker.index] : [])));
    } else open(first);
  };
  let kept: readonly Holder[] | null = null; // lit by a row of the table, until another node is selected

  /** What is selected elsewhere: its life is lit, and if it runs, it is the moment. */
  const select = (): void => {
    if (!now) return;
    const { node, selection } = state;
    const key = [selection.compilation, selection.stage, selection.role, node?.index].join();
    const found = node ? now.find(node) : null;
    const known = found?.holder;
    // an operator with several results makes several storages, none of which is its own value
    const makes = ({ half, maker }: Holder): boolean => maker.index === node?.index && now!.isOpen(half);
    if (kept && (!node || kept.some((one) => one === known || makes(one)))) {
      if (node) seen = key;
    } else {
      kept = null;
      chart.lit = known ? [known] : [];
      const at = found?.moment ?? -1;
      if (at >= 0 && seen !== key && at !== chart.pinned) pin(at);
      seen = key;
    }
    tools.reselect(list);
    tell(chart.hover);
    chart.ask();
  };

  const restack = (): void => {
    if (!now) return;
    const { plan } = now;
    layers = layersOf(plan, by.value as StackedBy);
    chart.show(
      plan,
      layers,
      layers.map(({ name }, i) => fillOf(name, i)),
    );
    tell(chart.pinned);
  };
  by.addEventListener("change", restack);

  const replan = (): void => {
    try {
      showPlan(ofCompilation(state, sizes));
    } catch (error) {
      if (!(error instanceof UnknownSizes)) throw error;
      const unknown = `The sizes ${error.symbols.join(", ")} depend on data or are not in the log, so nothing can be planned.`;
      showNone(`${unknown} Choose a value for each.`);
    }
  };
  const drawn = [chart.canvas, legend, said, list, by, device];
  const showNone = (why: string): void => {
    now = null;
    for (const part of drawn) part.hidden = true;
    replace(lead, quoted(why));
    replace(phases);
  };
  const showPlan = (one: Shown): void => {
    everywhere = one;
    const devices = devicesOf(one.plan).filter(Boolean);
    const chosen = devices.length > 1 && devices.includes(device.value) ? device.value : "";
    replace(
      device,
      h("option", { value: "" }, "all devices"),
      devices.map((name) => h("option", { value: name }, name)),
    );
    device.value = chosen;
    now = { ...one, plan: onDevice(one.plan, chosen) };
    const { plan } = now;
    for (const part of drawn) part.hidden = false;
    device.hidden = devices.length < 2;
    chart.pinned = Math.min(chart.pinned, plan.moments.length - 1);
    if (chart.pinned < 0) chart.pinned = plan.peak;
    const where = chosen ? [" This is the memory on ", h("code", {}, chosen), " alone."] : byDevice(plan, devices);
    replace(lead, ...sentence(plan, isStep() ? TRAINING_STEP : state.compilation.kind), where);
    const peaks = isStep() ? peaksOf(plan) : [];
    replace(
      phases,
      peaks.length > 0 && "Peaks: ",
      peaks.map(({ phase, moment }, i) => [
        i > 0 && " · ",
        h("button", { type: "button", class: "link", on: { click: () => pin(moment) } }, phase),
        ` ${bytes(plan.alive[moment]!)}`,
      ]),
    );
    chart.canvas.ariaLabel = `Live bytes over ${plural(plan.moments.length, "node")}: at most ${bytes(plan.alive[plan.peak] ?? 0)}, at ${plan.moments[plan.peak]?.node.name ?? "no node"}. Arrow keys go from node to node.`;
    restack();
    fillList();
  };

  const showLowering = (): void => {
    const nodes = graphsOf(state).reduce((sum, { nodes }) => sum + nodes.length, 0);
    lower.show(nodes, device.value);
  };
  device.addEventListener("change", () => {
    if (!everywhere) return;
    chart.pinned = -1; // the peak is elsewhere
    showPlan(everywhere);
    if (!isStep()) showLowering();
  });

  const offerChoice = (): void => {
    const one = (name: string, what: "compilation" | typeof TRAINING_STEP, isChosen: boolean): Child =>
      h(
        "button",
        {
          type: "button",
          class: "small",
          role: "radio",
          "aria-checked": String(isChosen),
          tabindex: isChosen ? "0" : "-1",
          disabled: what !== TRAINING_STEP && !halvesIn(state.compilation).length,
          on: { click: () => choose(what), keydown: turn },
        },
        name,
      );
    choice.hidden = state.recording.rowCount(TRAINING_STEP) === 0;
    const step = isStep();
    replace(choice, one("This compilation", "compilation", !step), one("Training step", TRAINING_STEP, step));
  };
  const choose = (what: "compilation" | typeof TRAINING_STEP): void => {
    wanted.set(state, what);
    update();
    choice.querySelector<HTMLElement>("[aria-checked=true]")?.focus();
  };
  const turn = (event: KeyboardEvent): void => {
    if (!event.key.startsWith("Arrow")) return;
    event.preventDefault();
    choose(isStep() && halvesIn(state.compilation).length ? "compilation" : TRAINING_STEP);
  };

  const offerSizes = (): void => {
    const recorded = state.compilation.sizes;
    const symbols = symbolsOf(graphsOf(state)).slice(0, MOST_SIZES);
    sizes = new Map(symbols.flatMap((name) => (recorded.has(name) ? [[name, recorded.get(name)!] as const] : [])));
    const inputs = symbols.map((name) => {
      const value = sizes.get(name);
      const most = LARGEST * Math.max(value ?? 1, 16);
      const range = h("input", {
        type: "range",
        min: "1",
        max: most,
        value: value ?? 1,
        "aria-label": `${name}, as a slider`,
      });
      const exact = h("input", { type: "number", min: "0", value, "aria-label": `${name}, as a number` });
      const set = (from: HTMLInputElement, other: HTMLInputElement): void => {
        const chosen = Math.floor(Number(from.value));
        if (!from.value || !(chosen >= 0)) return;
        other.value = String(chosen);
        sizes.set(name, chosen);
        replan();
      };
      range.addEventListener("input", () => set(range, exact));
      exact.addEventListener("input", () => set(exact, range));
      return h(
        "label",
        { title: value === undefined ? "This size is not recorded." : `In the recorded call: ${thousands(value)}` },
        h("code", {}, name),
        range,
        exact,
      );
    });
    replace(sliders, ...inputs);
  };

  const attach = (): void => {
    offerChoice();
    if (view.parentElement === parent) return;
    replace(parent, view);
    const body = view.closest(".workbench");
    if (body) themes.observe(body, { attributes: true, attributeFilter: ["data-theme"] });
    resized.observe(chart.canvas);
  };
  /** Whether this is shown already. If not, what was shown before is forgotten. */
  const isShown = (...key: readonly unknown[]): boolean => {
    if (shown.length === key.length && key.every((one, i) => one === shown[i])) return true;
    shown = key;
    now = null;
    chart.pinned = -1;
    chart.lit = [];
    kept = null;
    return false;
  };
  const updateStep = (): void => {
    const rows = state.recording.rows(TRAINING_STEP);
    if (!rows) {
      const coming = state.recording.load([{ what: "rows", kind: TRAINING_STEP }]);
      if (!coming) return updateStep();
      attach();
      showNone("Planning the memory of the training step …");
      coming.then(
        () => isStep() && updateStep(),
        (error: unknown) => showNone(`The training step is not known. ${error instanceof Error ? error.message : ""}`),
      );
      return;
    }
    const { step } = rows.part;
    const before = now && !lower.isShown ? { moment: chart.pinned, of: now.plan.moments.length } : null;
    const same = isShown(rows);
    offerChoice();
    if (same) return select();
    attach();
    replace(sliders);
    lower.hide();
    if (!step?.moments.length)
      return showNone("This training step cannot be planned. `recording.step_memory()` in Python says why.");
    if (before?.of === step.moments.length) chart.pinned = before.moment; // more was compiled since
    showPlan(ofStep(state, step));
    select();
  };
  const update = (): void => {
    if (isStep()) return updateStep();
    const graphs = graphsOf(state);
    if (isShown(...graphs.map(({ snapshot }) => snapshot), state.recording.rowCount(TRAINING_STEP))) {
      if (now) select();
      return;
    }
    if (
      !state.recording.rowCount(TRAINING_STEP) &&
      graphs.every(({ nodes }) => nodes.every(({ op }) => op === "p" || op === "o"))
    )
      return replace(
        parent,
        notice("empty", "Nothing runs, so no memory is needed.", "The graph only returns its inputs."),
      );
    attach();
    offerSizes();
    replan();
    showLowering();
    select();
  };

  const stop = follow(chart, {
    hover(moment) {
      chart.hover = moment;
      tell(moment);
      chart.ask();
    },
    click: (moment) => pin(moment, true),
  });
  chart.canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !now) return;
    const { key, shiftKey } = event;
    const by = { ArrowLeft: -1, ArrowRight: 1 }[key];
    if (key === "+" || key === "=") chart.zoom(ZOOM, middle());
    else if (key === "-") chart.zoom(1 / ZOOM, middle());
    else if (key === "0") chart.move(chart.whole);
    else if (by && shiftKey) chart.pan(by * PAN);
    else if (by) pin(chart.pinned + by);
    else if (key === "Home") pin(0);
    else if (key === "End") pin(now.plan.moments.length - 1);
    else if (key === "ArrowUp") pin(now.plan.peak);
    else if (key === "Enter" || key === " ") pin(chart.pinned, true);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  const resized = new ResizeObserver(() => chart.ask());
  const themes = new MutationObserver(() => {
    chart.repaint();
    tell(chart.pinned);
  });
  update();
  const unsubscribe = search.subscribe(fillList);
  return {
    update,
    destroy() {
      chart.destroy();
      resized.disconnect();
      themes.disconnect();
      unsubscribe();
      stop();
    },
  };
};

/** What the peak is made of, in two sentences. */
function sentence({ moments, alive, peak, holders }: Plan, kind: string): Child[] {
  if (peak < 0) return ["Nothing runs, so no memory is needed."];
  const { node, phase } = moments[peak]!;
  const most = alive[peak]!;
  const named = kind === TRAINING_STEP ? { ...NAMES, ...OF_STEP } : NAMES;
  const by = new Map<string, number>();
  for (const one of holders)
    if (one.madeAt <= peak && peak < goneAt(one)) by.set(one.kind, (by.get(one.kind) ?? 0) + one.nbytes);
  const shares = [...by]
    .sort((a, b) => b[1] - a[1])
    .filter(([, nbytes]) => nbytes >= 0.05 * most)
    .slice(0, 3)
    .map(([name, nbytes]) => `${Math.round((100 * nbytes) / most)} % ${named[name] ?? name}`);
  const module = node.modules[node.modules.length - 1]?.path;
  const half = kind === "inference" ? "" : ` of the ${phase}`;
  return [
    "At most ",
    h("b", {}, bytes(most)),
    " are alive at once: while ",
    h("code", {}, node.name),
    `${half} runs`,
    module && [", in ", h("code", {}, module)],
    node.source?.file && [` (${place(node.source.file, node.source.line)} `, h("code", {}, node.source.code), ")"],
    shares.length ? `. Of these, ${shares.join(", ")}.` : ".",
  ];
}

/** The peak of each device, if there are several. */
function byDevice(plan: Plan, devices: readonly string[]): Child[] {
  if (devices.length < 2) return [];
  const peaks = devices.map((name, i) => {
    const { alive, peak } = onDevice(plan, name);
    return [i > 0 && (i === devices.length - 1 ? " and " : ", "), bytes(alive[peak] ?? 0), " on ", h("code", {}, name)];
  });
  return [" Each device by itself: at most ", peaks, "."];
}

const NAMES: Readonly<Record<string, string>> = {
  parameter: "are parameters",
  buffer: "are buffers",
  input: "are inputs",
  constant: "are constants",
  saved: "are saved for the backward",
  output: "are outputs",
  update: "are new values of inputs",
  tangent: "are incoming gradients",
  gradient: "are gradients that the backward returns",
  intermediate: "are intermediates",
};

const OF_STEP = { buffer: "are buffers and the optimizer's state", gradient: "are gradients" };

/** What the line over the layers is. */
function litEntry(lit: readonly Holder[], moment: number, colour: string): Child {
  const alive = lit.filter((one) => one.madeAt <= moment && moment < goneAt(one));
  const nbytes = alive.reduce((sum, one) => sum + one.nbytes, 0);
  const box = h("i");
  box.style.background = colour;
  const about = { title: "The line in the drawing: how many of the live bytes are of these values" };
  return h("span", about, box, `lit values ${bytes(nbytes)}`);
}

/** The moment in words. */
function describe({ moments, alive }: Plan, at: number): Child[] {
  const { node, phase } = moments[at]!;
  const module = node.modules[node.modules.length - 1]?.path;
  return [
    h("b", {}, node.name),
    ` · ${phase}, node ${thousands(at + 1)} of ${thousands(moments.length)} · ${bytes(alive[at]!)} alive`,
    module && [" · ", h("code", {}, module)],
    node.source?.file && [` · ${place(node.source.file, node.source.line)} `, h("code", {}, node.source.code)],
  ];
}

function columns(plan: Plan, { codeText }: Tools): Column<Row>[] {
  const first = (row: Row): Holder => row.holders[0]!;
  const devices = new Set(plan.holders.map((one) => one.device)).size;
  const moment = (at: number): Child => {
    const found = plan.moments[at];
    return found ? [codeText(found.node.name, 14), h("small", {}, found.phase)] : "";
  };
  const typed = ({ value }: Holder): string => dtype(plan.text(value.dtype)) + shape(value.shape);
  return [
    {
      title: "Value",
      term: "Value alive",
      kind: "code",
      order: (row) => row.name,
      cell: (row) => [
        row.holders.length > 1 && `${row.holders.length} × `,
        codeText(row.name),
        h("small", {}, codeText(typed(first(row)), 16)),
        devices > 1 && h("small", {}, `on ${first(row).device}`),
        first(row).maker.checkpoint && h("small", {}, `checkpoint: ${first(row).maker.checkpoint}`),
        row.odd && h("small", {}, `differs from ${row.odd.holders.length} equal ones: ${typed(first(row.odd))}`),
      ],
    },
    {
      title: "Kind",
      term: "Kind of memory",
      order: (row) => first(row).kind,
      cell: (row) => first(row).kind,
    },
    {
      title: "Bytes",
      kind: "number",
      order: (row) => -row.nbytes,
      cell: (row) => [bytes(row.nbytes), row.holders.length > 1 && h("small", {}, `${bytes(first(row).nbytes)} each`)],
    },
    {
      title: "Module",
      kind: "code",
      order: (row) => row.module,
      cell: (row) => [codeText(row.module), layersIn(row) && h("small", {}, `layers ${layersIn(row)}`)],
    },
    {
      title: "Line",
      kind: "code",
      order: (row) => lineOf(first(row)),
      cell: (row) => [
        lineOf(first(row)),
        lineOf(first(row)) && h("small", { class: "line" }, first(row).maker.source?.code),
      ],
    },
    {
      title: "Born at",
      kind: "code",
      order: (row) => first(row).madeAt,
      cell: (row) => (first(row).maker.op === "p" ? "" : moment(first(row).madeAt)),
    },
    {
      title: "Freed after",
      kind: "code",
      order: (row) => first(row).until,
      cell: (row) => moment(goneAt(first(row)) - 1),
    },
    { title: "Held by", kind: "prose", order: (row) => first(row).by, cell: (row) => held(row) },
  ];
}

/** A node that reads it last is in the column before. */
function held({ holders: [first] }: Row): string {
  const { by, kind } = first!;
  if (by.startsWith("the ")) return by;
  return kind === "saved" ? "the saved tensors, for its last reader" : "its last reader";
}
