// There are two plugins. One opens recordings (files, outputs of notebooks, palette, launcher). The other shows the
// compilations of running kernels.

import { ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from "@jupyterlab/application";
import { ICommandPalette, MainAreaWidget, showErrorMessage, WidgetTracker } from "@jupyterlab/apputils";
import { IDocumentManager } from "@jupyterlab/docmanager";
import { FileDialog } from "@jupyterlab/filebrowser";
import { ILauncher } from "@jupyterlab/launcher";
import { type CommandRegistry } from "@lumino/commands";
import { type Widget } from "@lumino/widgets";

import { FACTORY, FILE_TYPE, type RecordingDocument, RecordingFactory } from "./documents";
import { download } from "./export_html";
import { icon } from "./icon";
import { Kernels } from "./live/kernels";
import { LivePanel } from "./live/panel";
import { notebooks } from "./outputs";
import { RecordingView } from "./recording_view";
import css from "./style.css";

const CATEGORY = "aotviz";
const OPEN = "aotviz:open-recording";
const LIVE = "aotviz:show-live-compilations";
const EXPORT = "aotviz:export-html";

/** Adds a command to the palette and, if it needs no context, to the launcher. */
function offer(
  commands: CommandRegistry,
  id: string,
  options: CommandRegistry.ICommandOptions & { label: string },
  palette: ICommandPalette | null,
  launcher: ILauncher | null,
): void {
  commands.addCommand(id, {
    icon,
    ...options,
    label: (args) => (args["isPalette"] ? `${CATEGORY}: ${options.label}` : options.label),
  });
  palette?.addItem({ command: id, category: CATEGORY, args: { isPalette: true } }); // the palette shows no categories
  launcher?.add({ command: id, category: CATEGORY });
}

/** The recording that a main area widget shows, if it shows one. */
function shown(widget: Widget | null): RecordingView | null {
  return widget instanceof MainAreaWidget && widget.content instanceof RecordingView ? widget.content : null;
}

const recordings: JupyterFrontEndPlugin<void> = {
  id: "@aotviz/jupyterlab:recordings",
  description: "Opens .aotviz files, and the recordings in notebooks, in the workbench, without a kernel.",
  autoStart: true,
  requires: [IDocumentManager],
  optional: [ICommandPalette, ILauncher, ILayoutRestorer],
  activate(
    app: JupyterFrontEnd,
    documents: IDocumentManager,
    palette: ICommandPalette | null,
    launcher: ILauncher | null,
    restorer: ILayoutRestorer | null,
  ) {
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(css);
    document.adoptedStyleSheets.push(sheet);

    app.docRegistry.addFileType(FILE_TYPE);
    const factory = new RecordingFactory();
    app.docRegistry.addWidgetFactory(factory);
    app.docRegistry.addWidgetExtension("Notebook", notebooks);
    const tracker = new WidgetTracker<RecordingDocument>({ namespace: "aotviz" });
    factory.widgetCreated.connect((_, widget) => {
      widget.context.pathChanged.connect(() => void tracker.save(widget));
      void tracker.add(widget);
    });
    void restorer?.restore(tracker, {
      command: "docmanager:open",
      args: (widget) => ({ path: widget.context.path, factory: FACTORY }),
      name: (widget) => widget.context.path,
    });

    offer(
      app.commands,
      OPEN,
      {
        label: "Open Recording…",
        caption: "Open an aotviz recording (.aotviz) in the workbench",
        async execute() {
          const chosen = await FileDialog.getOpenFiles({
            manager: documents,
            title: "Open an aotviz recording",
            filter: (item) => (item.type === "directory" || item.path.endsWith(".aotviz") ? {} : null),
          });
          for (const item of chosen.value ?? [])
            if (item.type !== "directory") documents.openOrReveal(item.path, FACTORY);
        },
      },
      palette,
      launcher,
    );
    offer(
      app.commands,
      EXPORT,
      {
        label: "Export Recording as HTML",
        caption: "Save the recording that is shown as one HTML file that opens anywhere, offline",
        isEnabled: () => shown(app.shell.currentWidget) !== null,
        async execute() {
          const widget = app.shell.currentWidget;
          const view = shown(widget);
          if (!widget || !view) return;
          try {
            await download(await view.recording(), widget.title.label);
          } catch (error) {
            await showErrorMessage(
              "The recording could not be exported",
              error instanceof Error ? error : String(error),
            );
          }
        },
      },
      palette,
      null,
    );
    app.shell.currentChanged?.connect(() => app.commands.notifyCommandChanged(EXPORT));
  },
};

const live: JupyterFrontEndPlugin<void> = {
  id: "@aotviz/jupyterlab:live",
  description: "A side panel of the compilations of running kernels.",
  autoStart: true,
  optional: [ICommandPalette, ILauncher, ILayoutRestorer],
  activate(
    app: JupyterFrontEnd,
    palette: ICommandPalette | null,
    launcher: ILauncher | null,
    restorer: ILayoutRestorer | null,
  ) {
    const panel = new LivePanel(new Kernels(app.serviceManager), (name, compilation) => {
      const widget = new MainAreaWidget({ content: new RecordingView(compilation) });
      widget.title.label = name;
      widget.title.caption = `${name}, as its kernel compiles it`;
      widget.title.icon = icon;
      widget.title.closable = true;
      widget.toolbar.hide(); // the workbench has its own header
      app.shell.add(widget, "main");
      app.shell.activateById(widget.id);
    });
    app.shell.add(panel, "left", { rank: 900 });
    restorer?.add(panel, panel.id);
    offer(
      app.commands,
      LIVE,
      {
        label: "Live Compilations",
        caption: "Show what running kernels compile, as it happens",
        execute: () => app.shell.activateById(panel.id),
      },
      palette,
      launcher,
    );
  },
};

export default [recordings, live];
