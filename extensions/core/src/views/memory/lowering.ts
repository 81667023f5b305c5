// What would lower the peak, what is kept for the backward beside eager, and what Inductor's program needs: below the
// sentence about the peak. Python found it (explain/peaks.py). A kernel is asked when the view is opened, for a large graph when the user asks for it.

import { type Child, h, quoted, replace } from "../../dom";
import { bytes, milliseconds, plural } from "../../format";
import type { State } from "../../state";
import type { PeakChange, PeakRecord } from "../../wire";

const LARGE = 6000; // nodes; the changes of more take a kernel several seconds

export interface Lowering {
  readonly element: HTMLElement;
  /** Shows those of the current compilation; `nodes`: how many run in it, `device`: whose peak, "" for the first. */
  show(nodes: number, device: string): void;
  hide(): void;
  readonly isShown: boolean;
}

/** `light` shows the lives of the values that these nodes make. */
export function lowering(state: State, light: (names: ReadonlySet<string>) => void): Lowering {
  const element = h("div", { class: "lowering", "aria-live": "polite" });
  let showing = ""; // what was asked for last
  let on = ""; // the device

  const fill = (kind: string): void => {
    if (kind !== showing) return;
    const peaks = state.recording.rows(kind)?.part.peaks ?? [];
    const found = peaks.find(({ device }) => device === on) ?? peaks[0];
    replace(element, found ? told(found, state.compilation.sizes.size > 0, light) : missing(state));
  };
  const load = (kind: string): void => {
    const coming = state.recording.load([{ what: "rows", kind }]);
    if (!coming) return fill(kind);
    replace(element, h("p", { class: "muted" }, "Computing what would lower the peak …"));
    coming.then(
      () => fill(kind),
      (error: unknown) => {
        const why = error instanceof Error ? error.message : String(error);
        if (kind === showing)
          replace(element, h("p", { class: "muted" }, `What would lower the peak is not known. ${why}`));
      },
    );
  };
  const show = (nodes: number, device: string): void => {
    on = device;
    const kind = (showing = `peak ${state.compilation.id}`);
    if (nodes <= LARGE || !state.recording.asksKernel || state.recording.has({ what: "rows", kind })) return load(kind);
    const ask = h("button", { type: "button", class: "small", on: { click: () => load(kind) } }, "Compute");
    replace(element, h("p", {}, "What would lower the peak? For a graph of this size it takes some seconds. ", ask));
  };
  const hide = (): void => {
    showing = "";
    replace(element);
  };
  return {
    element,
    show,
    hide,
    get isShown() {
      return showing !== "";
    },
  };
}

function missing({ recording }: State): Child {
  const how = "`recording[0].peak_changes()` in Python computes it.";
  const text = `What would lower the peak was not computed for this page. ${how}`;
  return recording.asksKernel ? "" : h("p", { class: "muted" }, quoted(text));
}

function told({ device, peak, changes, beside_eager, inductor }: PeakRecord, symbolic: boolean, light: LightUp): Child {
  const most = changes[0]?.saves ?? 0;
  const share = Math.round((100 * most) / Math.max(peak, 1));
  const sizes = symbolic ? "For the recorded sizes: " : "";
  const it = device ? `the peak on ${device}` : "it";
  const head =
    changes.length === 0
      ? `No change that is known lowers ${it}.`
      : changes.length === 1
        ? `A change would lower ${it} by ${bytes(most)} (${share} %).`
        : `${changes.length} changes would lower ${it}, by up to ${bytes(most)} (${share} %).`;
  return [
    changes.length
      ? h(
          "details",
          { open: true },
          h("summary", {}, sizes + head),
          h(
            "ol",
            {},
            changes.map((one) => item(one, light)),
          ),
        )
      : h("p", {}, sizes + head),
    inductor.length > 0 && h("p", { class: "of-inductor" }, quoted(inductor.join(" "))),
    beside_eager.length > 0 && h("p", { class: "beside-eager" }, quoted(beside_eager.join(" "))),
  ];
}

type LightUp = (names: ReadonlySet<string>) => void;

function item({ what, saves, peak, at, recompute_ms, source, values }: PeakChange, light: LightUp): HTMLElement {
  const longer = recompute_ms > 0 ? `, and the backward computes ${milliseconds(recompute_ms * 1e6)} longer` : "";
  const click = (): void => light(new Set(values));
  return h(
    "li",
    {},
    h("b", {}, `−${bytes(saves)}`),
    " ",
    quoted(`${what} The peak is then ${bytes(peak)}, at \`${at}\`${longer}.`),
    values.length > 0 && [
      " ",
      h(
        "button",
        { type: "button", class: "link", title: "Light their lives in the drawing", on: { click } },
        `Show ${plural(values.length, "value")}`,
      ),
    ],
    source && h("small", { class: "line", title: source }, source.replace(/^.*?([^/\\]+:\d+ )/, "$1")),
  );
}
