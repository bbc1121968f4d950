import assert from "node:assert/strict";
import test, { beforeEach } from "node:test";
import { contentOf, type Letter, Outbox } from "../src/chat/outbox";
import { keep, kept } from "../src/kept";

/** The browser's storage, with room for so many characters. */
function storage(room: number): Storage {
  const values = new Map<string, string>();
  return {
    getItem: (name: string) => values.get(name) ?? null,
    setItem: (name: string, value: string) => {
      if (value.length > room) throw new Error("QuotaExceededError");
      values.set(name, value);
    },
    removeItem: (name: string) => void values.delete(name),
  } as Storage;
}

function browser(room: number): void {
  Object.defineProperty(globalThis, "localStorage", { value: storage(room), configurable: true, writable: true });
}

beforeEach(() => browser(10_000));

const letter = (id: string, text = id, pictures: Letter["pictures"] = []): Letter => ({ id, text, pictures });
const picture = { mediaType: "image/jpeg", data: "AAAA" };

test("letters outlive the page, in order, with their pictures", () => {
  const outbox = new Outbox("a");
  assert.equal(outbox.add(letter("1")), true);
  outbox.add(letter("2", "look", [picture]));
  outbox.add(letter("3", "", [picture]));
  outbox.remove("1");
  assert.deepEqual(new Outbox("a").all, [letter("2", "look", [picture]), letter("3", "", [picture])]);
  assert.deepEqual(new Outbox("b").all, []);
});

test("an empty outbox leaves nothing behind", () => {
  const outbox = new Outbox("a");
  outbox.add(letter("1"));
  outbox.remove("1");
  assert.equal(localStorage.getItem("lodger.a"), null);
});

test("without room a letter lasts while the page is open, and says so", () => {
  browser(100);
  const outbox = new Outbox("a");
  assert.equal(outbox.add(letter("1")), true);
  assert.equal(outbox.add(letter("2", "x".repeat(200))), false);
  assert.deepEqual(new Outbox("a").all.map((one) => one.id), ["1", "2"]);
  assert.match(localStorage.getItem("lodger.a") ?? "", /"1"/, "what was kept before stays kept");
  outbox.remove("2");
  assert.deepEqual(new Outbox("a").all.map((one) => one.id), ["1"]);
});

test("a browser that forbids storage works until it is closed", () => {
  Object.defineProperty(globalThis, "localStorage", {
    get: () => {
      throw new Error("SecurityError");
    },
    configurable: true,
  });
  assert.equal(keep("x", "y"), false);
  assert.equal(kept("x"), "y");
});

test("what somebody else wrote into the storage is no letter", () => {
  for (const stored of ["{", "7", "null", '[1,"x",{"text":"no id"}]', '[{"id":7}]']) {
    localStorage.setItem("lodger.a", stored);
    assert.deepEqual(new Outbox("a").all, [], stored);
  }
});

test("text alone goes as a string, pictures as parts", () => {
  assert.equal(contentOf(letter("1", "hi")), "hi");
  const image = { type: "image", source: { type: "base64", media_type: "image/jpeg", data: "AAAA" } };
  assert.deepEqual(contentOf(letter("1", "hi", [picture])), [{ type: "text", text: "hi" }, image]);
  assert.deepEqual(contentOf(letter("1", "", [picture])), [image]);
});
