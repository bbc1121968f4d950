import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { linkTo } from "../link/links";
import { words } from "../link/words";
import { type Agent, badgeOf, type Busy, busyAt, type Listed, MAIN, titleOf } from "../machine/agents";
import type { Directory } from "../machine/directory";
import { go, paths, route } from "../route";
import { since } from "../ui/ages";
import { ExportButton } from "../ui/export";
import { Trouble } from "../ui/parts";
import { Manage, More } from "./manage";

/** As the machine limits them. */
const TITLE_CHARS = 200;
const NAME_CHARS = 100;

interface Props {
  readonly machineId: string;
  readonly directory: Directory;
}

/** The agents of a machine with their conversations: open, make, rename, put away, delete. */
export function AgentList({ machineId, directory }: Props): JSX.Element {
  const agents = directory.agents.value ?? [];
  const shown = agents.filter((agent) => !agent.archived);
  const away = agents.filter((agent) => agent.archived);
  const known = directory.agents.value !== null;
  return (
    <>
      {shown.map((agent) => (
        <AgentCard key={agent.id} agent={agent} machineId={machineId} directory={directory} />
      ))}
      {known ? <NewAgent directory={directory} first={agents.length === 0} /> : null}
      {away.length ? (
        <details class="folded">
          <summary>
            <span class="clip">Archived agents ({away.length})</span>
          </summary>
          <ul class="rows plain-rows">
            {away.map((agent) => (
              <li key={agent.id}>
                <span class="clip">{agent.name}</span>
                <BringBack what={agent.name} act={() => directory.changeAgent(agent.id, { hidden: false })} />
              </li>
            ))}
          </ul>
        </details>
      ) : null}
    </>
  );
}

function NewAgent({ directory, first }: { directory: Directory; first: boolean }): JSX.Element {
  const [open, setOpen] = useState(first);
  const [name, setName] = useState(first ? "Lodger" : "");
  const [busy, setBusy] = useState(false);
  const [trouble, setTrouble] = useState("");
  const make = async (): Promise<void> => {
    setBusy(true);
    setTrouble("");
    try {
      go(await directory.makeAgent(name.trim()));
      setOpen(false);
    } catch (error) {
      setTrouble(words(error));
    }
    setBusy(false);
  };
  if (!open) {
    return (
      <button type="button" class="quiet" onClick={() => setOpen(true)}>
        New agent
      </button>
    );
  }
  return (
    <form
      class={first ? "empty manage" : "manage"}
      onSubmit={(event) => {
        event.preventDefault();
        void make();
      }}
    >
      {first ? <p>No agent lives here yet.</p> : null}
      <label for="new-agent">Name of the new agent</label>
      <div class="pair-row">
        <input id="new-agent" value={name} maxLength={NAME_CHARS} onInput={(event) => setName(event.currentTarget.value)} />
        <button type="submit" class="main" disabled={busy || !name.trim()}>
          Make it
        </button>
      </div>
      <Trouble text={trouble} />
    </form>
  );
}

function AgentCard({ agent, machineId, directory }: Props & { agent: Agent }): JSX.Element {
  const [more, setMore] = useState(false);
  const [busy, setBusy] = useState(false);
  const [trouble, setTrouble] = useState("");
  const shown = agent.conversations.filter((one) => !one.archived || one.id === MAIN);
  const away = agent.conversations.filter((one) => one.archived && one.id !== MAIN);
  const begin = async (): Promise<void> => {
    setBusy(true);
    setTrouble("");
    try {
      go(await directory.makeConversation(agent.id));
    } catch (error) {
      setTrouble(words(error));
    }
    setBusy(false);
  };
  const leave = (): void => {
    const here = route.value;
    if ("agentId" in here && here.agentId === agent.id) go(paths.machine(machineId));
  };
  return (
    <section class="agent" aria-labelledby={`agent-${agent.id}`}>
      <div class="agent-head">
        <div>
          <h2 id={`agent-${agent.id}`}>{agent.name}</h2>
          <p class="soft">{agent.model}</p>
        </div>
        <div class="head-tools">
          <a class="button quiet" href={paths.memory(machineId, agent.id)} aria-label={`Memory of ${agent.name}`}>
            Memory
          </a>
          <More id={agent.id} what={agent.name} open={more} onToggle={() => setMore(!more)} />
        </div>
      </div>
      {more ? (
        <Manage
          id={agent.id}
          what={agent.name}
          name={agent.name}
          limit={NAME_CHARS}
          onRename={(name) => directory.changeAgent(agent.id, { name })}
          archive={{
            word: "Archive",
            act: async () => {
              await directory.changeAgent(agent.id, { hidden: true });
              leave();
            },
          }}
          removal={{
            word: "Delete",
            warning:
              `${agent.name} and all its conversations leave every list, for good. ` +
              "Its memory stays where it is, and what was said stays in this machine's database.",
            act: async () => {
              await directory.deleteAgent(agent.id);
              leave();
            },
          }}
          onDone={() => setMore(false)}
        >
          <ExportButton link={linkTo(machineId)} wanted={{ agentId: agent.id }} name={agent.name} />
        </Manage>
      ) : null}
      <ul class="rows">
        {shown.map((one) => (
          <Row key={one.id} one={one} agent={agent} machineId={machineId} directory={directory} />
        ))}
      </ul>
      <Trouble text={trouble} />
      <button type="button" class="wide" disabled={busy} onClick={() => void begin()}>
        New conversation
      </button>
      {away.length ? (
        <details class="folded">
          <summary>
            <span class="clip">Archived conversations ({away.length})</span>
          </summary>
          <ul class="rows plain-rows">
            {away.map((one) => (
              <li key={one.id}>
                <a class="clip" href={paths.chat(machineId, agent.id, one.id)}>
                  {titleOf(one)}
                </a>
                <BringBack what={titleOf(one)} act={() => directory.changeConversation(agent.id, one.id, { archived: false })} />
              </li>
            ))}
          </ul>
        </details>
      ) : null}
    </section>
  );
}

function Row({ one, agent, machineId, directory }: Props & { one: Listed; agent: Agent }): JSX.Element {
  const [more, setMore] = useState(false);
  const here = route.value;
  const current = here.view === "chat" && here.agentId === agent.id && here.conversationId === one.id;
  const busy = busyAt(directory.busy.value, agent.id, one.id);
  const title = titleOf(one);
  const change = (body: { [name: string]: string | boolean }): Promise<void> => directory.changeConversation(agent.id, one.id, body);
  const changeAndLeave = async (body: { [name: string]: boolean }): Promise<void> => {
    await change(body);
    if (current) go(paths.machine(machineId));
  };
  return (
    <li>
      <div class="row">
        <a href={paths.chat(machineId, agent.id, one.id)} aria-current={current ? "page" : undefined}>
          <span class="clip">{title}</span>
          {busy && badgeOf(busy) ? <Badge busy={busy} /> : <span class="soft">{one.at === null ? "" : since(one.at)}</span>}
        </a>
        <More id={`${agent.id}-${one.id}`} what={title} open={more} onToggle={() => setMore(!more)} />
      </div>
      {more ? (
        <Manage
          id={`${agent.id}-${one.id}`}
          what={title}
          name={one.title}
          limit={TITLE_CHARS}
          onRename={(summary) => change({ summary })}
          {...(one.id === MAIN
            ? {}
            : {
                archive: { word: "Archive", act: () => changeAndLeave({ archived: true }) },
                removal: {
                  word: "Delete",
                  warning: "It leaves every list, for good. What was said in it stays in this machine's database.",
                  act: () => changeAndLeave({ hidden: true }),
                },
              })}
          onDone={() => setMore(false)}
        >
          <ExportButton link={linkTo(machineId)} wanted={{ agentId: agent.id, conversationId: one.id }} name={title} />
        </Manage>
      ) : null}
    </li>
  );
}

function Badge({ busy }: { busy: Busy }): JSX.Element {
  return <span class={busy.asks.length ? "badge asks" : "badge"}>{badgeOf(busy)}</span>;
}

function BringBack({ what, act }: { what: string; act: () => Promise<void> }): JSX.Element {
  const [trouble, setTrouble] = useState("");
  return (
    <>
      <Trouble text={trouble} />
      <button
        type="button"
        class="quiet small"
        aria-label={`Bring back ${what}`}
        onClick={() => void act().catch((error: unknown) => setTrouble(words(error)))}
      >
        Bring back
      </button>
    </>
  );
}
