// The choice of what the colours show: a property of the nodes, or one of the user's paintings. A painting can be taken
// away, and its values listed.

import { h, replace } from "../../dom";
import type { State } from "../../state";
import { explained } from "../../terms";
import { type ColourBy, COLOURINGS } from "./colouring";

const PAINTING = "painting:"; // before its label

export interface Chooser {
  readonly element: HTMLElement;
  /** After the paintings, or the selected one, changed. */
  update(by: ColourBy): void;
}

export interface ChooserActions {
  /** Another property was chosen, or the same one in place of a painting. */
  property(by: ColourBy): void;
  values(shown: boolean): void;
  failed(why: string): void;
}

export function chooser(state: State, actions: ChooserActions): Chooser {
  const select = h("select", { class: "small", "aria-label": "Colour by" });
  const away = h(
    "button",
    { type: "button", class: "small", title: "Take this painting away", "aria-label": "Take this painting away" },
    "×",
  );
  const values = h(
    "button",
    {
      type: "button",
      class: "small toggle",
      title: "List the values of this painting",
      "aria-pressed": "false",
      data: { toggle: "values" },
    },
    "Values",
  );
  const element = h(
    "span",
    { class: "colour-by" },
    h("label", { class: "colour-by" }, h("span", {}, "Colour"), select),
    away,
    values,
  );
  select.addEventListener("change", () => {
    if (select.value.startsWith(PAINTING)) return state.openPainting(select.value.slice(PAINTING.length));
    actions.property(select.value as ColourBy);
  });
  away.addEventListener("click", () => {
    const { painting } = state;
    if (painting) state.takeAway(painting).catch((error: unknown) => actions.failed(String(error)));
  });
  values.addEventListener("click", () => {
    const pressed = values.getAttribute("aria-pressed") !== "true";
    values.setAttribute("aria-pressed", String(pressed));
    actions.values(pressed);
  });
  let listed = "";
  return {
    element,
    update(by) {
      const { painting, paintings } = state;
      const labels = paintings.map(({ label }) => label);
      if (listed !== JSON.stringify(labels)) {
        listed = JSON.stringify(labels);
        const properties = Object.entries(COLOURINGS).map(([value, text]) =>
          h("option", { value, ...explained("colours", text) }, text),
        );
        replace(
          select,
          labels.length > 0 &&
            h(
              "optgroup",
              { label: "Painted" },
              labels.map((label) => h("option", { value: PAINTING + label }, label)),
            ),
          labels.length > 0 ? h("optgroup", { label: "By a property" }, properties) : properties,
        );
      }
      select.value = painting ? PAINTING + painting.label : by;
      away.hidden = values.hidden = !painting;
    },
  };
}
