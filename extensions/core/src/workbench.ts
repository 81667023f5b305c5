// The workbench shows a recording in an element. It has a rail of stages, tabs of views, and the facts of the selected
// node, with one shared selection. It is in a shadow root, which isolates its styles from those of the page.

import { called, calledIn } from "./called";
import { fromBase64 } from "./bytes";
import { decodePart, decodeRecording, type Opening, RecordingError } from "./decode";
import { answered, answeredInFull, colourOfAnswer, ranHere } from "./cached";
import { type Child, h, keepInView, notice, replace, quoted } from "./dom";
import { milliseconds, plural } from "./format";
import { following } from "./following";
import type { Host } from "./host";
import { keyboard } from "./keyboard";
import { Layouter } from "./layout/layouter";
import { Recording, timed } from "./model";
import { colourOf, endedAs, failedAs } from "./outcome";
import { messageOf, Panel } from "./panel";
import { type Ask, KernelSource, type Source, WholeSource } from "./source";
import { searchBox } from "./search";
import { Search } from "./search/search";
import { type Bookmark, State } from "./state";
import css from "./styles";
import { explained, termOf } from "./terms";
import { followTheme } from "./theme";
import { tourOf } from "./tour";
import { facts } from "./views/facts";
import { overview } from "./views/overview";
import { viewOf, viewsOf } from "./views/registry";
import { stages } from "./views/stages";
import { chip } from "./views/table";
import type { Context, Mounted, View } from "./views/view";
import type { CompilationHead, Painting, PaintingsPart, RecordingData } from "./wire";

const UNSEEN_MS = 200; // without a frame: the page is in the background
const MOST_OPTIONS = 100; // compilations in the list of the head; the compilations view can search more

export interface Workbench {
  destroy(): void;
}

interface Shown extends Workbench {
  /** Loads what is new. */
  refresh(): Promise<void>;
}

export interface Options {
  /** The initial selection: the last bookmark that an earlier page's `onSelect` got. */
  readonly bookmark?: Bookmark;
  readonly onSelect?: (bookmark: Bookmark) => void;
  /** Paintings in place of the recording's: base64 of a PaintingsPart; "" for the recording's own. */
  readonly painted?: string;
  /** Whether to take the focus immediately, for a page with nothing else on it. */
  readonly focus?: boolean;
  /** Calls back whenever the recording has grown, until the returned function is called. */
  readonly follow?: (changed: () => void) => () => void;
}

interface Frame {
  readonly root: ShadowRoot;
  readonly body: HTMLElement;
  destroy(): void;
}

/** Creates an element's shadow root with the workbench's style, and the root element in it. */
export function frame(element: HTMLElement): Frame {
  const root = element.shadowRoot ?? element.attachShadow({ mode: "open" });
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(css);
  root.adoptedStyleSheets = [sheet];
  const body = h("div", { class: "workbench", data: { "lm-suppress-shortcuts": "true" } });
  root.replaceChildren(body);
  element.setAttribute("data-lm-suppress-shortcuts", "true"); // otherwise Jupyter handles our arrow keys
  const destroy = followTheme(body);
  return { root, body, destroy };
}

/** Shows the recording in a file's bytes, or the error. */
export function openRecording(
  element: HTMLElement,
  bytes: Promise<Uint8Array>,
  host: Host,
  options: Options = {},
): Promise<Workbench> {
  return openSource(
    element,
    async (say) => {
      const data = await decodeRecording(await bytes, (size) => say(`Opening ${size} …`));
      return new WholeSource(data, options.painted ? await paintingsIn(options.painted) : data.paintings);
    },
    host,
    options,
  );
}

async function paintingsIn(text: string): Promise<readonly Painting[]> {
  return ((await decodePart(fromBase64(text), "PaintingsPart")) as PaintingsPart).paintings;
}

/** Shows the recording that a kernel sends part by part, or the error. */
export function openKernel(element: HTMLElement, ask: Ask, host: Host, options: Options = {}): Promise<Workbench> {
  return openSource(element, () => new KernelSource(ask), host, options, true);
}

/** Shows a decoded recording in an element. */
export function mountWorkbench(
  element: HTMLElement,
  data: RecordingData,
  host: Host,
  options: Options = {},
): Workbench {
  return show(frame(element), Recording.whole(data), host, new Layouter(() => host.graphvizWorker()), options);
}

/** `source` may announce long work. When the returned promise resolves, the notice is visible and can be cancelled. */
async function openSource(
  element: HTMLElement,
  source: (say: (what: string) => Promise<Opening>) => Source | Promise<Source>,
  host: Host,
  options: Options,
  again = false,
): Promise<Workbench> {
  const place = frame(element);
  const layouter = new Layouter(() => host.graphvizWorker());
  let shown: Shown | null = null;
  const say = async (what: string): Promise<Opening> => {
    const stop = new AbortController();
    const bar = h("progress", { max: 1, "aria-label": "Progress" });
    replace(
      place.body,
      notice(
        "loading",
        what,
        "",
        bar,
        h("button", { type: "button", class: "small", on: { click: () => stop.abort() } }, "Cancel"),
      ),
    );
    await shownSoon();
    return { signal: stop.signal, told: (share) => (bar.value = share) };
  };
  const open = async (): Promise<void> => {
    replace(place.body, notice("loading", "Opening the recording …"));
    try {
      shown = show(place, await Recording.open(await source(say)), host, layouter, options);
    } catch (error) {
      const stopped = error instanceof DOMException && error.name === "AbortError"; // the reader cancelled it
      const title = stopped
        ? "The recording was not opened."
        : error instanceof RecordingError
          ? error.message
          : "The recording could not be opened.";
      replace(
        place.body,
        notice(stopped ? "empty" : "error", title, stopped || error instanceof RecordingError ? "" : messageOf(error)),
        (again || stopped) &&
          h(
            "p",
            { class: "notice" },
            h("button", { type: "button", class: "small", on: { click: () => (opening = open()) } }, "Try again"),
          ),
      );
    }
  };
  let opening = Promise.resolve();
  const news = following(async () => {
    await opening; // so that a notice that arrives meanwhile is not lost
    await shown?.refresh();
  });
  const stop = options.follow?.(news.notice);
  await (opening = open());
  return {
    destroy() {
      stop?.();
      news.stop();
      layouter.dispose();
      (shown ?? place).destroy();
    },
  };
}

/** Resolves when the browser has painted, or when the page is in the background. */
function shownSoon(): Promise<void> {
  return new Promise((done) => {
    requestAnimationFrame(() => setTimeout(done));
    setTimeout(done, UNSEEN_MS);
  });
}

function show(place: Frame, recording: Recording, host: Host, layouter: Layouter, options: Options): Shown {
  return (recording.index.compilations.length ? showState : awaitFirst)(place, recording, host, layouter, options);
}

/** The notice for a recording without compilations; it says what to do. */
function awaitFirst(place: Frame, recording: Recording, host: Host, layouter: Layouter, options: Options): Shown {
  let shown: Shown | null = null;
  replace(
    place.body,
    notice(
      "empty",
      "Nothing was compiled.",
      [
        ...recording.index.notes,
        options.follow
          ? "Call the compiled function once. Its compilation then appears here."
          : "A function is compiled when it is first called. Call it once, inside the record() block if you use one; then show or save the recording again.",
      ].join(" "),
    ),
  );
  return {
    async refresh() {
      if (shown) return shown.refresh();
      await recording.refresh(-1);
      if (recording.index.compilations.length) shown = showState(place, recording, host, layouter, options);
    },
    destroy: () => (shown ?? place).destroy(),
  };
}

function showState(place: Frame, recording: Recording, host: Host, layouter: Layouter, options: Options): Shown {
  const state = new State(recording, options.bookmark);
  const search = new Search(state);
  const context: Context = { state, host, layouter, root: place.root, search };
  const head = h("header", { class: "head" });
  const ofWhich = h("p", { class: "rail-of" });
  const rail = h("nav", { class: "rail", "aria-label": "Stages" });
  const stageHead = h("div", { class: "stage-head" });
  const tabs = h("div", { class: "tabs", role: "tablist", "aria-label": "Views" });
  const finder = searchBox(state, search, (word) => keys.help.open(word));
  const panel = h("section", { class: "panel", role: "tabpanel" });
  const side = h("aside", { class: "facts", "aria-label": "Selected node" });
  replace(
    place.body,
    head,
    h(
      "div",
      { class: "main" },
      rail,
      h("div", { class: "work" }, stageHead, tabs, h("div", { class: "content" }, panel, side)),
    ),
  );

  const shown = new Panel(panel, context, viewOf);
  const steps = stages(rail, context);
  rail.prepend(ofWhich);
  const tour = tourOf(place.body, rail, context);
  const parts: Mounted[] = [steps, facts(side, context), shown, tour];
  const keys = keyboard(place.body, context, steps, finder, tour);
  place.body.append(keys.help.element);
  const render = (): void => {
    const { isWhole = false } = viewOf(state);
    stageHead.hidden = side.hidden = isWhole;
    const isJob = showsJob(state);
    place.body.toggleAttribute("data-job", isJob);
    replace(ofWhich, ...(isJob ? ["Stages of ", h("b", {}, calledIn(state.compilation)), timeOf(state)] : []));
    replace(stageHead, ...stageLine(state, keys.help.open));
    renderTabs(tabs, state);
    for (const part of parts) part.update();
    finder.update();
  };
  let headOf: unknown[] = [];
  const renderHeadOnce = (): void => {
    const {
      compilation: { stages, error },
      recording: { index },
    } = state;
    const now = [stages, error, index, viewOf(state) === overview, state.recording.rows("overview")];
    if (now.every((part, i) => part === headOf[i])) return;
    headOf = now;
    renderHead(head, state, finder.element, keys.button);
  };
  const stop = state.subscribe(() => {
    render();
    renderHeadOnce();
    options.onSelect?.(state.bookmark);
  });
  render();
  renderHeadOnce(); // after the overview is loaded, whose total it shows
  if (options.focus) place.body.focus({ preventScroll: true });
  return {
    refresh: () => state.refresh(),
    destroy() {
      stop();
      for (const part of parts) part.destroy();
      layouter.dispose();
      place.destroy();
    },
  };
}

function renderHead(head: HTMLElement, state: State, finder: HTMLElement, help: HTMLElement): void {
  const { producer, dropped } = state.recording.index;
  const versions = [...producer].map(([name, version]) => `${name} ${version}`).join(" · ");
  replace(
    head,
    h("span", { class: "brand" }, "aotviz"),
    picker(state),
    ...(showsJob(state) ? [] : chipsOf(state)),
    h("span", { class: "spring" }),
    dropped > 0 && chip(`${dropped} left out`, "warn"),
    h("span", { class: "faint versions" }, versions),
    finder,
    help,
  );
}

/** Whether the overview of several compilations is shown: what belongs to one of them may not look as if it were all. */
function showsJob(state: State): boolean {
  return viewOf(state) === overview && state.recording.index.compilations.length > 1;
}

/** `5 compilations · 846 ms`, once the overview is loaded. */
function total({ recording }: State): string {
  const seconds = recording.rows("overview")?.part.overview?.seconds;
  return (
    plural(recording.index.compilations.length, "compilation") + (seconds ? ` · ${milliseconds(seconds * 1e9)}` : "")
  );
}

/** ` · 336 ms`, of the open compilation. */
function timeOf({ compilation }: State): string {
  return compilation.stages.length && timed(compilation) ? ` · ${milliseconds(ranHere(compilation))}` : "";
}

function chipsOf(state: State): Child[] {
  const { compilation } = state;
  const stages = compilation.stages.length;
  return [
    compilation.error && chip(endedAs(compilation.error), colourOf(compilation.error), compilation.error.message),
    (compilation.kind || !compilation.error) &&
      chip(
        compilation.kind || "options",
        "",
        [...compilation.options].map(([name, value]) => `${name}: ${value}`).join("\n"),
      ),
    compilation.cache &&
      chip(
        `cache ${answered(compilation.cache)}`,
        colourOfAnswer(compilation.cache),
        answeredInFull(compilation.cache),
      ),
    stages > 0 && h("span", { class: "muted" }, plural(stages, "stage") + timeOf(state)),
  ];
}

function picker(state: State): HTMLElement {
  const { compilations } = state.recording.index;
  if (compilations.length === 1) return h("h2", {}, calledIn(state.compilation));
  const all = showsJob(state) ? `All ${total(state)}` : null;
  if (compilations.length > MOST_OPTIONS)
    return h(
      "button",
      {
        type: "button",
        class: "small",
        title: "All compilations",
        on: { click: () => state.openView("compilations") },
      },
      `${all ?? called(state.compilation)} ▾`,
    );
  const select = h(
    "select",
    { "aria-label": "Compilation" },
    all && h("option", { value: "", selected: true }, all),
    compilations.map((compilation, i) =>
      h("option", { value: i, selected: !all && i === state.selection.compilation }, optionOf(compilation)),
    ),
  );
  select.addEventListener("change", () => select.value && state.openCompilation(Number(select.value)));
  return select;
}

/** `step [0/0] (training, failed)`. */
function optionOf(head: CompilationHead): string {
  const { kind, error, cache } = head;
  const what = [kind, error ? endedAs(error) : "", cache ? `cache ${cache.outcome}` : ""]
    .filter((word) => word)
    .join(", ");
  return `${called(head)}${what && ` (${what})`}`;
}

/** The stage's name, what it did, and a choice of its graphs. */
function stageLine(state: State, explain: (word: string) => void): Child[] {
  const { stage, compilation, selection, recording } = state;
  const error = compilation.error;
  const failed = error ? compilation.stages.findIndex(({ name }) => name === error.stage) : -1;
  const failure =
    error &&
    h(
      "div",
      {
        class: error.ran_in_eager ? "failure refused" : "failure",
        role: error.ran_in_eager ? "note" : "alert",
        tabindex: "0",
      },
      h(
        "b",
        {},
        error.ran_in_eager ? "Ran in eager, refused in " : `${failedAs(error)} in `,
        failed >= 0 && failed !== selection.stage
          ? h("button", { type: "button", class: "link", on: { click: () => state.openStage(failed) } }, error.stage)
          : error.stage,
        ": ",
      ),
      quoted(error.message),
      error.place && h("p", { class: "faint" }, h("code", {}, error.place)),
    );
  if (!stage)
    return [
      failure ??
        (recording.has({ what: "compilation", compilation: selection.compilation })
          ? h("p", {}, "No stage has run.")
          : null),
    ];
  const roles = [...stage.graphs.keys()];
  const choice =
    roles.length > 1
      ? h(
          "div",
          { class: "roles", role: "radiogroup", "aria-label": "Graph" },
          roles.map((role) =>
            h(
              "button",
              {
                type: "button",
                role: "radio",
                "aria-checked": String(role === selection.role),
                class: role,
                data: { role },
                on: { click: () => state.openRole(role) },
              },
              role,
            ),
          ),
        )
      : null;
  return [
    h(
      "div",
      { class: "title" },
      h("h2", explained("stages", stage.name), stage.name),
      termOf("stages", stage.name) &&
        h(
          "button",
          {
            type: "button",
            class: "small what-is",
            "aria-label": `What is ${stage.name}?`,
            on: { click: () => explain(stage.name) },
          },
          "What is this?",
        ),
      stage.name === error?.stage ? chip(endedAs(error), colourOf(error)) : !stage.changed && chip("no change"),
      stage.replayed && chip("replayed", "added"),
      h("span", { class: "spring" }),
      choice,
    ),
    stage.name !== error?.stage && h("p", {}, quoted(stage.summary)),
    failure,
  ];
}

/** A tab that stays is kept: a click is lost if its button is replaced between press and release. */
function renderTabs(tabs: HTMLElement, state: State): void {
  const focused =
    tabs.getRootNode() instanceof ShadowRoot && tabs.contains((tabs.getRootNode() as ShadowRoot).activeElement);
  const known = new Map([...tabs.children].map((tab) => [(tab as HTMLElement).dataset.view, tab as HTMLElement]));
  const open = viewOf(state);
  const shown = viewsOf(state).map((view) => {
    const tab = known.get(view.id) ?? tabOf(view, state);
    const badge = view.badge?.(state) ?? "";
    tab.setAttribute("aria-selected", String(view === open));
    tab.tabIndex = view === open ? 0 : -1;
    replace(tab, view.title, badge && h("span", { class: "badge" }, badge));
    return tab;
  });
  if (shown.length !== tabs.children.length || shown.some((tab, i) => tab !== tabs.children[i]))
    replace(tabs, ...shown);
  const chosen = tabs.querySelector<HTMLElement>('[aria-selected="true"]');
  if (focused) chosen?.focus({ preventScroll: true });
  if (chosen) requestAnimationFrame(() => keepInView(tabs, chosen)); // after layout: in a narrow cell they are one line
}

function tabOf(view: View, state: State): HTMLElement {
  const tab = h("button", { type: "button", role: "tab", data: { view: view.id }, ...explained("tabs", view.title) });
  tab.addEventListener("click", () => state.openView(view.id));
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const views = viewsOf(state);
    state.openView(views[(views.indexOf(view) + step + views.length) % views.length]!.id);
  });
  return tab;
}
