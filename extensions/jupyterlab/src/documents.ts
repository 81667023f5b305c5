// Registers `.aotviz` files with JupyterLab, and the document that a double click opens. It needs no kernel.

import { ABCWidgetFactory, type DocumentRegistry, DocumentWidget } from "@jupyterlab/docregistry";

import { icon } from "./icon";
import { RecordingView } from "./recording_view";

export const FACTORY = "aotviz workbench";

export const FILE_TYPE: Partial<DocumentRegistry.IFileType> & { name: string } = {
  name: "aotviz",
  displayName: "aotviz recording",
  extensions: [".aotviz"],
  mimeTypes: ["application/vnd.aotviz.recording"],
  fileFormat: "base64",
  contentType: "file",
  icon,
};

export type RecordingDocument = DocumentWidget<RecordingView, DocumentRegistry.IModel>;

export class RecordingFactory extends ABCWidgetFactory<RecordingDocument, DocumentRegistry.IModel> {
  constructor() {
    super({
      name: FACTORY,
      label: "aotviz workbench",
      modelName: "base64",
      fileTypes: ["aotviz"],
      defaultFor: ["aotviz"],
      readOnly: true,
    });
  }

  protected override createNewWidget(context: DocumentRegistry.Context): RecordingDocument {
    const content = new RecordingView({
      async load() {
        await context.ready;
        return fromBase64(context.model.toString());
      },
    });
    const document = new DocumentWidget({ content, context });
    document.title.icon = icon;
    document.toolbar.hide(); // the workbench has its own header
    // For example, a run saved the file again.
    void context.ready.then(() => context.model.contentChanged.connect(() => content.reload()));
    return document;
  }
}

function fromBase64(text: string): Uint8Array {
  return Uint8Array.from(atob(text.replace(/\s/g, "")), (letter) => letter.charCodeAt(0));
}
