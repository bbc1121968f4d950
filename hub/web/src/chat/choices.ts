import { asList, asObject, asText, type Frame, type Json } from "../json";

/** By this tool the agent asks the person something, instead of asking for leave. */
export const ASK_TOOL = "AskUserQuestion";
/** By this one the machine asks whether to go on beyond a limit of spending. */
export const SPEND_TOOL = "SpendLimit";
/** By this one it asks about hosts that programs in a box want to reach. */
export const HOSTS_TOOL = "NetworkAccess";
/** By this one it asks about ports that programs in a box listen at. */
export const PORTS_TOOL = "PortAccess";
/** By this one it asks about a change of a repository's configuration, which it has put back. */
export const GIT_TOOL = "GitConfiguration";

export interface Choice {
  readonly question: string;
  readonly header: string;
  readonly several: boolean;
  readonly options: readonly { readonly label: string; readonly description: string }[];
}

export function readChoices(input: Frame): Choice[] {
  return asList(input["questions"])
    .map(asObject)
    .map((one) => ({
      question: asText(one["question"]),
      header: asText(one["header"]),
      several: one["multiSelect"] === true,
      options: asList(one["options"])
        .map(asObject)
        .map((option) => ({ label: asText(option["label"]), description: asText(option["description"]) }))
        .filter((option) => option.label),
    }))
    .filter((one) => one.question);
}

/** What was chosen and written, by the question's text. */
export interface Given {
  readonly chosen: readonly string[];
  readonly written: string;
}

/** The arguments with the person's answers, as the machine takes them; null while a question has none. */
export function withAnswers(input: Frame, given: { readonly [question: string]: Given }): Frame | null {
  const answers: [string, Json][] = [];
  for (const { question, several } of readChoices(input)) {
    const { chosen = [], written = "" } = given[question] ?? {};
    const parts = written.trim() ? [...chosen, written.trim()] : [...chosen];
    if (!parts.length) return null;
    answers.push([question, several && parts.length > 1 ? parts : parts.join(", ")]);
  }
  return { ...input, answers: Object.fromEntries(answers) };
}
