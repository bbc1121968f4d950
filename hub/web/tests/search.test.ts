import assert from "node:assert/strict";
import test from "node:test";
import { fileName } from "../src/machine/export";
import { readFound, speaker } from "../src/machine/search";

test("what was found is read, and what leads nowhere is left out", () => {
  const whole = { message_id: "m", agent_id: "a", conversation_id: "default", kind: "user", date: "2026-11-30T10:00:00Z", snippet: "low water" };
  const { found, before } = readFound({ results: [whole, { ...whole, agent_id: 7 }, null, { ...whole, kind: "odd", date: "?" }], next_before: 12 });
  assert.equal(before, 12);
  assert.deepEqual(found.map((one) => [one.kind, one.at]), [["user", Date.parse("2026-11-30T10:00:00Z")], ["summary", null]]);
  assert.equal(speaker(found[0]!, "Lodger"), "You");
  assert.deepEqual(readFound({}), { found: [], before: null });
});

test("a file's name is one on every system", () => {
  assert.equal(fileName("Main conversation"), "Main-conversation.jsonl");
  assert.equal(fileName("../../é: <b>"), "e-b.jsonl");
  assert.equal(fileName("海"), "lodger.jsonl");
});
