import { asList, asNumber, asObject, asText, type Frame, type Json } from "../json";
import { age } from "../ui/age";

export interface StatusLine {
  readonly name: string;
  readonly text: string;
}

/** A machine's own account of itself, in lines. Instants are of the machine's clock, in seconds.
 *
 * @param title names a conversation for people. */
export function statusLines(facts: Frame, now: number, title: (agentId: string, conversationId: string) => string): StatusLine[] {
  const machine = asObject(facts["machine"]);
  const ago = (value: Json | undefined, never = "never"): string => {
    const seconds = asNumber(value);
    return seconds === null ? never : age(now - seconds * 1000);
  };
  const sandbox = asObject(facts["sandbox"]);
  const lines: StatusLine[] = [
    { name: "Machine", text: `${asText(machine["name"])}, Lodger ${asText(machine["version"])}, started ${ago(machine["started_at"])}` },
    { name: "Hub", text: hubWords(asObject(facts["uplink"]), ago, now) },
    { name: "Model", text: modelWords(asObject(facts["model"]), ago) },
    { name: "Sandbox", text: `${asText(sandbox["summary"])} (checked ${ago(sandbox["at"], "not yet")})` },
    ...boxLines(asList(facts["boxes"]).map(asObject)),
    ...waitingLines(facts, ago, title),
    ...spendLines(asObject(facts["spend"]), asList(facts["agents"]).map(asObject), ago),
    { name: "Disk", text: asText(asObject(facts["disk"])["summary"]) },
  ];
  for (const agent of asList(facts["agents"]).map(asObject)) {
    const served = agent["model_served"] === false ? " (nobody serves it here)" : "";
    lines.push({
      name: `Agent ${asText(agent["name"])}`,
      text: `${asText(agent["model"])}${served}; ${memoryWords(asObject(agent["memory"]), ago)}`,
    });
  }
  return lines;
}

type Ago = (value: Json | undefined, never?: string) => string;

function hubWords(uplink: Frame, ago: Ago, now: number): string {
  const state = asText(uplink["state"]);
  if (state === "off") return "none: this machine is alone";
  const next = asNumber(uplink["next_attempt_at"]);
  const reason = asText(uplink["reason"]);
  const attempt = next === null ? "" : `, next attempt ${next * 1000 > now ? `in ${Math.round(next - now / 1000)} s` : "now"}`;
  return `${state}, last heard ${ago(uplink["last_contact"])}${reason ? `, ${reason}` : ""}${attempt}`;
}

function modelWords(model: Frame, ago: Ago): string {
  const practice = model["practice"] === true ? " (practice model: offline, rule-based)" : "";
  const used = asList(model["used"]).map(asObject).find((one) => one["handle"] === model["default"]);
  const succeeded = asNumber(used?.["succeeded_at"]);
  const failed = asNumber(used?.["failed_at"]);
  let last = "";
  if (failed !== null && failed > (succeeded ?? 0)) last = `; failed ${ago(failed)}: ${asText(used?.["message"])}`;
  else if (succeeded !== null) last = `; answered ${ago(succeeded)}`;
  return `${asText(model["default"])}${practice}${last}`;
}

function boxLines(boxes: readonly Frame[]): StatusLine[] {
  if (!boxes.length) return [{ name: "Boxes", text: "none running" }];
  return boxes.map((box) => {
    const calls = asNumber(box["running_calls"]) ?? 0;
    const tasks = asNumber(box["background"]) ?? 0;
    const left = asNumber(box["leftovers"]) ?? 0;
    const working = [calls ? `${calls} at work` : "", tasks ? `${tasks} in the background` : ""].filter(Boolean);
    const doing = working.join(", ") || `idle for ${Math.round(asNumber(box["idle_s"]) ?? 0)} s`;
    return { name: `Box in ${asText(box["workspace"])}`, text: `${doing}${left ? `, ${left} left running` : ""}` };
  });
}

function waitingLines(facts: Frame, ago: Ago, title: (agentId: string, conversationId: string) => string): StatusLine[] {
  const questions = asObject(facts["questions"]);
  const named = (one: Frame): string => title(asText(one["agent_id"]), asText(one["conversation_id"]));
  const open = asList(questions["open"]).map(asObject);
  const lines = open.map((one) => ({ name: "Question", text: `${asText(one["tool"])} in ${named(one)}, asked ${ago(one["asked_at"])}` }));
  if (!lines.length) lines.push({ name: "Questions", text: `${asNumber(questions["pending"]) ?? 0} waiting for an answer` });
  for (const queue of asList(facts["queues"]).map(asObject)) {
    const parts = [];
    if (asNumber(queue["turn_since"]) !== null) parts.push(`a turn since ${ago(queue["turn_since"])}`);
    if (asNumber(queue["waiting"])) parts.push(`${asNumber(queue["waiting"])} messages waiting`);
    if (asNumber(queue["parked"])) parts.push(`${asNumber(queue["parked"])} held back`);
    if (parts.length) lines.push({ name: "At work", text: `${named(queue)}: ${parts.join(", ")}` });
  }
  return lines;
}

/** Today's tokens and money; nothing from a machine that does not count them. */
function spendLines(spend: Frame, agents: readonly Frame[], ago: Ago): StatusLine[] {
  if (!("today" in spend)) return [];
  const lines = [{ name: "Spent today", text: `${spentWords(asObject(spend["today"]))} (counted ${ago(spend["as_of"])})` }];
  for (const [id, spent] of Object.entries(asObject(spend["agents"]))) {
    const name = asText(agents.find((agent) => agent["id"] === id)?.["name"]) || id;
    lines.push({ name: `Spent today by ${name}`, text: spentWords(asObject(spent)) });
  }
  const unpriced = asList(spend["unpriced_models"]).map(asText);
  if (unpriced.length) lines.push({ name: "Price unknown", text: unpriced.join(", ") });
  return lines;
}

function spentWords(spent: Frame): string {
  const tokens = `${(asNumber(spent["tokens"]) ?? 0).toLocaleString("en")} tokens`;
  const usd = asNumber(spent["usd"]);
  const known = asNumber(spent["usd_known"]) ?? 0;
  if (usd !== null) return `${tokens}, ${dollars(usd)}`;
  const unpriced = asNumber(spent["unpriced_steps"]) ?? 0;
  return `${tokens}, ${known ? `at least ${dollars(known)}, ` : ""}price of ${unpriced} steps unknown`;
}

function dollars(usd: number): string {
  return usd.toLocaleString("en", { style: "currency", currency: "USD", maximumFractionDigits: 4 });
}

const OUTCOMES: Record<string, string> = {
  skipped: "kept on this machine only",
  clean: "level with the hub",
  pushed: "level with the hub",
  dirty: "changes that nobody committed",
  conflict: "in conflict",
  invalid: "commits that break the rules",
  busy: "being synced",
  in_the_way: "files in the way",
  push_failed: "could not be pushed",
};

function memoryWords(memory: Frame, ago: Ago): string {
  const outcome = asText(memory["outcome"]);
  const ahead = asNumber(memory["ahead"]) ?? 0;
  const detail = asText(memory["detail"]);
  const at = asNumber(memory["at"]) === null ? "not synced yet" : `${OUTCOMES[outcome] ?? outcome}, ${ago(memory["at"])}`;
  return `memory ${at}${ahead ? `, ${ahead} commits not at the hub` : ""}${detail ? `: ${detail}` : ""}`;
}
