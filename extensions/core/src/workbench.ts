// The workbench: a recording, shown in an element. A rail of stages, tabs of views, the facts of the selected node;
// one selection for all. It lives in a shadow root, so that no style of the page around it gets in or out.

import { decodeRecording, RecordingError } from "./decode";
import { append, h, notice, replace } from "./dom";
import { milliseconds, plural } from "./format";
import type { Host } from "./host";
import { Layouter } from "./layout/layouter";
import { Recording, timed } from "./model";
import { State } from "./state";
import css from "./styles/workbench.css";
import { followTheme } from "./theme";
import { facts } from "./views/facts";
import { find } from "./views/find";
import { VIEWS } from "./views/registry";
import { stages } from "./views/stages";
import { chip } from "./views/table";
import type { Context, Mounted } from "./views/view";
import type { CompilationData, RecordingData } from "./wire";

export interface Workbench {
  destroy(): void;
}

/** An element's shadow root with the workbench's style, and in it the element that everything is in. */
export function frame(element: HTMLElement): { root: ShadowRoot; body: HTMLElement; destroy(): void } {
  const root = element.shadowRoot ?? element.attachShadow({ mode: "open" });
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(css);
  root.adoptedStyleSheets = [sheet];
  const body = h("div", { class: "workbench", data: { "lm-suppress-shortcuts": "true" } });
  root.replaceChildren(body);
  element.setAttribute("data-lm-suppress-shortcuts", "true"); // or Jupyter takes our arrow keys
  const destroy = followTheme(body);
  return { root, body, destroy };
}

/** Shows the recording in a file's bytes, or says why it can't. */
export async function openRecording(element: HTMLElement, bytes: Promise<Uint8Array>, host: Host): Promise<Workbench> {
  const place = frame(element);
  replace(place.body, notice("loading", "Opening the recording …"));
  try {
    const data = await decodeRecording(await bytes);
    return show(place, data, host);
  } catch (error) {
    const title = error instanceof RecordingError ? error.message : "The recording could not be opened.";
    replace(place.body, notice("error", title, error instanceof RecordingError ? "" : String(error)));
    return place;
  }
}

/** Shows a decoded recording in an element. */
export function mountWorkbench(element: HTMLElement, data: RecordingData, host: Host): Workbench {
  return show(frame(element), data, host);
}

function show(place: { root: ShadowRoot; body: HTMLElement; destroy(): void }, data: RecordingData, host: Host): Workbench {
  if (!data.compilations.length) {
    replace(place.body, notice("empty", "Nothing was compiled.", "Call the compiled function once, inside `with aotviz.record()` if you use it, and show the recording again."));
    return place;
  }
  const state = new State(new Recording(data));
  const layouter = new Layouter(() => host.graphvizWorker());
  const context: Context = { state, host, layouter, root: place.root };
  const head = h("header", { class: "head" });
  const rail = h("nav", { class: "rail", "aria-label": "Stages" });
  const stageHead = h("div", { class: "stage-head" });
  const tabs = h("div", { class: "tabs", role: "tablist", "aria-label": "Views" });
  const finder = find(state);
  const panel = h("section", { class: "panel", role: "tabpanel" });
  const side = h("aside", { class: "facts", "aria-label": "Selected node" });
  replace(place.body, head, h("div", { class: "main" }, rail, h("div", { class: "work" }, stageHead, tabs, h("div", { class: "content" }, panel, side))));

  const parts: Mounted[] = [stages(rail, context), facts(side, context)];
  let view: { id: string; mounted: Mounted } | null = null;
  const openView = (): void => {
    const id = state.selection.view;
    if (view?.id === id) return view.mounted.update();
    view?.mounted.destroy();
    replace(panel);
    panel.setAttribute("data-view", id);
    view = { id, mounted: VIEWS.find((candidate) => candidate.id === id)!.mount(panel, context) };
  };
  const openViewSafely = (): void => {
    try {
      openView();
    } catch (error) {
      view = null;
      replace(panel, notice("error", "This view failed.", `${String(error)} The other views still work.`));
    }
  };
  const render = (): void => {
    replace(stageHead, ...stageLine(state));
    renderTabs(tabs, state);
    for (const part of parts) part.update();
    openViewSafely();
  };
  renderHead(head, state, data, finder);
  render();
  const stop = state.subscribe((now, before) => {
    if (now.compilation !== before.compilation) renderHead(head, state, data, finder);
    render();
  });
  return {
    destroy() {
      stop();
      view?.mounted.destroy();
      for (const part of parts) part.destroy();
      layouter.dispose();
      place.destroy();
    },
  };
}

function renderHead(head: HTMLElement, state: State, data: RecordingData, finder: HTMLElement): void {
  const { compilation } = state;
  const versions = [...data.producer].map(([name, version]) => `${name} ${version}`).join(" · ");
  replace(head, h("span", { class: "brand" }, "aotviz"), picker(state, data), chip(compilation.kind, "", [...compilation.options].map(([name, value]) => `${name}: ${value}`).join("\n")),
    h("span", { class: "muted" }, [plural(compilation.stages.length, "stage"), ...(timed(compilation) ? [milliseconds(totalTime(compilation))] : [])].join(" · ")),
    h("span", { class: "spring" }), data.dropped > 0 && chip(`${data.dropped} left out`, "warn", "the recording was full"),
    h("span", { class: "faint versions" }, versions), finder);
}

function totalTime(compilation: CompilationData): number {
  return compilation.stages.reduce((sum, stage) => sum + stage.elapsed_ns, 0);
}

function picker(state: State, data: RecordingData): HTMLElement {
  if (data.compilations.length === 1) return h("h2", {}, state.compilation.name);
  const select = h("select", { "aria-label": "Compilation" }, data.compilations.map((compilation, i) =>
    h("option", { value: i, selected: i === state.selection.compilation }, `${compilation.id} · ${compilation.name} (${compilation.kind}${compilation.error ? ", failed" : ""})`)));
  select.addEventListener("change", () => state.openCompilation(Number(select.value)));
  return select;
}

/** The stage's name, what it did, and a choice of its graphs. */
function stageLine(state: State): (Element | null)[] {
  const { stage, compilation, selection } = state;
  const error = compilation.error;
  const failure = error && h("div", { class: "failure", role: "alert" }, h("b", {}, `${error.type} in ${error.stage}: `), error.message);
  if (!stage) return [failure ?? notice("empty", "No stage has run.")];
  const roles = [...stage.graphs.keys()];
  const choice = roles.length > 1
    ? h("div", { class: "roles", role: "radiogroup", "aria-label": "Graph" }, roles.map((role) => h("button", {
      type: "button", role: "radio", "aria-checked": String(role === selection.role), class: role, data: { role }, on: { click: () => state.openRole(role) },
    }, role))) : null;
  return [
    h("div", { class: "title" }, h("h2", {}, stage.name), !stage.changed && chip("no change"), h("span", { class: "faint" }, "→ ", h("code", {}, stage.form)), h("span", { class: "spring" }), choice),
    h("p", {}, stage.summary), failure,
  ];
}

function renderTabs(tabs: HTMLElement, state: State): void {
  const focused = tabs.getRootNode() instanceof ShadowRoot && tabs.contains((tabs.getRootNode() as ShadowRoot).activeElement);
  tabs.replaceChildren();
  append(tabs, VIEWS.map((view, i) => {
    const badge = view.badge?.(state) ?? "";
    const chosen = view.id === state.selection.view;
    const tab = h("button", { type: "button", role: "tab", "aria-selected": String(chosen), tabindex: chosen ? "0" : "-1", data: { view: view.id } }, view.title, badge && h("span", { class: "badge" }, badge));
    tab.addEventListener("click", () => state.openView(view.id));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      state.openView(VIEWS[(i + step + VIEWS.length) % VIEWS.length]!.id);
    });
    return tab;
  }));
  if (focused) tabs.querySelector<HTMLElement>('[aria-selected="true"]')?.focus();
}
