// The operators whose results have other memory than the traced sizes say: the rules of aotviz/recording/oversized.py,
// which says how they were found.

const LOSSES = /^aten\.(?:mse_loss|smooth_l1_loss|soft_margin_loss|binary_cross_entropy)\.default$/;
const NORMS =
  /^aten\.(?:native_layer_norm|native_group_norm|native_batch_norm|_native_batch_norm_legit|_batch_norm_with_update)\.default$/;
const COPIES = /^aten\.(?:copy|(?:slice|select|diagonal|as_strided)_scatter)\.default$/;
const MASKED = /^aten\.(?:native_)?batch_norm_backward\.default$/;

export function keepsMore(target: string): boolean {
  return LOSSES.test(target) || NORMS.test(target);
}

/** Whether the result lies in a copy of the storage of the first tensor that is read. */
export function copiesAStorage(target: string): boolean {
  return COPIES.test(target);
}

/** How many elements a loss's storage has at least; `shapes` are those of the tensors that are read. */
export function keptElements(shapes: readonly (readonly number[])[]): number {
  const read = shapes.slice(0, 2);
  if (!read.length) return 0;
  let elements = 1;
  for (let back = 1; back <= Math.max(...read.map(({ length }) => length)); back++) {
    const sizes = read.map((shape) => shape[shape.length - back] ?? 1);
    elements *= Math.min(...sizes) ? Math.max(...sizes) : 0;
  }
  return elements;
}

/** Whether all results but the first have the dtype of the second tensor that is read. */
export function hasStatisticsOfWeights(target: string): boolean {
  return NORMS.test(target);
}

/** Whether a kernel for a CPU makes a gradient of its third tensor, a weight, that is not in the trace. */
export function makesAWeight(target: string, args: readonly unknown[]): boolean {
  if (target !== "aten.convolution_backward.default") return false;
  const mask = args[args.length - 1];
  return Array.isArray(mask) && mask.length === 4 && mask[2] === false && mask[3] === true;
}

/** Whether an item of the result is traced and never made, because `output_mask` does not ask for it. */
export function isNotMade(target: string, args: readonly unknown[], item: number): boolean {
  if (!MASKED.test(target)) return false;
  const mask = args.find((one) => Array.isArray(one) && one[0] === "L" && typeof one[1] === "boolean");
  return Array.isArray(mask) && mask[item + 1] === false;
}
