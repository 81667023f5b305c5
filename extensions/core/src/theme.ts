// Light or dark follows the page, and not the operating system's preference: Jupyter's and VS Code's variables apply
// through CSS, and we read the resulting colour. A page without these variables, such as marimo's, may set
// `color-scheme` to one of the two; then our own colours are of that one.

export function followTheme(body: HTMLElement): () => void {
  const look = (): void => {
    const { colorScheme } = getComputedStyle(body);
    const scheme = colorScheme === "dark" || colorScheme === "light" ? colorScheme : "";
    if ((body.getAttribute("data-scheme") ?? "") !== scheme) body.setAttribute("data-scheme", scheme);
    const [r = 255, g = 255, b = 255] = (getComputedStyle(body).backgroundColor.match(/[\d.]+/g) ?? []).map(Number);
    const theme = 0.299 * r + 0.587 * g + 0.114 * b < 128 ? "dark" : "light";
    if (body.getAttribute("data-theme") !== theme) body.setAttribute("data-theme", theme); // its observers repaint
  };
  const observer = new MutationObserver(() => {
    look();
    setTimeout(look, 300); // a theme's style sheet may arrive after its name
  });
  for (const element of [document.documentElement, document.body]) {
    observer.observe(element, {
      attributes: true,
      attributeFilter: ["class", "style", "data-jp-theme-name", "data-jp-theme-light", "data-vscode-theme-kind"],
    });
  }
  const media = matchMedia("(prefers-color-scheme: dark)");
  media.addEventListener("change", look);
  requestAnimationFrame(look);
  look();
  return () => {
    observer.disconnect();
    media.removeEventListener("change", look);
  };
}
