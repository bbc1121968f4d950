import { asList, asNumber, asObject, asText, type Frame } from "../json";
import type { Link } from "../link/link";

/** A message in which the words were found. */
export interface Found {
  readonly messageId: string;
  readonly agentId: string;
  readonly conversationId: string;
  readonly kind: "user" | "assistant" | "tool" | "summary";
  /** Milliseconds of the machine's clock; null when it was not told. */
  readonly at: number | null;
  readonly snippet: string;
}

export interface FoundPage {
  readonly found: readonly Found[];
  /** Where the next page begins; null on the last one. */
  readonly before: number | null;
}

const KINDS = ["user", "assistant", "tool", "summary"] as const;
const PAGE = 30;

export async function searchHistory(link: Link, query: string, before: number | null): Promise<FoundPage> {
  return readFound(await link.request({ type: "lodger_search", query, limit: PAGE, ...(before === null ? {} : { before }) }));
}

export function readFound(answer: Frame): FoundPage {
  const found = asList(answer["results"])
    .map(asObject)
    .map((one) => {
      const at = Date.parse(asText(one["date"]));
      return {
        messageId: asText(one["message_id"]),
        agentId: asText(one["agent_id"]),
        conversationId: asText(one["conversation_id"]),
        kind: KINDS.find((kind) => kind === one["kind"]) ?? "summary",
        at: Number.isNaN(at) ? null : at,
        snippet: asText(one["snippet"]),
      };
    })
    .filter((one) => one.agentId && one.conversationId);
  return { found, before: asNumber(answer["next_before"]) };
}

/** Who said it, in a word. */
export function speaker(found: Found, agentName: string): string {
  switch (found.kind) {
    case "user":
      return "You";
    case "assistant":
      return agentName;
    case "tool":
      return "A tool";
    case "summary":
      return "A summary";
  }
}
