// Which lines changed between two listings. Patience diff: lines that occur once on both sides anchor the rest,
// which is right for graph code (almost every line is unique) and takes N log N for 20,000 lines, where a general
// diff takes minutes. Between anchors a bounded Myers search; past the bound the block counts as replaced.

export interface Block {
  readonly fromA: number; // lines, half open
  readonly toA: number;
  readonly fromB: number;
  readonly toB: number;
}

const MAX_EDITS = 200;

export function diffLines(a: readonly string[], b: readonly string[]): Block[] {
  const numbers = new Map<string, number>();
  const number = (line: string): number => {
    let n = numbers.get(line);
    if (n === undefined) numbers.set(line, (n = numbers.size));
    return n;
  };
  const left = Int32Array.from(a, number);
  const right = Int32Array.from(b, number);
  const matches: [number, number][] = [];
  const pending: Block[] = [{ fromA: 0, toA: left.length, fromB: 0, toB: right.length }];
  while (pending.length) {
    let { fromA, toA, fromB, toB } = pending.pop()!;
    while (fromA < toA && fromB < toB && left[fromA] === right[fromB]) matches.push([fromA++, fromB++]);
    while (fromA < toA && fromB < toB && left[toA - 1] === right[toB - 1]) matches.push([--toA, --toB]);
    if (fromA === toA || fromB === toB) continue;
    const anchors = uniqueAnchors(left, right, { fromA, toA, fromB, toB });
    if (!anchors.length) {
      matches.push(...shortestEdit(left, right, { fromA, toA, fromB, toB }));
      continue;
    }
    let [lastA, lastB] = [fromA, fromB];
    for (const [i, j] of anchors) {
      matches.push([i, j]);
      pending.push({ fromA: lastA, toA: i, fromB: lastB, toB: j });
      [lastA, lastB] = [i + 1, j + 1];
    }
    pending.push({ fromA: lastA, toA, fromB: lastB, toB });
  }
  return gaps(matches, left.length, right.length);
}

/** The blocks between the matches. */
function gaps(matches: [number, number][], lengthA: number, lengthB: number): Block[] {
  matches.sort((x, y) => x[0] - y[0]);
  const blocks: Block[] = [];
  let [atA, atB] = [0, 0];
  for (const [i, j] of [...matches, [lengthA, lengthB] as const]) {
    if (i > atA || j > atB) blocks.push({ fromA: atA, toA: i, fromB: atB, toB: j });
    [atA, atB] = [i + 1, j + 1];
  }
  return blocks;
}

/** Lines that occur exactly once in each range, reduced to the longest run that is in order on both sides. */
function uniqueAnchors(left: Int32Array, right: Int32Array, range: Block): [number, number][] {
  const seen = new Map<number, [number, number]>(); // line -> position in a, in b; -1 none, -2 several
  for (let i = range.fromA; i < range.toA; i++) seen.set(left[i]!, [seen.has(left[i]!) ? -2 : i, -1]);
  for (let j = range.fromB; j < range.toB; j++) {
    const entry = seen.get(right[j]!);
    if (entry) entry[1] = entry[1] === -1 ? j : -2;
  }
  const pairs = [...seen.values()].filter(([i, j]) => i >= 0 && j >= 0);
  const tails: number[] = []; // index of the pair that ends the best run of each length
  const before: number[] = [];
  pairs.forEach(([, j], p) => {
    let [low, high] = [0, tails.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (pairs[tails[middle]!]![1] < j) low = middle + 1;
      else high = middle;
    }
    before[p] = low > 0 ? tails[low - 1]! : -1;
    tails[low] = p;
  });
  const run: [number, number][] = [];
  for (let p = tails.length ? tails[tails.length - 1]! : -1; p >= 0; p = before[p]!) run.push(pairs[p]!);
  return run.reverse();
}

/** Matches of a shortest edit (Myers 1986), or none if it needs more than MAX_EDITS edits. */
function shortestEdit(left: Int32Array, right: Int32Array, range: Block): [number, number][] {
  const lengthA = range.toA - range.fromA;
  const lengthB = range.toB - range.fromB;
  const limit = Math.min(MAX_EDITS, lengthA + lengthB);
  const furthest = new Int32Array(2 * limit + 3);
  const middle = limit + 1;
  const history: Int32Array[] = [];
  for (let edits = 0; edits <= limit; edits++) {
    history.push(furthest.slice());
    for (let k = -edits; k <= edits; k += 2) {
      const down = k === -edits || (k !== edits && furthest[middle + k - 1]! < furthest[middle + k + 1]!);
      let x = down ? furthest[middle + k + 1]! : furthest[middle + k - 1]! + 1;
      let y = x - k;
      while (x < lengthA && y < lengthB && left[range.fromA + x] === right[range.fromB + y]) {
        x++;
        y++;
      }
      furthest[middle + k] = x;
      if (x >= lengthA && y >= lengthB) return walkBack(history, edits, k, lengthA, lengthB, middle, range);
    }
  }
  return [];
}

function walkBack(
  history: Int32Array[],
  edits: number,
  k: number,
  x: number,
  y: number,
  middle: number,
  range: Block,
): [number, number][] {
  const matches: [number, number][] = [];
  for (; edits >= 0; edits--) {
    const furthest = history[edits]!;
    const down = k === -edits || (k !== edits && furthest[middle + k - 1]! < furthest[middle + k + 1]!);
    const fromK = down ? k + 1 : k - 1;
    const fromX = edits === 0 ? 0 : furthest[middle + fromK]!;
    const fromY = edits === 0 ? 0 : fromX - fromK;
    const [stopX, stopY] = edits === 0 ? [0, 0] : down ? [fromX, fromY + 1] : [fromX + 1, fromY];
    while (x > stopX && y > stopY) matches.push([range.fromA + --x, range.fromB + --y]);
    [x, y, k] = [fromX, fromY, fromK];
  }
  return matches;
}

export interface Span {
  readonly fromA: number; // characters, half open
  readonly toA: number;
  readonly fromB: number;
  readonly toB: number;
}

/** The same changes as character spans of the joined texts, narrowed within lines that are opposite each other. */
export function spans(a: readonly string[], b: readonly string[], blocks: readonly Block[]): Span[] {
  const startsA = starts(a);
  const startsB = starts(b);
  const out: Span[] = [];
  for (const block of blocks) {
    const lines = block.toA - block.fromA;
    if (lines !== block.toB - block.fromB) {
      out.push(wholeLines(block, startsA, startsB));
      continue;
    }
    for (let n = 0; n < lines; n++) {
      const [left, right] = [a[block.fromA + n]!, b[block.fromB + n]!];
      if (left === right) continue;
      let head = 0;
      while (head < left.length && head < right.length && left[head] === right[head]) head++;
      let tail = 0;
      const room = Math.min(left.length, right.length) - head;
      while (tail < room && left[left.length - 1 - tail] === right[right.length - 1 - tail]) tail++;
      const [atA, atB] = [startsA[block.fromA + n]!, startsB[block.fromB + n]!];
      out.push({ fromA: atA + head, toA: atA + left.length - tail, fromB: atB + head, toB: atB + right.length - tail });
    }
  }
  return out;
}

/** A block as whole lines. At the end of the texts, where no newline follows, it includes the newline before it. */
function wholeLines(block: Block, startsA: number[], startsB: number[]): Span {
  const atEnd = block.toA === startsA.length - 1;
  const back = atEnd && block.fromA > 0 ? 1 : 0;
  const end = atEnd ? 1 : 0;
  return {
    fromA: startsA[block.fromA]! - back,
    toA: startsA[block.toA]! - end,
    fromB: startsB[block.fromB]! - back,
    toB: startsB[block.toB]! - end,
  };
}

/** Where each line begins in the text joined by newlines, and one past the end (as if a newline followed). */
function starts(lines: readonly string[]): number[] {
  const out = [0];
  for (const line of lines) out.push(out[out.length - 1]! + line.length + 1);
  return out;
}

export function counts(blocks: readonly Block[]): { added: number; removed: number } {
  let [added, removed] = [0, 0];
  for (const block of blocks) {
    added += block.toB - block.fromB;
    removed += block.toA - block.fromA;
  }
  return { added, removed };
}
