// The first item of the rail: what aotviz's cache said about the compilation, and what differs from the nearest key.

import { answered, colourOfAnswer, madeAt } from "../../cached";
import { h, quoted } from "../../dom";
import { plural } from "../../format";
import type { CacheAnswer, CompilationData } from "../../wire";
import { chip } from "../table";

const MOST_OPEN = 2; // ingredients that differ; the others are folded
const LONG = 120; // letters of a value; the rest is folded, or one value would fill the rail

/** Null if the cache was not asked. */
export function cacheItem({ cache, replayed }: CompilationData): HTMLElement | null {
  if (!cache) return null;
  const rest = cache.differs.slice(MOST_OPEN);
  const made = madeAt(cache.saved_at_unix_s);
  const said = quoted(sentence(cache.words));
  return h(
    "section",
    { class: "rail-cache", "aria-label": "The cache's answer", data: { outcome: cache.outcome } },
    h(
      "details",
      {},
      h("summary", { class: "answer" }, h("b", {}, "cache"), " ", chip(answered(cache), colourOfAnswer(cache))),
      h("p", { class: "what" }, said),
      cache.place && h("p", {}, h("code", {}, cache.place)),
      cache.differs.slice(0, MOST_OPEN).map(ingredient),
      rest.length > 0 &&
        h("details", {}, h("summary", {}, plural(rest.length, "other ingredient")), rest.map(ingredient)),
      replayed?.note && h("p", { class: "what" }, `Its stages are not shown: ${replayed.note}.`),
      made && h("p", { class: "faint" }, `made ${made}`),
    ),
  );
}

function ingredient({ name, before, after }: CacheAnswer["differs"][number]): HTMLElement {
  return h(
    "div",
    { class: "ingredient", role: "group", "aria-label": name },
    h("span", { class: "name" }, name),
    h("dl", {}, value("before", before, "removed"), value("now", after, "added")),
  );
}

function value(when: string, text: string, kind: string): HTMLElement {
  return h(
    "div",
    {},
    h("dt", {}, when),
    h("dd", {}, text ? folded(text, kind) : h("span", { class: "faint" }, "nothing")),
  );
}

function folded(text: string, kind: string): HTMLElement {
  const code = h("code", { class: kind }, text);
  if (text.length <= LONG) return code;
  const head = h("code", { class: kind }, `${text.slice(0, LONG / 3).trimEnd()}…`);
  return h("details", { class: "long" }, h("summary", {}, head, " "), code);
}

function sentence(words: string): string {
  const said = words.charAt(0).toUpperCase() + words.slice(1);
  return /[.!?:]$/.test(said) ? said : `${said}.`;
}
