import { asList, asNumber, asObject, asText, type Frame } from "../json";

export interface Listed {
  readonly id: string;
  /** As the person named it; empty when nobody did. */
  readonly title: string;
  /** The last thing said in it, or when it was made; null when neither is known. */
  readonly at: number | null;
  readonly archived: boolean;
}

export interface Agent {
  readonly id: string;
  readonly name: string;
  readonly model: string;
  readonly archived: boolean;
  /** The main conversation first, then the last used ones. */
  readonly conversations: readonly Listed[];
}

export const MAIN = "default";

export function readAgent(agent: Frame, conversations: readonly Frame[]): Agent {
  const listed = conversations.map(readListed);
  const main = listed.find((one) => one.id === MAIN) ?? { id: MAIN, title: "", at: null, archived: false };
  const others = listed.filter((one) => one.id !== MAIN).sort((one, other) => (other.at ?? 0) - (one.at ?? 0));
  return {
    id: asText(agent["id"]),
    name: asText(agent["name"]) || "Agent",
    model: asText(agent["model"]),
    archived: agent["hidden"] === true,
    conversations: [main, ...others],
  };
}

function readListed(one: Frame): Listed {
  const at = Date.parse(asText(one["last_message_at"]) || (one["id"] === MAIN ? "" : asText(one["created_at"])));
  return {
    id: asText(one["id"]),
    title: asText(one["summary"]),
    at: Number.isNaN(at) ? null : at,
    archived: one["archived"] === true,
  };
}

export function titleOf(conversation: Listed): string {
  return conversation.title || (conversation.id === MAIN ? "Main conversation" : "Conversation");
}

/** What goes on in one conversation, seen from outside it. */
export interface Busy {
  readonly agentId: string;
  readonly conversationId: string;
  /** The tools of its open questions. */
  readonly asks: readonly string[];
  readonly waiting: number;
  readonly parked: number;
  readonly working: boolean;
}

/** The answer to `lodger_waiting`: one entry for each conversation in which something goes on. */
export function readBusy(answer: Frame): Busy[] {
  const found = new Map<string, Busy>();
  const change = (one: Frame, what: (busy: Busy) => Busy): void => {
    const [agentId, conversationId] = [asText(one["agent_id"]), asText(one["conversation_id"])];
    const key = `${agentId} ${conversationId}`;
    const idle: Busy = { agentId, conversationId, asks: [], waiting: 0, parked: 0, working: false };
    found.set(key, what(found.get(key) ?? idle));
  };
  for (const one of asList(asObject(answer["questions"])["open"]).map(asObject)) {
    change(one, (busy) => ({ ...busy, asks: [...busy.asks, asText(one["tool"]) || "a tool"] }));
  }
  for (const one of asList(answer["queues"]).map(asObject)) {
    change(one, (busy) => ({
      ...busy,
      waiting: asNumber(one["waiting"]) ?? 0,
      parked: asNumber(one["parked"]) ?? 0,
      working: asNumber(one["turn_since"]) !== null,
    }));
  }
  return [...found.values()];
}

export function busyAt(list: readonly Busy[], agentId: string, conversationId: string): Busy | null {
  return list.find((one) => one.agentId === agentId && one.conversationId === conversationId) ?? null;
}

/** What stands beside a conversation in a list; empty when nothing waits there. */
export function badgeOf(busy: Busy | null): string {
  if (busy === null) return "";
  if (busy.asks.length) return busy.asks.length === 1 ? "asks you" : `asks you ${busy.asks.length} things`;
  const held = busy.waiting + busy.parked;
  if (busy.parked) return `${held} held back`;
  if (busy.working) return busy.waiting ? `working, ${busy.waiting} waiting` : "working";
  return held ? `${held} waiting` : "";
}
