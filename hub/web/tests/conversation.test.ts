import assert from "node:assert/strict";
import test, { type TestContext } from "node:test";
import { signal } from "@preact/signals";
import type { Frame } from "../src/json";
import type { Link, LinkListener } from "../src/link/link";

// The page's address is read when its parts are loaded.
Object.assign(globalThis, { location: { hash: "" }, addEventListener: () => undefined });
const { Conversation } = await import("../src/chat/conversation");

const PLACE = { machineId: "m", agentId: "a", conversationId: "c" };
const RUNTIME = { agent_id: "a", conversation_id: "c" };
/** Long enough for every promise that waits for nothing but others. */
const settled = () => new Promise<void>((resolve) => setImmediate(resolve));

/** A conversation over a machine that stores `messages`, the oldest first, and queues all that is said. */
async function conversation(t: TestContext, messages: Frame[]) {
  const listeners: LinkListener[] = [];
  const lists: (() => void)[] = [];
  let isSlow = false;
  const answers: Record<string, () => Promise<Frame> | Frame> = {
    runtime_start: () => ({ lodger_last_event: 0 }),
    input: () => ({ accepted: true, disposition: "queued" }),
    conversation_messages_list: () => {
      const found = { messages: [...messages].reverse() };
      return isSlow ? new Promise<Frame>((resolve) => lists.push(() => resolve(found))) : found;
    },
  };
  const link = {
    state: signal({ kind: "open" }),
    isOpen: true,
    listen: (listener: LinkListener) => {
      listeners.push(listener);
      return () => undefined;
    },
    restart: () => listeners.forEach((one) => one.opened?.()),
    request: async (frame: Frame) => answers[String(frame["type"])]!(),
  } as unknown as Link;
  const made = new Conversation(link, PLACE);
  t.after(() => made.close());
  await settled();
  return {
    made,
    hears: (frame: Frame) => listeners.forEach((one) => one.frame?.({ ...frame, runtime: RUNTIME })),
    slowly: () => void (isSlow = true),
    /** Lists asked for while it was slow, each answered with what was stored when it was asked for. */
    lists,
    said: () => made.items.value.flatMap((item) => (item.kind === "user" ? [item.text] : [])),
  };
}

const echo = (id: string, text: string, ids: readonly string[]): Frame => ({
  type: "stream_delta",
  delta: { message_type: "user_message", id: `user-msg-${id}`, otid: id, content: [{ type: "text", text }], client_message_ids: [...ids] },
});

test("messages that became one are shown once, whether the machine takes them up before or after it answers", async (t) => {
  for (const isEchoFirst of [true, false]) {
    const { made, hears, said } = await conversation(t, []);
    const ids: string[] = [];
    const writing = ["one", "two"].map((text) => made.send(text, []));
    made.items.value.forEach((item) => ids.push(item.key.slice(2)));
    assert.equal(ids.length, 2);
    const taken = () => hears(echo(ids[0]!, "one\ntwo", ids));
    if (isEchoFirst) taken();
    await Promise.all(writing);
    await settled();
    if (!isEchoFirst) taken();
    assert.deepEqual(said(), ["one\ntwo"]);
  }
});

test("what happens while the stored messages are read is read as well", async (t) => {
  const stored: Frame[] = [];
  const { hears, said, slowly, lists } = await conversation(t, stored);
  slowly();
  hears({ type: "update_loop_status", loop_status: { client_message_ids_by_run_id: { r: ["of another device"] } } });
  await settled();
  assert.equal(lists.length, 1);
  stored.push({ message_type: "user_message", id: "message-1", otid: "cm-9", content: "late" });
  hears({ type: "update_loop_status", loop_status: { client_message_ids_by_run_id: { r: ["cm-9"] } } });
  lists.shift()!();
  await settled();
  assert.equal(lists.length, 1, "the first answer was made before the news");
  lists.shift()!();
  await settled();
  assert.deepEqual(said(), ["late"]);
});
