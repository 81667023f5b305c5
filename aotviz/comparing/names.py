"""Names for the sliders of ipywidgets. A screen reader cannot tell what they are for: their handles have no label.

A `Names` stands among the children of a box with the class `BOX`, and labels the handles in it by what is shown beside
them: "offset of x".
"""

from __future__ import annotations

import anywidget

BOX = "aotviz-named-sliders"
ESM = """
function render({ el }) {
  el.style.display = "none";
  const name = (box) => {
    for (const handle of box.querySelectorAll(".widget-slider .noUi-handle:not([aria-label])")) {
      const what = handle.closest(".widget-slider").querySelector(".widget-label")?.textContent ?? "";
      const whose = handle.closest(".widget-vbox")?.querySelector("code")?.textContent ?? "";
      handle.setAttribute("aria-label", whose ? `${what} of ${whose}` : what);
    }
  };
  let frame = 0;
  const watch = new MutationObserver(() => name(el.closest(".%BOX%") ?? el));
  const attached = () => {
    const box = el.closest(".%BOX%");
    if (!box) return void (frame = requestAnimationFrame(attached));
    name(box);
    watch.observe(box, { childList: true, subtree: true });
  };
  attached();
  return () => {
    cancelAnimationFrame(frame);
    watch.disconnect();
  };
}
export default { render };
""".replace("%BOX%", BOX)


class Names(anywidget.AnyWidget):
    """Labels the sliders of the box that it is in."""

    _esm = ESM
