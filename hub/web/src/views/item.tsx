import type { JSX } from "preact";
import type { Item, ToolItem, UserItem } from "../chat/items";
import { Markdown } from "../markdown/markdown";
import { CodeBlock } from "../ui/code";

interface Props<T extends Item> {
  readonly item: T;
  /** The machine's name, where it is known. */
  readonly machine: string;
  readonly onTakeBack: (item: UserItem) => void;
}

export function ItemView({ item, machine, onTakeBack }: Props<Item>): JSX.Element | null {
  switch (item.kind) {
    case "user":
      return <UserView item={item} machine={machine} onTakeBack={onTakeBack} />;
    case "agent":
      return (
        <article class="agent-message" aria-label="Agent">
          <Markdown text={item.text} />
        </article>
      );
    case "thought":
      return (
        <details class="thought">
          <summary>Thoughts</summary>
          <Markdown text={item.text} />
        </details>
      );
    case "tool":
      return <ToolView item={item} />;
    case "note":
      return <p class={item.level === "error" ? "note error" : "note"}>{item.text}</p>;
  }
}

function deliveryWords(item: UserItem, machine: string): string {
  switch (item.state) {
    case "sending":
      return "Waiting to be sent";
    case "mailed":
      return `Waits for ${machine || "the machine"} to wake`;
    case "sent":
      return "";
    case "refused":
      return `Not sent: ${item.reason || "the machine did not take it"}`;
  }
}

function UserView({ item, machine, onTakeBack }: Props<UserItem>): JSX.Element {
  return (
    <article class="user-message" aria-label="You">
      {item.pictures.map((picture, place) => (
        <img key={place} src={`data:${picture.mediaType};base64,${picture.data}`} alt={`Picture ${place + 1} you sent`} />
      ))}
      {item.text ? <p>{item.text}</p> : null}
      {item.state === "sent" ? null : (
        <p class="delivery">
          {deliveryWords(item, machine)}
          <button type="button" class="quiet small" onClick={() => onTakeBack(item)}>
            Take back
          </button>
        </p>
      )}
    </article>
  );
}

const TELLING = ["command", "file_path", "pattern", "url", "description", "path"];

/** What a call is about, in one line. */
function gist(args: string): string {
  try {
    const fields = JSON.parse(args) as Record<string, unknown>;
    const telling = TELLING.map((name) => fields[name]).find((value) => typeof value === "string" && value);
    return String(telling ?? args).replace(/\s+/g, " ").slice(0, 160);
  } catch {
    return args.slice(0, 160);
  }
}

/** The arguments for reading: the command itself, or the fields one under the other. */
export function argumentsText(args: string): string {
  try {
    const fields = JSON.parse(args) as Record<string, unknown>;
    if (Object.keys(fields).length === 1 && typeof fields["command"] === "string") return fields["command"];
    return JSON.stringify(fields, null, 2);
  } catch {
    return args;
  }
}

const TOOL_STATES: Record<ToolItem["state"], string> = { asked: "asked for", running: "running", success: "done", error: "failed" };

function ToolView({ item }: { item: ToolItem }): JSX.Element {
  return (
    <details class={`tool ${item.state}`}>
      <summary>
        <span class="tool-mark" aria-hidden="true" />
        <span class="tool-name">{item.name}</span>
        <span class="tool-gist">{gist(item.args)}</span>
        <span class="tool-state">{TOOL_STATES[item.state]}</span>
      </summary>
      {item.args ? <CodeBlock text={argumentsText(item.args)} label="Call" /> : null}
      {item.output || item.whole ? <CodeBlock text={item.output || "(no output)"} label="Result" /> : null}
    </details>
  );
}
