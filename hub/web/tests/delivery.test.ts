import assert from "node:assert/strict";
import test from "node:test";
import { Delivery } from "../src/chat/delivery";
import type { Letter } from "../src/chat/outbox";
import type { Frame } from "../src/json";
import { type Link, LinkError } from "../src/link/link";

const LETTERS: readonly Letter[] = [1, 2].map((number) => ({ id: `cm-${number}`, text: `text ${number}`, pictures: [] }));
let places = 0;

/** A delivery to a machine that answers with `answer`, or is away: then the hub answers with `hub`. */
function delivery(answer: ((frame: Frame) => Frame) | null, hub: (method: string) => Response | null = () => null) {
  const [shown, asked]: [string[], string[]] = [[], []];
  globalThis.fetch = (async (path: string, how: RequestInit) => {
    asked.push(`${how.method} ${path}`);
    const response = hub(how.method ?? "GET");
    if (response === null) throw new TypeError("no network");
    return response;
  }) as typeof fetch;
  const link = {
    state: { value: { kind: answer ? "open" : "machine_offline" } },
    request: async (frame: Frame) => {
      if (!answer) throw new LinkError("away", false);
      return answer(frame);
    },
  } as unknown as Link;
  places += 1;
  const made = new Delivery(link, { machineId: "m", agentId: "a", conversationId: `c${places}` }, {
    show: (letter, state, reason = "") => void shown.push(`${letter.id} ${state}${reason ? `: ${reason}` : ""}`),
    queued: (letter) => void shown.push(`${letter.id} queued`),
    ready: () => answer !== null,
  });
  for (const letter of LETTERS) made.add(letter);
  return { made, shown, asked };
}

const json = (body: object, status = 200) => new Response(JSON.stringify(body), { status });

async function flushed(...how: Parameters<typeof delivery>): Promise<{ shown: string[]; left: string[]; asked: string[] }> {
  const { made, shown, asked } = delivery(...how);
  await made.flush();
  made.close();
  return { shown, asked, left: made.waiting.map((letter) => letter.id) };
}

test("a machine that is there takes letters in their order", async () => {
  const texts: unknown[] = [];
  const found = await flushed((frame) => {
    const [message] = (frame["payload"] as { messages: Frame[] }).messages;
    texts.push([message?.["content"], message?.["client_message_id"]]);
    return { accepted: true, disposition: texts.length === 1 ? "started" : "queued" };
  });
  assert.deepEqual(texts, [["text 1", "cm-1"], ["text 2", "cm-2"]]);
  assert.deepEqual(found, { shown: ["cm-1 sent", "cm-2 queued"], left: [], asked: [] });
});

test("a refusal is told and the next letter still goes", async () => {
  const found = await flushed((frame) =>
    JSON.stringify(frame).includes("cm-1") ? { accepted: false, error: "disk full" } : { accepted: true },
  );
  assert.deepEqual(found, { shown: ["cm-1 refused: disk full", "cm-2 sent"], left: [], asked: [] });
});

test("for a machine that is away the hub keeps letters, and so does this browser until one has come through", async () => {
  const found = await flushed(null, () => json({ state: "waiting" }, 202));
  assert.deepEqual(found.shown, ["cm-1 mailed", "cm-2 mailed"]);
  assert.deepEqual(found.left, ["cm-1", "cm-2"]);
  assert.deepEqual(found.asked, ["POST /v1/machines/m/mailbox", "POST /v1/machines/m/mailbox"]);
});

test("what became of a letter at the hub is believed", async () => {
  const expired = await flushed(null, () => json({ state: "expired", reason: "the machine did not wake in time" }));
  assert.deepEqual(expired.shown[0], "cm-1 refused: the machine did not wake in time");
  assert.deepEqual(expired.left, []);
  const delivered = await flushed(null, () => json({ state: "delivered" }));
  assert.deepEqual([delivered.shown, delivered.left], [["cm-1 sent", "cm-2 sent"], []]);
});

test("a full mailbox is told; a hub that cannot be reached keeps nothing from being tried again", async () => {
  const full = await flushed(null, () => json({ message: "100 messages wait already" }, 409));
  assert.deepEqual([full.shown[0], full.left], ["cm-1 refused: 100 messages wait already", []]);
  for (const silent of [() => null, () => json({}, 503)]) {
    const found = await flushed(null, silent);
    assert.deepEqual([found.shown, found.left], [[], ["cm-1", "cm-2"]]);
  }
});

test("a letter that is added while others go out goes with them", async () => {
  const { made, shown } = delivery(() => ({ accepted: true }));
  const first = made.flush();
  made.add({ id: "cm-3", text: "late", pictures: [] });
  await Promise.all([first, made.flush()]);
  made.close();
  assert.deepEqual(shown, ["cm-1 sent", "cm-2 sent", "cm-3 sent"]);
});
