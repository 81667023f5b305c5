// What a layout gives back, in pixels, and the sizes that it is given. Both layouts (graphviz in a worker, and the
// plain one that needs nothing) speak this.

export interface Size {
  readonly width: number;
  readonly height: number;
}

export interface Rectangle extends Size {
  readonly x: number; // left
  readonly y: number; // top
}

/** One lane to lay out: boxes by size, edges between them, open modules around them. */
export interface LaneInput {
  readonly upward: boolean; // the backward runs from the bottom to the top, beside the forward that it mirrors
  readonly boxes: readonly { readonly id: string; readonly size: Size; readonly cluster: string }[]; // cluster: id, "" for none
  readonly clusters: readonly { readonly id: string; readonly parent: string; readonly letters: number }[]; // outer before inner; letters of the title
  readonly edges: readonly { readonly from: string; readonly to: string }[];
  readonly rankGap: number; // between one row of boxes and the next
}

export interface LaneLayout extends Size {
  readonly boxes: ReadonlyMap<string, Rectangle>;
  readonly clusters: ReadonlyMap<string, Rectangle>;
  readonly edges: readonly { readonly from: string; readonly to: string; readonly path: string }[]; // SVG path
}
