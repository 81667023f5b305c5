// What a descriptor's text tells the views. Ours are words (aotviz/ir/descriptors.py); torch's partitioners put
// some of their own, which print as Python expressions.

export function isTangent(descriptor: string): boolean {
  return /^tangent of |TangentAOTInput/.test(descriptor);
}

export function isSaved(descriptor: string): boolean {
  return /^saved |SavedForBackward/.test(descriptor);
}

/** The user's name in a descriptor: `h.0.weight` of "h.0.weight", of "ParamAOTInput(target='h.0.weight')". */
export function userName(descriptor: string): string {
  return /AOT(?:In|Out)put\(.*?['"]([^'"]+)['"]/.exec(descriptor)?.[1] ?? descriptor.replace(/^saved /, "");
}
