// The input and output of a layout, in pixels. Both layouts (graphviz in a worker, and the plain one) use these types.
// Everything is by number and in typed arrays, so that the transfer to the worker is fast and has no names of a
// recording.

export interface Size {
  readonly width: number;
  readonly height: number;
}

export interface Rectangle extends Size {
  readonly x: number; // left
  readonly y: number; // top
}

/** One lane to lay out: the sizes of boxes, the edges between them, and the open groups ("clusters") around them. */
export interface LaneInput {
  readonly upward: boolean; // the backward runs from the bottom to the top, beside the forward that it mirrors
  readonly width: Float32Array; // per box
  readonly height: Float32Array; // per box
  readonly cluster: Int32Array; // per box: the cluster that it is directly in, -1 for none
  readonly parent: Int32Array; // per cluster: the cluster around it, -1 for none; outer before inner
  readonly titles: Float32Array; // per cluster: the least width that its title needs
  readonly from: Int32Array; // per edge: box
  readonly to: Int32Array; // per edge: box
}

export interface LaneLayout extends Size {
  readonly x: Float32Array; // per box: left
  readonly y: Float32Array; // per box: top
  readonly clusters: Float32Array; // per cluster: left, top, width, height
  /**
   * Per edge: start, then Bézier triples, as x, y; null for a straight line from border to border. If empty, all are
   * straight.
   */
  readonly curves: readonly (Float32Array | null)[];
}

export const RANK_GAP = 26; // between one row of boxes and the next
export const CLUSTER_PAD = 12;
export const TITLE = 26; // height of a cluster's title
