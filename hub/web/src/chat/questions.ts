import { ASK_TOOL, GIT_TOOL, HOSTS_TOOL, PORTS_TOOL, readChoices, SPEND_TOOL } from "./choices";
import { asList, asNumber, asObject, asText, type Frame, type Json } from "../json";

export interface DiffLine {
  readonly type: "context" | "add" | "remove";
  readonly content: string;
}

export interface Diff {
  readonly fileName: string;
  readonly reason: string;
  readonly hunks: readonly { readonly start: number; readonly lines: readonly DiffLine[] }[];
}

export interface Question {
  readonly id: string;
  readonly toolName: string;
  readonly input: Frame;
  readonly reason: string;
  readonly expiresAt: number | null;
  readonly suggestions: readonly { readonly id: string; readonly text: string }[];
  readonly diffs: readonly Diff[];
}

export function readQuestion(id: string, request: Frame): Question {
  const expires = Date.parse(asText(request["expires_at"]));
  return {
    id,
    toolName: asText(request["tool_name"]) || "a tool",
    input: asObject(request["input"]),
    reason: asText(request["reason"]),
    expiresAt: Number.isNaN(expires) ? null : expires,
    suggestions: asList(request["permission_suggestions"])
      .map(asObject)
      .map((one) => ({ id: asText(one["id"]), text: asText(one["text"]) }))
      .filter((one) => one.id),
    diffs: asList(request["diffs"]).map(readDiff),
  };
}

/** A person's word on a question. */
export type Word =
  | { readonly kind: "allow"; readonly always: boolean }
  | { readonly kind: "answer"; readonly input: Frame }
  | { readonly kind: "deny" };

/** The word as the machine takes it. */
export function decisionOf(question: Question, word: Word): Frame {
  switch (word.kind) {
    case "allow":
      if (!word.always) return { behavior: "allow" };
      return { behavior: "allow", selected_permission_suggestion_ids: question.suggestions.map((one) => one.id) };
    case "answer":
      return { behavior: "allow", updated_input: word.input };
    case "deny":
      return { behavior: "deny", message: "the person said no" };
  }
}

/** What is asked, in a line. */
export function askedWords(question: Question): string {
  switch (question.toolName) {
    case ASK_TOOL:
      return readChoices(question.input)[0]?.question ?? "The agent wants to know something.";
    case SPEND_TOOL:
      return "A limit of spending is reached. Go on?";
    case HOSTS_TOOL: {
      const hosts = readHosts(question.input);
      return hosts.length === 1 ? `May programs of the agent reach ${hosts[0]!.host}?` : `May programs of the agent reach these ${hosts.length} hosts?`;
    }
    case PORTS_TOOL: {
      const ports = readAskedPorts(question.input);
      return `May the machine reach ${ports.length === 1 ? `port ${ports[0]!}` : `these ${ports.length} ports`} of the agent's box?`;
    }
    case GIT_TOOL:
      return "May the agent's change of git's configuration stand?";
    default:
      return `May the agent use ${question.toolName}?`;
  }
}

export interface Host {
  readonly host: string;
  readonly port: string;
}

/** The hosts that a question is about, each `name:port` or `[address]:port`. */
export function readHosts(input: Frame): Host[] {
  return asList(input["hosts"])
    .map(asText)
    .filter((one) => one)
    .map((one) => {
      const cut = one.lastIndexOf(":");
      return /^:\d+$/.test(one.slice(cut)) ? { host: one.slice(0, cut), port: one.slice(cut + 1) } : { host: one, port: "" };
    });
}

/** The ports that a question is about. */
export function readAskedPorts(input: Frame): number[] {
  return asList(input["ports"])
    .map(asNumber)
    .filter((one) => one !== null);
}

/** What would stand in the configuration again: a line for each setting; without a value it would be gone. */
export function readSettings(input: Frame): DiffLine[] {
  return Object.entries(asObject(input["settings"])).map(([name, value]) =>
    asText(value) ? { type: "add", content: `${name} = ${asText(value)}` } : { type: "remove", content: name },
  );
}

function readDiff(value: Json): Diff {
  const diff = asObject(value);
  return {
    fileName: asText(diff["fileName"]),
    reason: asText(diff["reason"]),
    hunks: asList(diff["hunks"]).map((one) => {
      const hunk = asObject(one);
      return {
        start: asNumber(hunk["newStart"]) ?? 1,
        lines: asList(hunk["lines"])
          .map(asObject)
          .map((line) => ({
            type: line["type"] === "add" || line["type"] === "remove" ? line["type"] : "context",
            content: asText(line["content"]),
          })),
      };
    }),
  };
}
