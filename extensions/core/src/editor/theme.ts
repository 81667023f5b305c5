// Styles CodeMirror with the workbench's colours, so that light and dark need no separate theme.

import { HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { EditorView } from "@codemirror/view";
import { tags } from "@lezer/highlight";

const color = (name: string): { color: string } => ({ color: `var(--aot-code-${name})` });

const highlight = HighlightStyle.define([
  { tag: tags.comment, ...color("comment"), fontStyle: "italic" },
  { tag: [tags.keyword, tags.controlKeyword, tags.definitionKeyword, tags.operatorKeyword], ...color("keyword") },
  { tag: [tags.string, tags.special(tags.string)], ...color("string") },
  { tag: [tags.number, tags.bool, tags.null], ...color("number") },
  {
    tag: [
      tags.function(tags.variableName),
      tags.function(tags.propertyName),
      tags.definition(tags.function(tags.variableName)),
    ],
    ...color("function"),
  },
  { tag: [tags.propertyName], ...color("property") },
  { tag: [tags.operator, tags.punctuation, tags.bracket], ...color("punctuation") },
]);

const base = EditorView.theme({
  "&": { height: "100%", backgroundColor: "var(--aot-code-background)", color: "var(--aot-text)", fontSize: "12.5px" },
  "&.cm-focused, &:focus-within": { outline: "1px solid var(--aot-accent)", outlineOffset: "-1px" },
  ".cm-scroller": { fontFamily: "var(--aot-mono)", lineHeight: "1.55", overflow: "auto" },
  ".cm-content": { padding: "10px 0", caretColor: "var(--aot-accent)" },
  ".cm-line": { padding: "0 16px 0 10px" },
  ".cm-gutters": {
    backgroundColor: "var(--aot-code-background)",
    color: "var(--aot-faint)",
    border: "none",
    paddingLeft: "6px",
  },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "transparent" },
  ".cm-line.aot-marked": { backgroundColor: "var(--aot-selected)", boxShadow: "inset 2px 0 var(--aot-accent)" },
  ".cm-selectionBackground, &.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground": {
    backgroundColor: "var(--aot-selection)",
  },
  ".cm-tooltip": {
    backgroundColor: "var(--aot-raised)",
    color: "var(--aot-text)",
    border: "1px solid var(--aot-line)",
    borderRadius: "6px",
    boxShadow: "var(--aot-shadow)",
    padding: "6px 10px",
    maxWidth: "420px",
    fontFamily: "var(--aot-sans)",
  },
  ".aot-noted": { width: "3px", height: "100%", backgroundColor: "var(--aot-accent)", opacity: "0.45" },
  ".aot-notes": { width: "3px", marginLeft: "4px" },
  ".cm-collapsedLines": {
    background: "var(--aot-sunken)",
    color: "var(--aot-muted)",
    fontFamily: "var(--aot-sans)",
    fontSize: "11.5px",
    padding: "3px 12px",
    cursor: "pointer",
    border: "none",
  },
  ".cm-collapsedLines:before, .cm-collapsedLines:after": { content: "''", margin: "0" },
  "&.cm-merge-b .cm-changedLine, .cm-insertedLine": { backgroundColor: "var(--aot-added)" },
  "&.cm-merge-a .cm-changedLine, .cm-deletedChunk": { backgroundColor: "var(--aot-removed)" },
  "&.cm-merge-b .cm-changedText, .cm-insertedLine .cm-changedText": { background: "var(--aot-added-text)" },
  "&.cm-merge-a .cm-changedText, .cm-deletedChunk .cm-deletedText": { background: "var(--aot-removed-text)" },
  "&.cm-merge-b .cm-changedLineGutter": { background: "var(--aot-added-mark)" },
  "&.cm-merge-a .cm-changedLineGutter, .cm-deletedLineGutter": { background: "var(--aot-removed-mark)" },
  ".cm-deletedChunk": { paddingLeft: "10px" },
  "ins, del": { textDecoration: "none" },
});

export const theme = [base, syntaxHighlighting(highlight)];
