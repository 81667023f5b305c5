// A view whose code comes with the editor's bundle, when it is first opened: the page shows its first picture sooner.

import { notice, replace } from "../dom";
import * as tools from "./tools";
import type { Context, Mounted, View } from "./view";

export function later(view: Omit<View, "mount">): View {
  return {
    ...view,
    mount(parent: HTMLElement, context: Context): Mounted {
      let mounted: Mounted | null = null;
      let gone = false;
      replace(parent, notice("loading", "Loading the view …"));
      context.host.editor().then(
        ({ views }) => {
          if (gone) return;
          replace(parent);
          mounted = views[view.id]!(parent, context, tools);
        },
        (error: unknown) => replace(parent, notice("error", "This view could not be loaded.", String(error))),
      );
      return {
        update: () => mounted?.update(),
        destroy() {
          gone = true;
          mounted?.destroy();
        },
      };
    },
  };
}
