import { asNumber, asText, type Frame } from "../json";
import { callsOf, type Item, textOf, userItem, withItem } from "./items";

/** The list after one `stream_delta`. The same delta twice must not be given: `Conversation` sees to that by number. */
export function afterDelta(list: readonly Item[], delta: Frame): readonly Item[] {
  const id = asText(delta["id"]);
  switch (delta["message_type"]) {
    case "assistant_message":
      return text(list, "agent", `a:${id}`, textOf(delta["content"]));
    case "reasoning_message":
      return text(list, "thought", `r:${id.replace(/-r$/, "")}`, asText(delta["reasoning"]));
    case "approval_request_message":
    case "tool_call_message":
      return callsOf(delta).reduce<readonly Item[]>(
        (found, call) => withItem(found, call.key, (known) => known, () => call),
        list,
      );
    case "client_tool_start":
      return tool(list, delta, { state: "running", name: asText(delta["tool_name"]), args: asText(delta["tool_args"]) });
    case "tool_return_message": {
      const whole = !id.startsWith("synthetic-tool-return-stream-");
      const failed = delta["status"] !== "success";
      const state = whole ? (failed ? "error" : "success") : "running";
      return tool(list, delta, { state, output: asText(delta["tool_return"]), whole });
    }
    case "user_message": {
      const said = userItem(delta);
      return said === null ? list : withItem(list, said.key, (known) => (known.kind === "user" ? said : known), () => said);
    }
    case "stop_reason":
      return runStopped(list, asText(delta["stop_reason"]));
    case "status":
    case "slash_command_end":
      return note(list, id, asText(delta["message"]) || asText(delta["output"]), "info");
    case "loop_error":
      return note(list, id, asText(delta["message"]), "error");
    default:
      return list;
  }
}

/** The model is asked again later, because it did not answer. */
export interface RetryWait {
  readonly words: string;
  /** When it is asked again, on this device's clock; null when nobody said. */
  readonly until: number | null;
}

/** What the agent waits for when a delta that has just come says so. */
export function waitingFor(delta: Frame, now: number): RetryWait | null {
  if (delta["message_type"] !== "retry") return null;
  const attempt = asNumber(delta["attempt"]);
  const most = asNumber(delta["max_attempts"]);
  const delayMs = asNumber(delta["delay_ms"]);
  const count = attempt !== null && most !== null ? ` (attempt ${attempt} of ${most})` : "";
  return {
    words: `${asText(delta["message"]) || "The model did not answer"}${count}`,
    until: delayMs === null ? null : now + delayMs,
  };
}

function text(list: readonly Item[], kind: "agent" | "thought", key: string, fragment: string): readonly Item[] {
  const known = list.some((item) => item.key === key);
  return withItem(
    known ? list : withoutAbandoned(list, key.slice(2)),
    key,
    (item) => (item.kind === kind && !item.whole ? { ...item, text: item.text + fragment } : item),
    () => (fragment ? { kind, key, text: fragment, whole: false } : null),
  );
}

/** A step that broke off (a killed daemon, a cut stream) is done again as another message: with nothing between them,
 * what came of the first attempt is void. */
function withoutAbandoned(list: readonly Item[], messageId: string): readonly Item[] {
  let end = list.length;
  for (; end > 0; end -= 1) {
    const item = list[end - 1]!;
    const said = item.kind === "agent" || item.kind === "thought";
    if (!said || item.whole || item.key.slice(2) === messageId) break;
  }
  return list.slice(0, end);
}

const BROKEN = new Set(["error", "llm_api_error", "invalid_llm_response", "cancelled"]);

/** A run that ended well has said all of what it said. */
function runStopped(list: readonly Item[], reason: string): readonly Item[] {
  if (BROKEN.has(reason)) return list;
  return list.map((item) => ((item.kind === "agent" || item.kind === "thought") && !item.whole ? { ...item, whole: true } : item));
}

interface ToolChange {
  readonly state: "running" | "success" | "error";
  readonly name?: string;
  readonly args?: string;
  readonly output?: string;
  readonly whole?: boolean;
}

function tool(list: readonly Item[], delta: Frame, change: ToolChange): readonly Item[] {
  const key = `t:${asText(delta["tool_call_id"])}`;
  return withItem(
    list,
    key,
    (known) =>
      known.kind !== "tool" || known.whole
        ? known
        : {
            ...known,
            state: change.state,
            name: change.name || known.name,
            args: change.args || known.args,
            output: change.output ?? known.output,
            whole: change.whole ?? false,
          },
    () => ({
      kind: "tool",
      key,
      name: change.name || "a tool",
      args: change.args ?? "",
      output: change.output ?? "",
      state: change.state,
      whole: change.whole ?? false,
    }),
  );
}

/** An error is announced up to three times in a row; it is shown once. */
function note(list: readonly Item[], id: string, words: string, level: "info" | "error"): readonly Item[] {
  const key = `n:${id}`;
  const last = list.at(-1);
  if (!words || (last?.kind === "note" && last.text === words)) return list;
  return withItem(list, key, (known) => known, () => ({ kind: "note", key, text: words, level }));
}
