// The colours and fonts of the drawing, read from the page's style (graph.css), so that a canvas follows Jupyter's
// theme as everything else does.

const NAMES = [
  "background", "text", "muted", "faint", "accent", "selected", "line", "sunken", "forward", "forward-fill", "forward-far", "backward", "backward-fill",
  "backward-far", "alias", "alias-fill", "across", "edge", "inputs", "users", "neutral", "neutral-fill", "forward-open", "backward-open",
] as const;
export const CATEGORIES = 10; // colours that tell categories apart; the last is for all the others

export type ColourName = (typeof NAMES)[number];

export interface Palette {
  readonly colour: { readonly [name in ColourName]: string };
  readonly category: readonly string[]; // strong: strips, far boxes
  readonly categoryFill: readonly string[]; // pale: behind text
  readonly ramp: readonly string[]; // from little to much
  readonly mono: string;
  readonly sans: string;
}

export const RAMP = 5;

export function readPalette(element: HTMLElement): Palette {
  const probe = document.createElement("span");
  probe.hidden = true;
  element.append(probe);
  const style = getComputedStyle(probe);
  const read = (name: string): string => {
    probe.style.color = `var(--graph-${name})`;
    return style.color;
  };
  const font = (name: string): string => {
    probe.style.fontFamily = `var(--aot-${name})`;
    return style.fontFamily;
  };
  const colour = Object.fromEntries(NAMES.map((name) => [name, read(name)])) as Palette["colour"];
  const several = (name: string, count: number): string[] => Array.from({ length: count }, (_, i) => read(`${name}-${i}`));
  const palette = { colour, category: several("c", CATEGORIES), categoryFill: several("f", CATEGORIES), ramp: several("r", RAMP), mono: font("mono"), sans: font("sans") };
  probe.remove();
  return palette;
}
