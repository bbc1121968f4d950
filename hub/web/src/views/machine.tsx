import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { words } from "../chat/conversation";
import { asList, asObject, asText } from "../json";
import type { Link } from "../link/link";
import { linkTo } from "../link/links";
import { go, paths } from "../route";
import { since } from "../ui/ages";
import { LinkBanner } from "../ui/banner";
import { Head, Trouble } from "../ui/parts";

interface Agent {
  readonly id: string;
  readonly name: string;
  readonly model: string;
  readonly conversations: readonly { readonly id: string; readonly title: string; readonly at: number }[];
}

/** The first clone of an agent on a machine may take its time. */
const OPEN_LIMIT_MS = 120_000;

async function readAgents(link: Link): Promise<Agent[]> {
  const agents = asList((await link.request({ type: "agent_list" }, OPEN_LIMIT_MS))["agents"]).map(asObject);
  return Promise.all(
    agents.map(async (agent) => {
      const id = asText(agent["id"]);
      const answer = await link.request({ type: "conversation_list", query: { agent_id: id, limit: 100 } });
      const conversations = asList(answer["conversations"])
        .map(asObject)
        .filter((one) => one["archived"] !== true && one["id"] !== "default")
        .map((one) => ({
          id: asText(one["id"]),
          title: asText(one["summary"]),
          at: Date.parse(asText(one["last_message_at"]) || asText(one["created_at"])),
        }))
        .sort((one, other) => other.at - one.at);
      return { id, name: asText(agent["name"]) || "Agent", model: asText(agent["model"]), conversations };
    }),
  );
}

export function MachineView({ machineId }: { machineId: string }): JSX.Element {
  const [agents, setAgents] = useState<Agent[] | null>(null);
  const [trouble, setTrouble] = useState("");
  const [busy, setBusy] = useState(false);
  const link = linkTo(machineId);

  const look = async (): Promise<void> => {
    try {
      setAgents(await readAgents(link));
      setTrouble("");
    } catch (error) {
      setTrouble(words(error));
    }
  };
  useEffect(() => {
    document.title = "Agents · Lodger";
    link.onFrame = () => {};
    link.onOpen = () => void look();
    if (link.isOpen) void look();
    return () => {
      link.onOpen = () => {};
    };
  }, [link]);

  const start = async (frame: { [name: string]: string | object }): Promise<void> => {
    setBusy(true);
    try {
      const opened = asObject((await link.request({ type: "runtime_start", ...(frame as object) }, OPEN_LIMIT_MS))["runtime"]);
      go(paths.chat(machineId, asText(opened["agent_id"]), asText(opened["conversation_id"])));
    } catch (error) {
      setTrouble(words(error));
      setBusy(false);
    }
  };

  return (
    <div class="view">
      <Head title="Agents" back={paths.machines} backLabel="All machines">
        <a class="button quiet" href={paths.status(machineId)}>
          Status
        </a>
      </Head>
      <LinkBanner link={link} />
      <main id="main" tabIndex={-1}>
        <Trouble text={link.state.value.kind === "open" ? trouble : ""} />
        {agents === null && link.state.value.kind === "open" && !trouble ? <p class="soft">Looking…</p> : null}
        {agents?.map((agent) => (
          <AgentCard
            key={agent.id}
            agent={agent}
            machineId={machineId}
            busy={busy}
            onNew={() => void start({ agent_id: agent.id, create_conversation: { body: {} } })}
          />
        ))}
        {agents?.length === 0 ? (
          <section class="empty">
            <p>No agent lives here yet.</p>
            <button type="button" class="main" disabled={busy} onClick={() => void start({ create_agent: { body: { name: "Lodger" } }, conversation_id: "default" })}>
              Make one
            </button>
          </section>
        ) : null}
      </main>
    </div>
  );
}

function AgentCard(props: { agent: Agent; machineId: string; busy: boolean; onNew: () => void }): JSX.Element {
  const { agent, machineId } = props;
  return (
    <section class="agent" aria-labelledby={`agent-${agent.id}`}>
      <div class="agent-head">
        <div>
          <h2 id={`agent-${agent.id}`}>{agent.name}</h2>
          <p class="soft">{agent.model}</p>
        </div>
        <a class="button quiet" href={paths.memory(machineId, agent.id)} aria-label={`Memory of ${agent.name}`}>
          Memory
        </a>
      </div>
      <ul class="rows">
        <li>
          <a href={paths.chat(machineId, agent.id, "default")}>
            <span>Main conversation</span>
          </a>
        </li>
        {agent.conversations.map((one) => (
          <li key={one.id}>
            <a href={paths.chat(machineId, agent.id, one.id)}>
              <span class="clip">{one.title || "Conversation"}</span>
              <span class="soft">{Number.isNaN(one.at) ? "" : since(one.at)}</span>
            </a>
          </li>
        ))}
      </ul>
      <button type="button" class="wide" disabled={props.busy} onClick={props.onNew}>
        New conversation
      </button>
    </section>
  );
}
