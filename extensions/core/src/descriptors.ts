// Reads the text of a descriptor for the views. Our descriptors are words (aotviz/ir/descriptors.py). Torch's
// partitioners add some of their own, which print as Python expressions.

/** Whether this is a tangent. Before the trace stage only its name shows this. */
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

/** Of an output that is the new value of an input: the descriptor of that input, else "". */
export function written(descriptor: string): string {
  return (
    /^(.*) after mutation$/.exec(descriptor)?.[1] ??
    /^InputMutationAOTOutput\(mutated_input=(.*)\)$/.exec(descriptor)?.[1] ??
    ""
  );
}

/** The user's name in a descriptor: `h.0.weight` of "h.0.weight", of "ParamAOTInput(target='h.0.weight')". */
export function userName(descriptor: string): string {
  return /AOT(?:In|Out)put\(.*?['"]([^'"]+)['"]/.exec(descriptor)?.[1] ?? descriptor.replace(/^saved /, "");
}
