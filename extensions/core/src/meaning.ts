// What a descriptor's text tells the views. Ours are words (aotviz/ir/descriptors.py); torch's partitioners put
// some of their own, which print as Python expressions.

/** An input of the backward that comes from outside; before the trace is done it has only its name to tell. */
export function isTangent(node: { readonly op: string; readonly name: string; readonly descriptor: string }): boolean {
  if (node.op !== "p") return false;
  const { descriptor } = node;
  return descriptor ? /^tangent of |TangentAOTInput/.test(descriptor) : /^tangents_\d+$/.test(node.name);
}

export function isSaved(descriptor: string): boolean {
  return /^saved |SavedForBackward/.test(descriptor);
}

export function isGradient(descriptor: string): boolean {
  return /^\(?gradient of |GradAOTOutput/.test(descriptor);
}

/** The user's name in a descriptor: `h.0.weight` of "h.0.weight", of "ParamAOTInput(target='h.0.weight')". */
export function userName(descriptor: string): string {
  return /AOT(?:In|Out)put\(.*?['"]([^'"]+)['"]/.exec(descriptor)?.[1] ?? descriptor.replace(/^saved /, "");
}
