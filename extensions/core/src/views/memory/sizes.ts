// Symbolic sizes for given values of their symbols. The same as `evaluated` in aotviz/recording/sizes.py.

export const LONGEST = 1000; // characters of a size that are read
const HIGHEST = 8; // exponent that is computed

export type Sizes = ReadonlyMap<string, number>;

const TOKEN = /\s*(\d+|[A-Za-z_]\w*|\/\/|\*\*|[-+*%(),])/y;
const FUNCTIONS: Readonly<Record<string, (...args: number[]) => number>> = {
  FloorDiv: (a, b) => Math.floor(a / b!),
  CleanDiv: (a, b) => Math.floor(a / b!),
  Mod: modulo,
  PythonMod: modulo,
  Max: Math.max,
  Min: Math.min,
  CeilToInt: Math.ceil,
  TruncToInt: Math.trunc,
};

/** As in Python: the sign is that of the divisor. */
function modulo(a: number, b: number): number {
  return a - b * Math.floor(a / b);
}

function power(base: number, exponent: number): number {
  if (exponent < 0 || exponent > HIGHEST) throw new SyntaxError("no exponent of a size");
  return base ** exponent;
}

/** The value of a size, null if a symbol has none or the text is no arithmetic. */
export function evaluated(size: number | string, sizes: Sizes): number | null {
  if (typeof size === "number") return size;
  try {
    const value = new Reader(size.slice(0, LONGEST), sizes).whole();
    return Number.isFinite(value) ? value : null;
  } catch {
    return null;
  }
}

/** The symbols in a size. */
export function symbolsIn(size: number | string): string[] {
  return typeof size === "number" ? [] : (size.slice(0, LONGEST).match(/\b(?:s|u|zuf|z)\d+/g) ?? []);
}

/** Reads sums of products of factors. */
class Reader {
  private readonly tokens: string[] = [];
  private at = 0;

  constructor(
    text: string,
    private readonly sizes: Sizes,
  ) {
    TOKEN.lastIndex = 0;
    for (let end = 0; text.slice(end).trim(); end = TOKEN.lastIndex) {
      const found = TOKEN.exec(text);
      if (!found) throw new SyntaxError(text);
      this.tokens.push(found[1]!);
    }
  }

  whole(): number {
    const value = this.sum();
    if (this.at < this.tokens.length) throw new SyntaxError("more than a size");
    return value;
  }

  private take(...wanted: string[]): string | undefined {
    const token = this.tokens[this.at];
    if (token === undefined || !wanted.includes(token)) return undefined;
    this.at++;
    return token;
  }

  private sum(): number {
    let value = this.product();
    for (let sign = this.take("+", "-"); sign; sign = this.take("+", "-"))
      value += sign === "+" ? this.product() : -this.product();
    return value;
  }

  private product(): number {
    let value = this.factor();
    for (let sign = this.take("*", "//", "%"); sign; sign = this.take("*", "//", "%")) {
      const by = this.factor();
      value = sign === "*" ? value * by : sign === "//" ? Math.floor(value / by) : modulo(value, by);
    }
    return value;
  }

  private factor(): number {
    if (this.take("-")) return -this.factor();
    const base = this.atom();
    return this.take("**") ? power(base, this.factor()) : base;
  }

  private atom(): number {
    if (this.take("(")) return this.closed(this.sum());
    const token = this.tokens[this.at++] ?? "";
    if (/^\d/.test(token)) return Number(token);
    const known = this.sizes.get(token);
    if (known !== undefined) return known;
    if (!Object.hasOwn(FUNCTIONS, token) || !this.take("(")) throw new SyntaxError(token);
    const args = [this.sum()];
    while (this.take(",")) args.push(this.sum());
    return this.closed(FUNCTIONS[token]!(...args));
  }

  private closed(value: number): number {
    if (!this.take(")")) throw new SyntaxError("a parenthesis is not closed");
    return value;
  }
}
