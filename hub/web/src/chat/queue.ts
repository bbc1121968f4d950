import { asList, asObject, asText, type Frame } from "../json";
import { textOf } from "./items";

/** A message that waits for the turn under way. */
export interface Queued {
  readonly id: string;
  readonly messageId: string;
  readonly text: string;
  readonly paused: boolean;
}

/** What an `update_queue` shows. */
export function readQueue(frame: Frame): Queued[] {
  return asList(frame["queue"])
    .map(asObject)
    .map((item) => ({
      id: asText(item["id"]),
      messageId: asText(item["client_message_id"]),
      text: textOf(item["content"]) || "(pictures)",
      paused: item["paused"] === true,
    }));
}

/** The messages that a turn is about, by their ids. */
export function causesOf(loop: Frame): string[] {
  return Object.values(asObject(loop["client_message_ids_by_run_id"])).flatMap(asList).map(asText).filter(Boolean);
}
