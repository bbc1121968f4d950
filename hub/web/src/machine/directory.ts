import { signal } from "@preact/signals";
import { asList, asObject, asText, type Frame } from "../json";
import type { Link } from "../link/link";
import { words } from "../link/words";
import { paths, route } from "../route";
import { announce, notify } from "../ui/attention";
import { type Agent, type Busy, busyAt, MAIN, readAgent, readBusy, titleOf } from "./agents";

/** The first clone of an agent on a machine may take its time. */
export const OPEN_LIMIT_MS = 120_000;
const WAITING_EVERY_MS = 4_000;
/** Lists change by what other devices do, which nothing tells. */
const LISTS_EVERY_MS = 60_000;
const CONVERSATIONS = 200;

/** What lives on one machine: its agents, their conversations, and what waits in each. */
export class Directory {
  readonly agents = signal<readonly Agent[] | null>(null);
  readonly busy = signal<readonly Busy[]>([]);
  readonly trouble = signal("");

  private readonly timer: ReturnType<typeof setInterval>;
  private readonly unlisten: () => void;
  private looking = false;
  private lookAgain = false;
  private listedAt = 0;
  private knowsBusy = false;

  constructor(private readonly link: Link) {
    this.unlisten = link.listen({
      opened: () => this.lookAround(),
      frame: (frame) => {
        if (frame["type"] === "turn_finished") this.lookAround();
      },
    });
    this.timer = setInterval(() => {
      if (!link.isOpen) return;
      if (Date.now() - this.listedAt > LISTS_EVERY_MS) this.lookAround();
      else void this.askWhatWaits();
    }, WAITING_EVERY_MS);
  }

  close(): void {
    clearInterval(this.timer);
    this.unlisten();
  }

  /** Read everything anew; while it is being read, once more afterwards. */
  lookAround(): void {
    if (this.looking) {
      this.lookAgain = true;
      return;
    }
    void this.look();
  }

  title(agentId: string, conversationId: string): string {
    const agent = this.agents.value?.find((one) => one.id === agentId);
    const found = agent?.conversations.find((one) => one.id === conversationId);
    return found ? titleOf(found) : conversationId === MAIN ? "Main conversation" : "Conversation";
  }

  agentName(agentId: string): string {
    return this.agents.value?.find((one) => one.id === agentId)?.name ?? "The agent";
  }

  // -- what a person does; each throws what `words` can tell --

  async makeAgent(name: string): Promise<string> {
    return this.open({ create_agent: { body: { name } }, conversation_id: MAIN });
  }

  async makeConversation(agentId: string): Promise<string> {
    return this.open({ agent_id: agentId, create_conversation: { body: {} } });
  }

  async changeAgent(agentId: string, body: Frame): Promise<void> {
    await this.change({ type: "agent_update", agent_id: agentId, body });
  }

  async deleteAgent(agentId: string): Promise<void> {
    await this.change({ type: "agent_delete", agent_id: agentId });
  }

  async changeConversation(agentId: string, conversationId: string, body: Frame): Promise<void> {
    await this.change({ type: "conversation_update", conversation_id: conversationId, body: { agent_id: agentId, ...body } });
  }

  private async open(frame: Frame): Promise<string> {
    await this.link.settled();
    const opened = asObject((await this.link.request({ type: "runtime_start", ...frame }, OPEN_LIMIT_MS))["runtime"]);
    this.lookAround();
    return paths.chat(this.link.deviceId, asText(opened["agent_id"]), asText(opened["conversation_id"]));
  }

  private async change(frame: Frame): Promise<void> {
    await this.link.settled();
    await this.link.request(frame);
    this.lookAround();
  }

  // -- reading --

  private async look(): Promise<void> {
    this.looking = true;
    try {
      this.listedAt = Date.now();
      const agents = asList((await this.link.request({ type: "agent_list" }, OPEN_LIMIT_MS))["agents"]).map(asObject);
      this.agents.value = await Promise.all(agents.map((agent) => this.withConversations(agent)));
      this.trouble.value = "";
      await this.askWhatWaits();
    } catch (error) {
      // A connection that broke off is told above; the next opening looks again.
      this.trouble.value = this.link.isOpen ? words(error) : "";
    } finally {
      this.looking = false;
    }
    if (this.lookAgain) {
      this.lookAgain = false;
      if (this.link.isOpen) void this.look();
    }
  }

  private async withConversations(agent: Frame): Promise<Agent> {
    const query: Frame = { agent_id: asText(agent["id"]), limit: CONVERSATIONS };
    const answer = await this.link.request({ type: "conversation_list", query });
    return readAgent(agent, asList(answer["conversations"]).map(asObject));
  }

  private async askWhatWaits(): Promise<void> {
    let found: Busy[];
    try {
      found = readBusy(await this.link.request({ type: "lodger_waiting" }));
    } catch {
      return;
    }
    const before = this.busy.value;
    this.busy.value = found;
    if (JSON.stringify(before) !== JSON.stringify(found) && this.knowsBusy) {
      this.tell(before, found);
      this.lookAround();
    }
    this.knowsBusy = true;
  }

  /** What has begun to wait, or has ended, in a conversation that is not open here: the open one tells by itself. */
  private tell(before: readonly Busy[], found: readonly Busy[]): void {
    const here = route.value;
    const isOpen = (one: Busy): boolean =>
      here.view === "chat" && here.agentId === one.agentId && here.conversationId === one.conversationId;
    for (const one of found.filter((busy) => !isOpen(busy))) {
      const known = busyAt(before, one.agentId, one.conversationId);
      if (one.asks.length <= (known?.asks.length ?? 0)) continue;
      const where = this.title(one.agentId, one.conversationId);
      announce(`A question waits in ${where}.`, false);
      this.notify(one, `${this.agentName(one.agentId)} asks`, `${where}: a question waits (${one.asks.at(-1)}).`);
    }
    for (const one of before.filter((busy) => busy.working && !isOpen(busy))) {
      if (busyAt(found, one.agentId, one.conversationId)?.working) continue;
      this.notify(one, this.agentName(one.agentId), `${this.title(one.agentId, one.conversationId)}: the turn has ended.`);
    }
  }

  private notify(one: Busy, title: string, body: string): void {
    notify(title, body, paths.chat(this.link.deviceId, one.agentId, one.conversationId));
  }
}
