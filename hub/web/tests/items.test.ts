import assert from "node:assert/strict";
import test from "node:test";
import { type Item, itemsOf, merged, picturesOf, textOf } from "../src/chat/items";

const user = (id: string, state: "sent" | "sending" = "sent"): Item => ({ kind: "user", key: `u:${id}`, text: id, pictures: [], state });
const agent = (id: string, whole = true): Item => ({ kind: "agent", key: `a:${id}`, text: id, whole });
const keys = (items: readonly Item[]): string[] => items.map((item) => item.key);

test("stored messages become items, a result joins its call, reminders are not shown", () => {
  const items = itemsOf([
    { message_type: "user_message", id: "m1", otid: "cm-1", content: [{ type: "text", text: "<system-reminder>x" }, { type: "text", text: "hello" }] },
    { message_type: "reasoning_message", id: "m2-r", reasoning: "hm" },
    { message_type: "assistant_message", id: "m2", content: [{ type: "text", text: "yes" }] },
    { message_type: "tool_call_message", id: "m3", tool_calls: [{ tool_call_id: "c1", name: "Bash", arguments: "{}" }] },
    { message_type: "tool_return_message", id: "m4", tool_call_id: "c1", status: "error", tool_return: "no" },
    { message_type: "summary_message", id: "m5" },
    { message_type: "of_another_age", id: "m6" },
  ]);
  assert.deepEqual(keys(items), ["u:cm-1", "r:m2", "a:m2", "t:c1", "s:m5"]);
  assert.deepEqual(items[0], { ...user("cm-1"), text: "hello" });
  assert.deepEqual(items[3], { kind: "tool", key: "t:c1", name: "Bash", args: "{}", output: "no", state: "error", whole: true });
});

test("a page that begins in the middle of a call shows its result", () => {
  const [item] = itemsOf([{ message_type: "tool_return_message", id: "m", tool_call_id: "c9", status: "success", tool_return: "out" }]);
  assert.equal(item?.kind === "tool" && item.name, "a tool");
});

test("older pages go before what is known, once", () => {
  assert.deepEqual(keys(merged([agent("2"), agent("3")], [agent("1"), agent("2")], true)), ["a:1", "a:2", "a:3"]);
});

test("a newer page puts what is new after its predecessor and keeps what only this page knows", () => {
  const list = [user("1"), agent("1"), user("mine", "sending")];
  const page = [user("1"), agent("1"), user("other"), agent("other")];
  assert.deepEqual(keys(merged(list, page, false)), ["u:1", "a:1", "u:other", "a:other", "u:mine"]);
});

test("what was shown in another order than it was taken up gets the stored order", () => {
  const list = [user("1"), user("2"), user("3"), agent("to 1"), agent("to 2", false)];
  const page = [user("1"), agent("to 1"), user("2"), user("3")];
  assert.deepEqual(keys(merged(list, page, false)), ["u:1", "a:to 1", "u:2", "u:3", "a:to 2"]);
});

test("a message that was folded into another is not shown beside it", () => {
  const list = [user("0"), user("1"), user("2"), agent("to both"), user("3")];
  assert.deepEqual(keys(merged(list, [user("0"), user("1"), agent("to both")], false)), ["u:0", "u:1", "a:to both", "u:3"]);
  const older = [user("older than the page"), user("1"), agent("to 1")];
  assert.deepEqual(keys(merged(older, [user("1"), agent("to 1")], false)), ["u:older than the page", "u:1", "a:to 1"]);
});

test("a note stays behind what it followed", () => {
  const note: Item = { kind: "note", key: "n:1", text: "model set", level: "info" };
  const list = [agent("1"), note, user("2"), agent("2")];
  assert.deepEqual(keys(merged(list, [agent("1"), user("2"), agent("2")], false)), ["a:1", "n:1", "u:2", "a:2"]);
});

test("a page with nothing in common takes the place of all but messages on their way", () => {
  const list = [agent("old"), user("mine", "sending"), user("gone")];
  assert.deepEqual(keys(merged(list, [agent("new")], false)), ["a:new", "u:mine"]);
});

test("what was streamed and never stored is void once later things are stored", () => {
  const list = [user("1"), agent("broken", false), agent("2")];
  assert.deepEqual(keys(merged(list, [user("1"), agent("2")], false)), ["u:1", "a:2"]);
  const under_way = [user("1"), agent("still", false)];
  assert.deepEqual(keys(merged(under_way, [user("1")], false)), ["u:1", "a:still"]);
});

test("only pictures that are pictures are shown", () => {
  const source = (media_type: string, data: string): { source: { media_type: string; data: string } } => ({ source: { media_type, data } });
  const found = picturesOf([source("image/png", "AAAA"), source("image/svg+xml", "AAAA"), source("image/png", '"><script>'), null, "x"]);
  assert.deepEqual(found, [{ mediaType: "image/png", data: "AAAA" }]);
  assert.equal(textOf(null), "");
});
