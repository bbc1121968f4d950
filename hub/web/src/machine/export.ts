import { asText, type Frame } from "../json";
import type { Link } from "../link/link";

/** What is exported: an agent with all its conversations, or one of them. */
export interface Wanted {
  readonly agentId: string;
  readonly conversationId?: string;
}

/** Fetch an export part by part and hand it to the browser as a file. Nothing is kept of one that breaks off. */
export async function exportToFile(link: Link, wanted: Wanted, name: string): Promise<void> {
  const parts: string[] = [];
  let command: Frame = { agent_id: wanted.agentId, ...(wanted.conversationId ? { conversation_id: wanted.conversationId } : {}) };
  for (;;) {
    const answer = await link.request({ type: "lodger_export", ...command });
    parts.push(asText(answer["data"]));
    if (answer["done"] !== false) break;
    command = { export_id: asText(answer["export_id"]) };
  }
  hand(new Blob(parts, { type: "application/jsonl" }), fileName(name));
}

/** A name that every file system takes. */
export function fileName(name: string): string {
  const kept = name.normalize("NFKD").replace(/[^A-Za-z0-9]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 60);
  return `${kept || "lodger"}.jsonl`;
}

function hand(file: Blob, name: string): void {
  const address = URL.createObjectURL(file);
  const anchor = document.createElement("a");
  anchor.href = address;
  anchor.download = name;
  anchor.click();
  // The browser has taken the file by then; sooner, some have not.
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
