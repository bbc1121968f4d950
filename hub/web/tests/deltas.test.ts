import assert from "node:assert/strict";
import test from "node:test";
import { afterDelta, waitingFor } from "../src/chat/deltas";
import type { Item } from "../src/chat/items";
import type { Frame } from "../src/json";

const after = (deltas: readonly Frame[], list: readonly Item[] = []): readonly Item[] => deltas.reduce(afterDelta, list);
const said = (id: string, content: string): Frame => ({ message_type: "assistant_message", id, content });
const shown = (items: readonly Item[]): string[] => items.map((item) => (item.kind === "tool" ? `${item.name} ${item.state}: ${item.output}` : `${item.kind}: ${item.text}`));

test("fragments of one message become one text", () => {
  assert.deepEqual(shown(after([said("m", "Ti"), said("m", "des"), said("n", "!")])).slice(-1), ["agent: !"]);
  assert.deepEqual(shown(after([said("m", "Ti"), said("m", "des")])), ["agent: Tides"]);
});

test("an empty fragment makes no message", () => {
  assert.deepEqual(after([said("m", "")]), []);
});

test("a step done again takes the place of its first attempt", () => {
  assert.deepEqual(shown(after([said("first", "The ans"), said("second", "The answer")])), ["agent: The answer"]);
});

test("a run that ended well keeps what it said", () => {
  const stop = (stop_reason: string): Frame => ({ message_type: "stop_reason", stop_reason });
  assert.deepEqual(shown(after([said("a", "one"), stop("end_turn"), said("b", "two")])), ["agent: one", "agent: two"]);
  assert.deepEqual(shown(after([said("a", "one"), stop("llm_api_error"), said("b", "two")])), ["agent: two"]);
});

test("a call is asked for, runs, streams and ends; what comes late says nothing new", () => {
  const result = (id: string, status: string, tool_return: string): Frame => ({
    message_type: "tool_return_message",
    id,
    tool_call_id: "c",
    status,
    tool_return,
  });
  const asked: Frame = { message_type: "approval_request_message", id: "m", tool_call: { tool_call_id: "c", name: "Bash", arguments: "{}" } };
  const started: Frame = { message_type: "client_tool_start", tool_call_id: "c", tool_name: "Bash", tool_args: "{}" };
  const part = result("synthetic-tool-return-stream-1", "success", "par");
  const whole = result("m2", "success", "whole");
  assert.deepEqual(shown(after([asked])), ["Bash asked: "]);
  assert.deepEqual(shown(after([asked, started, part])), ["Bash running: par"]);
  assert.deepEqual(shown(after([asked, started, part, whole, part])), ["Bash success: whole"]);
});

test("the echo of a message confirms the one that was sent", () => {
  const sending: Item = { kind: "user", key: "u:cm-1", text: "hi", pictures: [], state: "sending" };
  const [item] = after([{ message_type: "user_message", id: "m", otid: "cm-1", content: "hi" }], [sending]);
  assert.deepEqual(item, { ...sending, state: "sent" });
});

test("an error said three times is shown once", () => {
  const error = (id: string): Frame => ({ message_type: "loop_error", id, message: "no key" });
  assert.equal(after([error("1"), error("2"), error("3")]).length, 1);
});

test("a delta of another age changes nothing", () => {
  const list = after([said("m", "x")]);
  assert.equal(afterDelta(list, { message_type: "telepathy", id: "y" }), list);
});

test("a retry tells until when", () => {
  const retry: Frame = { message_type: "retry", message: "Busy", attempt: 2, max_attempts: 5, delay_ms: 4000 };
  assert.deepEqual(waitingFor(retry, 1000), { words: "Busy (attempt 2 of 5)", until: 5000 });
  assert.deepEqual(waitingFor({ message_type: "retry" }, 0), { words: "The model did not answer", until: null });
  assert.equal(waitingFor(said("m", "x"), 0), null);
});
