import assert from "node:assert/strict";
import test from "node:test";
import { badgeOf, busyAt, MAIN, readAgent, readBusy, titleOf } from "../src/machine/agents";
import { portCommand, portWords, readKnownPorts } from "../src/machine/ports";
import { statusLines } from "../src/machine/status";

test("the main conversation comes first, then the last used ones", () => {
  const agent = readAgent({ id: "a", name: "", model: "m", hidden: true }, [
    { id: "old", summary: "Old", last_message_at: "2026-01-01T00:00:00Z", archived: true },
    { id: "default", created_at: "2026-01-01T00:00:00Z" },
    { id: "new", summary: null, created_at: "2026-02-01T00:00:00Z" },
  ]);
  assert.deepEqual([agent.name, agent.archived], ["Agent", true]);
  assert.deepEqual(agent.conversations.map((one) => [titleOf(one), one.archived]), [
    ["Main conversation", false],
    ["Conversation", false],
    ["Old", true],
  ]);
  assert.equal(agent.conversations[0]?.at, null, "nothing has been said in it");
  assert.deepEqual(readAgent({ id: "a" }, []).conversations.map((one) => one.id), [MAIN]);
});

test("what waits in a conversation, in a word", () => {
  const place = { agent_id: "a", conversation_id: "c" };
  const other = { agent_id: "a", conversation_id: "d" };
  const found = readBusy({
    questions: { open: [{ ...place, tool: "Bash" }] },
    queues: [
      { ...place, turn_since: 1, waiting: 1, parked: 0 },
      { ...other, turn_since: null, waiting: 0, parked: 2 },
    ],
  });
  assert.equal(found.length, 2);
  assert.equal(badgeOf(busyAt(found, "a", "c")), "asks you");
  assert.equal(badgeOf(busyAt(found, "a", "d")), "2 held back");
  assert.equal(badgeOf(busyAt(found, "a", "e")), "");
  const busy = { agentId: "a", conversationId: "c", asks: [], waiting: 0, parked: 0, working: true };
  assert.equal(badgeOf(busy), "working");
  assert.equal(badgeOf({ ...busy, waiting: 2 }), "working, 2 waiting");
  assert.deepEqual(readBusy({ questions: 7, queues: null }), []);
});

const title = (agentId: string, conversationId: string): string => `${conversationId} of ${agentId}`;
const line = (facts: Parameters<typeof statusLines>[0], name: string): string | undefined =>
  statusLines(facts, 100_000_000, title).find((one) => one.name === name)?.text;

test("spend is told where it is counted, and an unknown price is never nothing", () => {
  const facts = {
    agents: [{ id: "a", name: "Ada" }],
    spend: {
      as_of: 100_000,
      today: { tokens: 12345, usd: 0.0123, unpriced_steps: 0 },
      agents: { a: { tokens: 5, usd: null, usd_known: 0, unpriced_steps: 2 }, b: { tokens: 7, usd: null, usd_known: 1.5, unpriced_steps: 1 } },
      unpriced_models: ["home/llama"],
    },
  };
  assert.equal(line(facts, "Spent today"), "12,345 tokens, $0.0123 (counted just now)");
  assert.equal(line(facts, "Spent today by Ada"), "5 tokens, price of 2 steps unknown");
  assert.equal(line(facts, "Spent today by b"), "7 tokens, at least $1.50, price of 1 steps unknown");
  assert.equal(line(facts, "Price unknown"), "home/llama");
  assert.equal(line({}, "Spent today"), undefined);
});

test("memory that was never synced says so, and an old daemon's status is no trouble", () => {
  const agent = (memory: object): Parameters<typeof statusLines>[0] => ({ agents: [{ name: "Ada", model: "m", memory } as never] });
  assert.equal(line(agent({ outcome: "skipped", at: null, ahead: 0 }), "Agent Ada"), "m; memory not synced yet");
  assert.equal(line(agent({ outcome: "pushed", at: 99_940, ahead: 0 }), "Agent Ada"), "m; memory level with the hub, 1 min ago");
  assert.equal(
    line(agent({ outcome: "push_failed", at: 99_000, ahead: 2, detail: "no route" }), "Agent Ada"),
    "m; memory could not be pushed, 17 min ago, 2 commits not at the hub: no route",
  );
  assert.equal(line({}, "Questions"), "0 waiting for an answer");
});

test("who asks, what works and what comes next are named", () => {
  const place = { agent_id: "a", conversation_id: "c" };
  const facts = {
    questions: { pending: 1, open: [{ ...place, tool: "Bash", asked_at: 99_990 }] },
    queues: [{ ...place, turn_since: 99_940, waiting: 2, parked: 0 }],
    uplink: { state: "waiting", last_contact: 99_000, next_attempt_at: 100_012, reason: "refused" },
    boxes: [
      { workspace: "/w", running_calls: 1, background: 2, leftovers: 1, idle_s: 0 },
      { workspace: "/v", running_calls: 0, background: 1, leftovers: 0, idle_s: 0 },
      { workspace: "/u", running_calls: 0, background: 0, leftovers: 0, idle_s: 7 },
    ],
  };
  assert.equal(line(facts, "Question"), "Bash in c of a, asked 10 s ago");
  assert.equal(line(facts, "At work"), "c of a: a turn since 1 min ago, 2 messages waiting");
  assert.equal(line(facts, "Hub"), "waiting, last heard 17 min ago, refused, next attempt in 12 s");
  assert.equal(line(facts, "Box in /w"), "1 at work, 2 in the background, 1 left running");
  assert.equal(line(facts, "Box in /v"), "1 in the background");
  assert.equal(line(facts, "Box in /u"), "idle for 7 s");
});

test("ports of boxes, in words, and what is asked about one", () => {
  const now = 1_000_000;
  const found = { port: 5173, state: "open", since: 940, listens: true, agent_id: "a", workspace: "/w", connections: 2 };
  const [open, gone, offered, odd] = readKnownPorts({
    ports: [found, { ...found, listens: false }, { ...found, state: "offered" }, { port: "x", state: "wide open" }],
  });
  assert.ok(open && gone && offered && odd);
  assert.equal(portWords(open, now), "opened 1 min ago, 2 connected on that machine");
  assert.match(portWords(gone, now), /nothing listens there now$/);
  assert.equal(portWords(offered, now), "found 1 min ago");
  assert.equal(odd.state, "seen", "what is not known is not open");
  assert.deepEqual(portCommand("lodger_ports_close", open), { type: "lodger_ports_close", port: 5173, workspace: "/w", agent_id: "a" });
  assert.deepEqual(readKnownPorts({}), [], "an older machine tells of none");
});
