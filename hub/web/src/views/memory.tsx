import type { ComponentChildren, JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { asList, asObject, asText, type Frame } from "../json";
import type { Link } from "../link/link";
import { linkTo } from "../link/links";
import { words } from "../link/words";
import { Markdown } from "../markdown/markdown";
import { paths } from "../route";
import { age } from "../ui/age";
import { now } from "../ui/ages";
import { LinkBanner } from "../ui/banner";
import { Head, Trouble } from "../ui/parts";

interface MemoryFile {
  readonly path: string;
  readonly description: string;
  readonly content: string;
}

interface Commit {
  readonly sha: string;
  readonly message: string;
  readonly at: number;
}

const HISTORY = 100;

async function readFiles(link: Link, agentId: string): Promise<MemoryFile[]> {
  const files: MemoryFile[] = [];
  let refusal = "";
  await link.collect({ type: "list_memory", agent_id: agentId }, (answer) => {
    if (answer["success"] === false) {
      refusal = asText(answer["error"]) || "The memory could not be listed.";
      return true;
    }
    for (const entry of asList(answer["entries"]).map(asObject)) {
      files.push({ path: asText(entry["relative_path"]), description: asText(entry["description"]), content: asText(entry["content"]) });
    }
    return answer["done"] !== false;
  });
  if (refusal) throw new Error(refusal);
  return files.sort((one, other) => one.path.localeCompare(other.path));
}

async function readHistory(link: Link, agentId: string): Promise<Commit[]> {
  const answer = await link.request({ type: "memory_history", agent_id: agentId, limit: HISTORY });
  return asList(answer["commits"])
    .map(asObject)
    .map((one) => ({ sha: asText(one["sha"]), message: asText(one["message"]), at: Date.parse(asText(one["timestamp"])) }));
}

export function MemoryView({ machineId, agentId }: { machineId: string; agentId: string }): JSX.Element {
  const link = linkTo(machineId);
  const [files, setFiles] = useState<MemoryFile[] | null>(null);
  const [history, setHistory] = useState<Commit[] | null>(null);
  const [filesTrouble, setFilesTrouble] = useState("");
  const [historyTrouble, setHistoryTrouble] = useState("");
  const open = link.state.value.kind === "open";
  useEffect(() => {
    document.title = "Memory · Lodger";
  }, [link]);
  useEffect(() => {
    if (!open) return;
    readFiles(link, agentId)
      .then(setFiles)
      .catch((error: unknown) => setFilesTrouble(error instanceof Error ? error.message : words(error)));
    readHistory(link, agentId)
      .then(setHistory)
      .catch((error: unknown) => setHistoryTrouble(words(error)));
  }, [open]);
  return (
    <div class="view">
      <Head title="Memory" back={paths.machine(machineId)} backLabel="Conversations" />
      <LinkBanner link={link} />
      <main id="main" tabIndex={-1}>
        <section aria-labelledby="files">
          <h2 id="files">What it knows</h2>
          {filesTrouble ? <p class="soft">The files cannot be shown here: {filesTrouble}</p> : null}
          {files?.length === 0 ? <p class="soft">Nothing remembered yet.</p> : null}
          {files?.map((file) => (
            <Folded key={file.path} title={file.path} aside={file.description}>
              <Markdown text={file.content} />
            </Folded>
          ))}
        </section>
        <section aria-labelledby="history">
          <h2 id="history">History</h2>
          <Trouble text={historyTrouble} />
          {history?.length === 0 ? <p class="soft">Nothing remembered yet.</p> : null}
          {history?.map((commit) => (
            <CommitView key={commit.sha} commit={commit} link={link} agentId={agentId} />
          ))}
        </section>
      </main>
    </div>
  );
}

function Folded(props: { title: string; aside: string; children: ComponentChildren; onOpen?: () => void }): JSX.Element {
  return (
    <details class="folded" onToggle={(event) => event.currentTarget.open && props.onOpen?.()}>
      <summary>
        <span class="clip">{props.title}</span>
        <span class="soft clip">{props.aside}</span>
      </summary>
      {props.children}
    </details>
  );
}

/** The lines of a patch without git's own heads; a file's name where it begins. */
function changed(diff: string): string[] {
  return diff
    .trimEnd()
    .split("\n")
    .filter((line) => !/^(diff --git |index |new file mode|deleted file mode|--- )/.test(line))
    .map((line) => (/^\+\+\+ b\//.test(line) ? ` ${line.slice(6)}` : line.startsWith("@@") ? " …" : line));
}

function CommitView({ commit, link, agentId }: { commit: Commit; link: Link; agentId: string }): JSX.Element {
  const [diff, setDiff] = useState<string | null>(null);
  const [trouble, setTrouble] = useState("");
  const load = (): void => {
    if (diff !== null) return;
    const frame: Frame = { type: "memory_commit_diff", agent_id: agentId, sha: commit.sha };
    link
      .request(frame)
      .then((answer) => setDiff(asText(answer["diff"])))
      .catch((error: unknown) => setTrouble(`The change cannot be shown here: ${words(error)}`));
  };
  const [subject = "", ...body] = commit.message.split("\n");
  return (
    <Folded title={subject} aside={Number.isNaN(commit.at) ? "" : age(now.value - commit.at)} onOpen={load}>
      {body.join("\n").trim() ? <p class="plain">{body.join("\n").trim()}</p> : null}
      {trouble ? <p class="soft">{trouble}</p> : null}
      {diff === null ? null : (
        <figure class="diff">
          <pre tabIndex={0} aria-label="Change">
            {changed(diff).map((line, place) => (
              <span key={place} class={line.startsWith("+") ? "add" : line.startsWith("-") ? "remove" : "context"}>
                {line}
                {"\n"}
              </span>
            ))}
          </pre>
        </figure>
      )}
      <p class="soft small">{commit.sha.slice(0, 12)}</p>
    </Folded>
  );
}
