// Leads the edges of the plain layout around boxes. In a container, the space between two rows is free from side to
// side, and so is the space between two neighbours of a row. So an edge passes each row that is in its way through a
// gap, and moves sideways only between rows. It leaves the groups around its first box one by one, from inner to outer,
// and enters those around its last box from outer to inner.

/** A row of a container, as drawn. Units are boxes, and groups as boxes. */
export interface DrawnRow {
  readonly units: readonly number[]; // from left to right
  readonly top: number;
  readonly bottom: number;
}

export interface Plan {
  readonly container: Int32Array; // per unit: the unit of the group around it, -1 for none
  readonly rows: ReadonlyMap<number, readonly DrawnRow[]>; // by container, from top to bottom
  readonly rowOf: Int32Array; // per unit: its row in its container
  readonly x: Float32Array; // per unit
  readonly y: Float32Array;
  readonly width: Float32Array;
  readonly height: Float32Array;
}

const CLEAR = 5; // pixels between an edge and a box that it passes
const MOST_PASSED = 400_000; // rows, of all edges; then the rest are straight, so that a huge picture does not hang

/** Per edge: a start and Bézier triples; null for a straight line from border to border, which meets no other box. */
export function around(from: Int32Array, to: Int32Array, plan: Plan): (Float32Array | null)[] {
  let left = MOST_PASSED;
  return Array.from(from, (a, i) => {
    if (left <= 0) return null;
    const path = new Path(plan, a, to[i]!);
    const points = path.points();
    left -= path.passed;
    return points;
  });
}

class Path {
  passed = 0;
  private readonly out: number[] = [];
  private x: number;
  private y: number;

  constructor(
    private readonly plan: Plan,
    private readonly a: number,
    private readonly b: number,
  ) {
    this.x = plan.x[a]! + plan.width[a]! / 2;
    this.y = 0;
  }

  points(): Float32Array | null {
    const { plan, a, b } = this;
    const [leaves, enters] = this.ends();
    const [outer, inner] = [leaves[leaves.length - 1]!, enters[0]!];
    const [first, last] = [plan.rowOf[outer]!, plan.rowOf[inner]!];
    const down = last >= first; // within one row, an edge goes below it and comes back up
    const up = last <= first;
    if (leaves.length === 1 && enters.length === 1 && Math.abs(last - first) === 1 && this.isPlain(down)) return null;
    this.y = down ? plan.y[a]! + plan.height[a]! : plan.y[a]!;
    this.out.push(this.x, this.y);
    for (const unit of leaves) {
      const rows = this.rowsAround(unit);
      this.vertical(down ? rows[plan.rowOf[unit]!]!.bottom : rows[plan.rowOf[unit]!]!.top);
      if (unit === outer) break;
      if (down) for (let row = plan.rowOf[unit]! + 1; row < rows.length; row++) this.pass(rows[row]!, unit, true);
      else for (let row = plan.rowOf[unit]! - 1; row >= 0; row--) this.pass(rows[row]!, unit, false);
    }
    const rows = this.rowsAround(outer);
    if (down) for (let row = first + 1; row < last; row++) this.pass(rows[row]!, outer, true);
    else for (let row = first - 1; row > last; row--) this.pass(rows[row]!, outer, false);
    if (first === last) this.vertical(rows[first]!.bottom + 2 * CLEAR);
    const goal = plan.x[b]! + plan.width[b]! / 2;
    for (const unit of enters) {
      const own = this.rowsAround(unit);
      const at = plan.rowOf[unit]!;
      if (unit !== inner) {
        if (up) for (let row = own.length - 1; row > at; row--) this.pass(own[row]!, unit, false);
        else for (let row = 0; row < at; row++) this.pass(own[row]!, unit, true);
      }
      this.aside(goal, up ? own[at]!.bottom : own[at]!.top);
    }
    this.vertical(up ? plan.y[b]! + plan.height[b]! : plan.y[b]!);
    return Float32Array.from(this.out);
  }

  /** The units that the edge leaves, from inner to outer, and enters, from outer to inner; the last and first are in one container. */
  private ends(): [number[], number[]] {
    const { container } = this.plan;
    const chain = (unit: number): number[] => {
      const units = [];
      for (let at = unit; at >= 0; at = container[at]!) units.push(at);
      return units;
    };
    const [leaves, enters] = [chain(this.a), chain(this.b)];
    while (leaves.length > 1 && enters.length > 1 && leaves[leaves.length - 1] === enters[enters.length - 1]) {
      leaves.pop();
      enters.pop();
    }
    return [leaves, enters.reverse()];
  }

  private rowsAround(unit: number): readonly DrawnRow[] {
    return this.plan.rows.get(this.plan.container[unit]!)!;
  }

  /** Whether both boxes fill their rows, so that a straight line between them is only in the space between the rows. */
  private isPlain(down: boolean): boolean {
    const { plan, a, b } = this;
    const rows = this.rowsAround(a);
    const [above, below] = down ? [a, b] : [b, a];
    const bottom = plan.y[above]! + plan.height[above]!;
    return rows[plan.rowOf[above]!]!.bottom - bottom < 1 && plan.y[below]! - rows[plan.rowOf[below]!]!.top < 1;
  }

  private pass(row: DrawnRow, unit: number, down: boolean): void {
    this.passed++;
    const x = this.gap(row, this.plan.container[unit]!);
    this.aside(x, down ? row.top : row.bottom);
    this.vertical(down ? row.bottom : row.top);
  }

  /** The place in a row that is free and nearest, within the row's container. */
  private gap({ units }: DrawnRow, container: number): number {
    const { plan, x } = this;
    const left = (unit: number): number => plan.x[unit]! - CLEAR;
    const right = (unit: number): number => plan.x[unit]! + plan.width[unit]! + CLEAR;
    let [low, high] = [0, units.length]; // the first unit that ends right of x
    while (low < high) {
      const middle = (low + high) >> 1;
      if (right(units[middle]!) <= x) low = middle + 1;
      else high = middle;
    }
    const unit = units[low];
    if (unit === undefined || left(unit) >= x) return x;
    const [before, after] = [units[low - 1], units[low + 1]];
    const [least, most] =
      container < 0 ? [-Infinity, Infinity] : [plan.x[container]! + 2, plan.x[container]! + plan.width[container]! - 2];
    const [a, b] = [Math.max(least, left(unit)), Math.min(most, right(unit))];
    const beside = (one: number, other: number | undefined, edge: number): number =>
      other === undefined ? one : (one + edge) / 2;
    const options = [
      beside(a, before, before === undefined ? a : right(before)),
      beside(b, after, after === undefined ? b : left(after)),
    ];
    return Math.abs(options[0]! - x) <= Math.abs(options[1]! - x) ? options[0]! : options[1]!;
  }

  private vertical(y: number): void {
    if (Math.abs(y - this.y) > 0.01) this.curve(this.x, y);
  }

  /** Moves sideways on the way to a height, in an S that is vertical at both ends. */
  private aside(x: number, y: number): void {
    if (Math.abs(x - this.x) > 0.01 || Math.abs(y - this.y) > 0.01) this.curve(x, y);
  }

  private curve(x: number, y: number): void {
    const { out } = this;
    const straight = Math.abs(x - this.x) < 0.01;
    // A straight piece after a straight piece prolongs it.
    if (straight && out.length > 2 && out[out.length - 8] === this.x && out[out.length - 2] === this.x) {
      out.length -= 6;
      this.y = out[out.length - 1]!;
    }
    const middle = (this.y + y) / 2;
    out.push(this.x, middle, x, middle, x, y);
    [this.x, this.y] = [x, y];
  }
}
