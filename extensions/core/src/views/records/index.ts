// What a recording says in rows, of all compilations: stacks, graph breaks, guards, symbolic shapes, cache lookups,
// metrics and links. A page for each kind of which there is something; the search looks in all that a row says.

import { bring, h, replace } from "../../dom";
import { thousands } from "../../format";
import type { State } from "../../state";
import type { Context, Mounted, View } from "../view";
import { type Page, PAGES } from "./pages";

const REST_MS = 120; // after the last letter, until a large table is filled again
const LARGE = 300; // rows

const chosen = new WeakMap<State, string>(); // the page that a reader was last at

function pagesOf({ recording }: State): Page[] {
  return PAGES.filter(({ kind }) => recording.rowCount(kind) > 0);
}

function pageOf(state: State): Page | undefined {
  const pages = pagesOf(state);
  return pages.find(({ kind }) => kind === chosen.get(state)) ?? pages[0];
}

const wanted = new WeakMap<State, string>(); // the id of the compilation whose rows are marked

/** Opens the page of a kind of rows, at those of a compilation. */
export function showPage(state: State, kind: string, id = ""): void {
  chosen.set(state, kind);
  wanted.set(state, id);
  state.openView("records");
}

/** Marks the rows of the compilation that was asked for, and brings the first into view. */
function markWanted(state: State, place: HTMLElement): void {
  const id = wanted.get(state);
  if (!id) return;
  const rows = [...place.querySelectorAll("tbody tr")].filter(
    (row) => row.querySelector<HTMLElement>("[data-compilation]")?.dataset.compilation === id,
  );
  for (const row of rows) row.setAttribute("aria-current", "true");
  const [first] = rows;
  if (first) requestAnimationFrame(() => bring(first, place.closest(".panel") ?? place)); // after layout
}

export const records: View = {
  id: "records",
  title: "Records",
  isWhole: true,
  applies: (state) => pagesOf(state).length > 0,
  needs: (state) => {
    const page = pageOf(state);
    return page ? [{ what: "rows", kind: page.kind }] : [];
  },
  mount(parent: HTMLElement, { state, search }: Context): Mounted {
    const choice = h("div", { class: "choice pages", role: "radiogroup", "aria-label": "Records" });
    const count = h("output", { class: "muted", "aria-live": "polite" });
    const place = h("div", { class: "page records" });
    replace(parent, h("div", { class: "bar" }, choice, count), place);
    let shown: readonly unknown[] = [];
    let timer: ReturnType<typeof setTimeout> | undefined;
    const words = (): string[] => search.textIn("records").toLowerCase().match(/\S+/g) ?? [];
    const unsubscribe = search.subscribe(() => {
      clearTimeout(timer);
      const page = pageOf(state);
      if (page && state.recording.rowCount(page.kind) > LARGE) timer = setTimeout(update, REST_MS);
      else update();
    });
    const choose = (page: Page): void => {
      if (search.textIn("records")) search.set("");
      showPage(state, page.kind); // its rows may have to be loaded
      choice.querySelector<HTMLElement>("[aria-checked=true]")?.focus({ preventScroll: true });
    };
    const update = (): void => {
      const page = pageOf(state);
      const rows = page && state.recording.rows(page.kind);
      if (!page || !rows) return;
      const now = [page, rows, state.recording.index, search.textIn("records"), wanted.get(state)];
      if (now.every((part, i) => part === shown[i])) return;
      const same = now.slice(0, 3).every((part, i) => part === shown[i]);
      shown = now;
      if (!same)
        replace(
          choice,
          pagesOf(state).map((one) =>
            h(
              "button",
              {
                type: "button",
                class: "small",
                role: "radio",
                "aria-checked": String(one === page),
                data: { page: one.kind },
                on: { click: () => choose(one) },
              },
              one.title,
              h("span", { class: "badge" }, thousands(state.recording.rowCount(one.kind))),
            ),
          ),
        );
      const told = (found: number, all: number): void => {
        count.textContent = found === all ? "" : `${thousands(found)} of ${thousands(all)}`;
      };
      const content = page.show(state, rows, words(), told);
      replace(place, count.textContent.startsWith("0 of") ? h("p", { class: "muted" }, "Nothing matches.") : content);
      markWanted(state, place);
    };
    update();
    return {
      update,
      destroy() {
        unsubscribe();
        clearTimeout(timer);
      },
    };
  },
};
