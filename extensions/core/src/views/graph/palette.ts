// The colours and fonts of the drawing, read from the page's style (graph.css), so that the canvas follows Jupyter's
// theme.

const NAMES = [
  "background",
  "text",
  "muted",
  "faint",
  "accent",
  "selected",
  "line",
  "sunken",
  "forward",
  "forward-fill",
  "forward-far",
  "backward",
  "backward-fill",
  "backward-far",
  "alias",
  "alias-fill",
  "across",
  "edge",
  "inputs",
  "users",
  "written",
  "neutral",
  "neutral-fill",
  "forward-open",
  "backward-open",
] as const;
export const CATEGORIES = 10; // colours of categories; the last is for all other categories

export type ColourName = (typeof NAMES)[number];

export interface Palette {
  readonly colour: { readonly [name in ColourName]: string };
  readonly category: readonly string[]; // strong, for strips and far boxes
  readonly categoryFill: readonly string[]; // pale, for the background of text
  readonly ramp: readonly string[]; // from low to high
  readonly mono: string;
  readonly sans: string;
}

export const RAMP = 5; // steps of one colour
const RAMP_COLOURS = 2 * RAMP + 3; // up, down, and those of painting.ts: zero, not a number, infinite

export function readPalette(element: HTMLElement): Palette {
  const probes = document.createElement("span");
  probes.hidden = true;
  const probe = (property: "color" | "fontFamily", value: string): (() => string) => {
    const one = document.createElement("span");
    one.style[property] = value;
    probes.append(one);
    return () => getComputedStyle(one)[property];
  };
  const several = (name: string, count: number, of = (one: string): string => one): (() => string)[] =>
    Array.from({ length: count }, (_, i) => probe("color", of(`var(--graph-${name}-${i})`)));
  const colours = NAMES.map((name) => [name, probe("color", `var(--graph-${name})`)] as const);
  const [category, categoryFill, ramp] = [
    several("c", CATEGORIES),
    several("c", CATEGORIES, (colour) => `color-mix(in srgb, ${colour} 20%, var(--aot-background))`),
    several("r", RAMP_COLOURS),
  ];
  const [mono, sans] = [probe("fontFamily", "var(--aot-mono)"), probe("fontFamily", "var(--aot-sans)")];
  element.append(probes); // all at once, so that the browser computes the styles once
  const read = (all: readonly (() => string)[]): string[] => all.map((one) => one());
  const colour = Object.fromEntries(colours.map(([name, one]) => [name, one()])) as Palette["colour"];
  const palette = {
    colour,
    category: read(category),
    categoryFill: read(categoryFill),
    ramp: read(ramp),
    mono: mono(),
    sans: sans(),
  };
  probes.remove();
  return palette;
}
