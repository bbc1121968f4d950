import { asList, asObject, asText, type Frame, type Json } from "../json";

export interface Picture {
  readonly mediaType: string;
  readonly data: string;
}

export interface UserItem {
  readonly kind: "user";
  readonly key: string;
  readonly text: string;
  readonly pictures: readonly Picture[];
  /** `sending`: not yet stored anywhere else. `mailed`: the hub keeps it for a machine that is away. */
  readonly state: "sending" | "mailed" | "sent" | "refused";
  readonly reason?: string;
  /** The keys of all that became this one message, its own among them. */
  readonly joined?: readonly string[];
}

export interface AgentItem {
  readonly kind: "agent" | "thought";
  readonly key: string;
  readonly text: string;
  /** Whole, as the machine stored it: fragments that come late say nothing new. */
  readonly whole: boolean;
}

export interface ToolItem {
  readonly kind: "tool";
  readonly key: string;
  readonly name: string;
  readonly args: string;
  readonly output: string;
  readonly state: "asked" | "running" | "success" | "error";
  readonly whole: boolean;
}

export interface NoteItem {
  readonly kind: "note";
  readonly key: string;
  readonly text: string;
  readonly level: "info" | "error";
}

export type Item = UserItem | AgentItem | ToolItem | NoteItem;

const PICTURE_TYPES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);

export function textOf(content: Json | undefined): string {
  if (typeof content === "string") return content;
  return asList(content)
    .map(asObject)
    .filter((part) => part["type"] === "text")
    .map((part) => asText(part["text"]))
    .filter((text) => !text.startsWith("<system-reminder>"))
    .join("");
}

export function picturesOf(content: Json | undefined): Picture[] {
  return asList(content)
    .map((part) => asObject(asObject(part)["source"]))
    .map((source) => ({ mediaType: asText(source["media_type"]), data: asText(source["data"]) }))
    .filter((picture) => PICTURE_TYPES.has(picture.mediaType) && /^[A-Za-z0-9+/=]+$/.test(picture.data));
}

export function userKey(messageId: string): string {
  return `u:${messageId}`;
}

/** A user message as the machine tells it, stored or just taken up; null when the person sees nothing of it. */
export function userItem(message: Frame): UserItem | null {
  const content = message["content"];
  const joined = asList(message["client_message_ids"]).map((id) => userKey(asText(id)));
  const item: UserItem = {
    kind: "user",
    key: userKey(asText(message["otid"]) || asText(message["id"])),
    text: textOf(content),
    pictures: picturesOf(content),
    state: "sent",
    ...(joined.length ? { joined } : {}),
  };
  return item.text || item.pictures.length ? item : null;
}

/** The list without what another message of it says already, because it was made of several. */
export function withoutJoined(list: readonly Item[]): readonly Item[] {
  const joined = new Set(list.flatMap((item) => (item.kind === "user" ? (item.joined ?? []).filter((key) => key !== item.key) : [])));
  return joined.size ? list.filter((item) => !joined.has(item.key)) : list;
}

function toolItem(call: Frame): ToolItem {
  return {
    kind: "tool",
    key: `t:${asText(call["tool_call_id"])}`,
    name: asText(call["name"]) || "a tool",
    args: asText(call["arguments"]),
    output: "",
    state: "asked",
    whole: false,
  };
}

/** The calls that a message asks for, as items that have not run. */
export function callsOf(message: Frame): ToolItem[] {
  const calls = asList(message["tool_calls"]);
  const first = message["tool_call"];
  return (calls.length ? calls : first ? [first] : []).map((call) => toolItem(asObject(call)));
}

/** A page of stored messages, oldest first, as items. */
export function itemsOf(messages: readonly Json[]): Item[] {
  const items: Item[] = [];
  const add = (item: Item): void => {
    items.push(item);
  };
  for (const message of messages.map(asObject)) {
    const id = asText(message["id"]);
    switch (message["message_type"]) {
      case "user_message": {
        const made = userItem(message);
        if (made) add(made);
        break;
      }
      case "assistant_message":
        add({ kind: "agent", key: `a:${id}`, text: textOf(message["content"]), whole: true });
        break;
      case "reasoning_message":
        add({ kind: "thought", key: `r:${id.replace(/-r$/, "")}`, text: asText(message["reasoning"]), whole: true });
        break;
      case "approval_request_message":
      case "tool_call_message":
        callsOf(message).forEach(add);
        break;
      case "tool_return_message": {
        const key = `t:${asText(message["tool_call_id"])}`;
        const at = items.findIndex((item) => item.key === key);
        const known = items[at];
        const call = known?.kind === "tool" ? known : { ...toolItem({ tool_call_id: key.slice(2) }), name: "a tool" };
        const ended: ToolItem = {
          ...call,
          output: asText(message["tool_return"]),
          state: message["status"] === "success" ? "success" : "error",
          whole: true,
        };
        if (at >= 0) items[at] = ended;
        else add(ended);
        break;
      }
      case "summary_message":
        add({ kind: "note", key: `s:${id}`, text: "Earlier messages were condensed here.", level: "info" });
        break;
      default:
        break;
    }
  }
  return items;
}

/** Put a page of stored items into the list. `older` tells that the page lies before everything known. Else what both
 * know takes the stored form and the stored order, for what was written without a connection may have been taken up later
 * than it was shown. What only the list knows stays behind what it followed, at the end if that was the last; messages on
 * their way come after everything. */
export function merged(list: readonly Item[], page: readonly Item[], older: boolean): Item[] {
  const known = new Map(list.map((item) => [item.key, item]));
  if (older) return [...page.filter((item) => !known.has(item.key)), ...list];
  const stored = new Set(page.map((item) => item.key));
  const onTheirWay = list.filter((item) => item.kind === "user" && item.state !== "sent" && !stored.has(item.key));
  // Nothing in common: what lies between was never seen, so the page takes the place of all but what only we know.
  if (!page.some((item) => known.has(item.key))) return [...page, ...onTheirWay];
  const result: Item[] = [];
  const tail: Item[] = [];
  const behind = new Map<string, Item[]>();
  const firstStored = list.findIndex((item) => stored.has(item.key));
  const lastStored = list.reduce((last, item, index) => (stored.has(item.key) ? index : last), -1);
  let place = result;
  list.forEach((item, index) => {
    if (stored.has(item.key)) {
      place = index === lastStored ? tail : [];
      if (place !== tail) behind.set(item.key, place);
    } else if (!onTheirWay.includes(item) && !(firstStored < index && index < lastStored && isVoid(item))) {
      place.push(item);
    }
  });
  for (const item of page) {
    const before = known.get(item.key);
    result.push(before ? inStoredForm(before, item) : item, ...(behind.get(item.key) ?? []));
  }
  return [...result, ...tail, ...onTheirWay];
}

/** What is not stored although things after it are: an answer that was streamed has been void since its step was done
 * again, and a message was folded into the one before it. */
function isVoid(item: Item): boolean {
  switch (item.kind) {
    case "agent":
    case "thought":
      return !item.whole;
    case "user":
      return true;
    case "tool":
    case "note":
      return false;
  }
}

/** A page that starts in the middle of a call knows its result but not its name. */
function inStoredForm(known: Item, item: Item): Item {
  if (known.kind === "tool" && item.kind === "tool") {
    if (known.whole && !item.whole) return known;
    return item.args ? item : { ...item, name: known.name, args: known.args };
  }
  return item;
}

/** The list with the item of that key changed, or with the one that `make` gives at its end. */
export function withItem<T extends Item>(
  list: readonly Item[],
  key: string,
  change: (known: Item) => Item,
  make: () => T | null,
): Item[] {
  const at = list.findIndex((item) => item.key === key);
  if (at < 0) {
    const made = make();
    return made === null ? [...list] : [...list, made];
  }
  const result = [...list];
  result[at] = change(result[at]!);
  return result;
}
