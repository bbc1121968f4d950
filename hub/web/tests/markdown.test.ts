import assert from "node:assert/strict";
import test from "node:test";
import { safeLink } from "../src/markdown/links";
import { rendered } from "../src/markdown/markdown";
import { CodeBlock } from "../src/ui/code";
import { pick, seeded } from "./seeded";

interface Node {
  readonly type: string | ((props: object) => unknown);
  readonly props: { readonly [name: string]: unknown };
}

interface Element {
  readonly tag: string;
  readonly props: Node["props"];
}

/** Every element that comes of it, and its text. */
function elements(tree: unknown, found: Element[], texts: string[]): void {
  if (Array.isArray(tree)) {
    for (const one of tree) elements(one, found, texts);
  } else if (typeof tree === "string" || typeof tree === "number") {
    texts.push(String(tree));
  } else if (typeof tree === "object" && tree !== null) {
    const { type, props } = tree as Node;
    if (type === CodeBlock) {
      assert.equal(typeof props["text"], "string");
      texts.push(String(props["text"]));
    } else if (typeof type === "function") {
      elements(type(props), found, texts);
    } else {
      found.push({ tag: type, props });
      elements(props["children"], found, texts);
    }
  }
}

const TAGS = new Set("p h3 h4 h5 h6 ul ol li blockquote hr br strong em del code a div table thead tbody tr th td span pre".split(" "));
const PROPS = new Set(["children", "class", "href", "target", "rel", "start", "scope", "tabIndex", "role", "aria-label", "key"]);

function check(text: string): string {
  const [found, texts]: [Element[], string[]] = [[], []];
  elements(rendered(text), found, texts);
  for (const { tag, props } of found) {
    assert.ok(TAGS.has(tag), `<${tag}> of ${JSON.stringify(text)}`);
    for (const name of Object.keys(props)) assert.ok(PROPS.has(name), `${name} of ${JSON.stringify(text)}`);
    const href = props["href"];
    if (href !== undefined) assert.match(String(href), /^(https?:|mailto:)/, JSON.stringify(text));
  }
  return texts.join("");
}

const PIECES = [
  "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<svg onload=alert(1)>", "<iframe src='http://e.test'>", "<!--", "-->",
  "[a](javascript:alert(1))", "[b](JaVaScRiPt&colon;x)", "[c](data:text/html,<script>)", "[d](https://e.test/'onclick=x)", "[e]: vbscript:x",
  "[e]", "![p](http://e.test/p.png)", "![q](x\"onerror=y)", "<https://e.test>", "<javascript:alert(1)>", "http://e.test", "|", "\n|---|\n", "**",
  "*", "`", "```", "```html\n", "\n", "\n\n", "> ", "- ", "- [x] ", "1. ", "# ", "&lt;script&gt;", "&#60;", "&colon;", "\\", "  ", "word", "\u0000",
  "<a href=\"javascript:1\">", "</p>", "<style>*{}</style>", "<base href=//e.test>", "<form action=//e.test>", "\t", "\u202e", "---",
];

test("whatever a model writes, only elements made here come of it", () => {
  for (let seed = 0; seed < 3000; seed += 1) {
    const random = seeded(seed);
    let text = "";
    for (let left = 1 + Math.floor(random() * 14); left > 0; left -= 1) text += pick(random, PIECES);
    check(text);
  }
});

test("HTML is shown as the text it is", () => {
  assert.match(check("<script>alert(1)</script>"), /<script>alert\(1\)<\/script>/);
  assert.match(check("x <b>y</b>"), /<b>y<\/b>/);
});

test("Markdown becomes elements", () => {
  const [found, texts]: [Element[], string[]] = [[], []];
  elements(rendered("# T\n\n**b** `c` [l](https://e.test)\n\n- [x] done\n\n| a |\n|---|\n| b |\n\n```sh\nls\n```"), found, texts);
  const tags = new Set(found.map((one) => one.tag));
  for (const tag of ["h3", "strong", "code", "a", "ul", "li", "table"]) assert.ok(tags.has(tag), tag);
  const link = found.find((one) => one.tag === "a");
  assert.deepEqual([link?.props["href"], link?.props["rel"], link?.props["target"]], ["https://e.test/", "noopener noreferrer", "_blank"]);
});

test("links lead to the web and to mail, nowhere else", () => {
  assert.equal(safeLink("https://e.test/a b"), "https://e.test/a%20b");
  assert.equal(safeLink("mailto:a@e.test"), "mailto:a@e.test");
  for (const href of ["javascript:1", " javascript:1", "java\nscript:1", "data:text/html,x", "blob:x", "file:///etc/passwd", "/relative", "//e.test", ""]) {
    assert.equal(safeLink(href), null, href);
  }
});

const HOSTILE: { readonly [name: string]: string } = {
  "quotes in quotes": `${">".repeat(50_000)}a`,
  "quotes in quotes, of a few kilobytes": `${">".repeat(2_000)}a`,
  "lists in lists": `${"- ".repeat(3_000)}a`,
  "numbered lists in lists": `${"1. ".repeat(3_000)}a`,
  "emphasis in emphasis": `${"**".repeat(20_000)}a${"**".repeat(20_000)}`,
  "emphasis that never ends": "_a".repeat(60_000),
  "a word that might be a mail address": `${"a".repeat(100_000)}@`,
  "brackets": "[".repeat(60_000),
};

for (const [name, text] of Object.entries(HOSTILE)) {
  test(`no message breaks the page or holds it up: ${name}`, () => {
    const began = performance.now();
    assert.ok(check(text).length > 0);
    // Unbounded, these overflow the stack or take from 8 s to a minute; bounded, some milliseconds.
    assert.ok(performance.now() - began < 4_000, "it took too long");
  });
}

test("a long and honest message is still taken apart", () => {
  const [found]: [Element[], string[]] = [[], []];
  elements(rendered("- **a**: `b` and [c](https://e.test)\n".repeat(500)), found, []);
  assert.equal(found.filter((one) => one.tag === "strong").length, 500);
});
