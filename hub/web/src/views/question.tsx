import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ASK_TOOL, GIT_TOOL, HOSTS_TOOL, PORTS_TOOL, readChoices, SPEND_TOOL } from "../chat/choices";
import { askedWords, type Diff, type Question, readHosts, readAskedPorts, readSettings, type Word } from "../chat/questions";
import { asText } from "../json";
import { now } from "../ui/ages";
import { CodeBlock } from "../ui/code";
import { rescueFocus } from "../ui/focus";
import { Choices } from "./choices";

interface Props {
  readonly question: Question;
  readonly onAnswer: (word: Word) => Promise<boolean>;
}

/** What the agent wants to do, exactly as it would be done, or to know; and the person's word on it. */
export function QuestionCard({ question, onAnswer }: Props): JSX.Element {
  const [busy, setBusy] = useState(false);
  useEffect(() => rescueFocus, []);
  const give = async (word: Word): Promise<void> => {
    setBusy(true);
    if (!(await onAnswer(word))) setBusy(false);
  };
  const isChoice = question.toolName === ASK_TOOL && readChoices(question.input).length > 0;
  return (
    <section class="question" aria-label={`Question: ${askedWords(question)}`}>
      <h2>{isChoice ? "The agent asks you" : askedWords(question)}</h2>
      {question.reason && !isChoice ? <p class="soft reason">{question.reason}</p> : null}
      {isChoice ? (
        <Choices
          question={question}
          busy={busy}
          onAnswers={(input) => void give({ kind: "answer", input })}
          onSkip={() => void give({ kind: "deny" })}
        />
      ) : (
        <Permission question={question} busy={busy} onWord={(word) => void give(word)} />
      )}
      {question.expiresAt === null ? null : <p class="soft small">{left(question.expiresAt - now.value)}</p>}
    </section>
  );
}

function Permission({ question, busy, onWord }: { question: Question; busy: boolean; onWord: (word: Word) => void }): JSX.Element {
  const isSpend = question.toolName === SPEND_TOOL;
  return (
    <>
      {isSpend ? null : (
        <div class="question-body">
          <Asked question={question} />
          {question.diffs.map((diff, place) => (
            <DiffView key={place} diff={diff} />
          ))}
        </div>
      )}
      {question.suggestions.length ? (
        <div id={`always-${question.id}`} class="standing" role="group" aria-label="What Always would keep" tabIndex={0}>
          {question.suggestions.map((one) => (
            <p key={one.id}>{one.text}</p>
          ))}
        </div>
      ) : null}
      <div class="answers">
        <button type="button" class="main" disabled={busy} onClick={() => onWord({ kind: "allow", always: false })}>
          {isSpend ? "Go on" : "Allow"}
        </button>
        <button type="button" disabled={busy} onClick={() => onWord({ kind: "deny" })}>
          {isSpend ? "Stop here" : "Deny"}
        </button>
        {question.suggestions.length ? (
          <button
            type="button"
            class="quiet"
            disabled={busy}
            aria-describedby={`always-${question.id}`}
            onClick={() => onWord({ kind: "allow", always: true })}
          >
            Always
          </button>
        ) : null}
      </div>
    </>
  );
}

function left(ms: number): string {
  const minutes = Math.round(ms / 60_000);
  return minutes > 0 ? `Denied by itself in ${minutes} min if nobody answers.` : "Denied by itself any moment now.";
}

function Asked({ question }: { question: Question }): JSX.Element | null {
  const { command, folder, ...rest } = question.input;
  if (typeof command === "string" && question.toolName === "Bash") {
    return (
      <>
        <CodeBlock text={command} label="Command" />
        {asText(folder) ? <p class="soft">In {asText(folder)}</p> : null}
      </>
    );
  }
  if (question.toolName === HOSTS_TOOL) return <HostsView question={question} />;
  if (question.toolName === PORTS_TOOL) return <PortsView question={question} />;
  if (question.toolName === GIT_TOOL) {
    const fileName = `${asText(question.input["workspace"])}/.git/config`;
    return <DiffView diff={{ fileName, reason: "", hunks: [{ start: 1, lines: readSettings(question.input) }] }} />;
  }
  const path = asText(question.input["file_path"]);
  // The change itself says more than its arguments; only a name it does not show is added.
  if (path && question.diffs.some((diff) => diff.hunks.length)) {
    return question.diffs.some((diff) => diff.fileName === path) ? null : <p class="path">{path}</p>;
  }
  const shown = command === undefined && folder === undefined ? rest : question.input;
  return <CodeBlock text={JSON.stringify(shown, null, 2)} label="Arguments" />;
}

function HostsView({ question }: { question: Question }): JSX.Element {
  return (
    <dl class="hosts" aria-label="Hosts">
      {readHosts(question.input).map(({ host, port }) => (
        <div key={`${host}:${port}`}>
          <dt>{host}</dt>
          <dd class="soft">{port ? `port ${port}` : "any port"}</dd>
        </div>
      ))}
    </dl>
  );
}

function PortsView({ question }: { question: Question }): JSX.Element {
  return (
    <dl class="hosts" aria-label="Ports">
      {readAskedPorts(question.input).map((port) => (
        <div key={port}>
          <dt>port {port}</dt>
          <dd class="soft">in {asText(question.input["workspace"])}</dd>
        </div>
      ))}
    </dl>
  );
}

export function DiffView({ diff }: { diff: Diff }): JSX.Element {
  return (
    <figure class="diff">
      <figcaption>{diff.fileName}</figcaption>
      {diff.hunks.length === 0 ? <p class="soft">{diff.reason || "No preview of this change."}</p> : null}
      {diff.hunks.map((hunk, place) => (
        <pre key={place} tabIndex={0} aria-label={`Change at line ${hunk.start}`}>
          {hunk.lines.map((line, number) => (
            <span key={number} class={line.type}>
              <span class="sign">{SIGNS[line.type]}</span>
              {line.content.replace(/\n$/, "")}
              {"\n"}
            </span>
          ))}
        </pre>
      ))}
    </figure>
  );
}

const SIGNS = { add: "+", remove: "−", context: " " } as const;
