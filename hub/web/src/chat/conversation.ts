import { batch, effect, signal } from "@preact/signals";
import { asList, asNumber, asObject, asText, type Frame } from "../json";
import { type Link, LinkError } from "../link/link";
import { words } from "../link/words";
import { paths } from "../route";
import { announce, notify } from "../ui/attention";
import { Delivery } from "./delivery";
import { afterDelta, type RetryWait, waitingFor } from "./deltas";
import { type Item, itemsOf, merged, type UserItem, userKey, withItem, withoutJoined } from "./items";
import type { Letter } from "./outbox";
import type { Place } from "./place";
import { causesOf, type Queued, readQueue } from "./queue";
import { askedWords, decisionOf, type Question, readQuestion, type Word } from "./questions";
import { Resume } from "./resume";

/** The first clone of an agent on a machine may take its time. */
const OPEN_LIMIT_MS = 120_000;
/** Condensing asks a model for a summary, which a slow machine takes minutes for. */
const COMPACT_LIMIT_MS = 600_000;
const PAGE = 50;
export const IDLE = "WAITING_ON_INPUT";

/** One conversation as this page sees it. Survives every loss of the connection; ended by `close`. */
export class Conversation {
  readonly items = signal<readonly Item[]>([]);
  readonly queue = signal<readonly Queued[]>([]);
  readonly questions = signal<readonly Question[]>([]);
  readonly status = signal(IDLE);
  readonly waiting = signal<RetryWait | null>(null);
  readonly agentName = signal("");
  readonly title = signal("");
  readonly model = signal("");
  readonly mode = signal("");
  readonly folder = signal("");
  readonly loaded = signal(false);
  readonly hasOlder = signal(false);
  readonly trouble = signal("");
  /** Grows with each message a person sends here: who writes wants to see the end. */
  readonly said = signal(0);

  private readonly runtime: Frame;
  private readonly delivery: Delivery;
  private readonly resume = new Resume();
  private oldest = "";
  private opening = 0;
  private refreshing = false;
  private refreshAgain = false;
  private readonly ownMessages = new Set<string>();
  private readonly ends: readonly (() => void)[];

  constructor(
    private readonly link: Link,
    readonly place: Place,
  ) {
    this.runtime = { agent_id: place.agentId, conversation_id: place.conversationId };
    this.delivery = new Delivery(link, place, {
      show: (letter, state, reason = "") => this.showLetter(letter, state, reason),
      queued: (letter) => this.hideQueued(letter),
      ready: () => this.loaded.value && !this.resume.isHolding,
    });
    for (const letter of this.delivery.waiting) this.showLetter(letter, "sending");
    const unlisten = link.listen({ frame: (frame) => this.take(frame), opened: () => void this.open() });
    if (link.isOpen) link.restart();
    const unwatch = effect(() => {
      if (link.state.value.kind === "machine_offline" && this.delivery.waiting.length) void this.delivery.flush();
    });
    this.ends = [unlisten, unwatch, () => this.delivery.close()];
  }

  close(): void {
    this.opening += 1;
    for (const end of this.ends) end();
  }

  // -- what a person does --

  async send(text: string, pictures: Letter["pictures"]): Promise<void> {
    const letter: Letter = { id: `cm-${uuid()}`, text, pictures };
    const isKept = this.delivery.add(letter);
    this.trouble.value = "";
    this.showLetter(letter, "sending");
    this.said.value += 1;
    await this.delivery.flush();
    const waits = this.delivery.waiting.some((one) => one.id === letter.id);
    if (!isKept && waits) this.trouble.value = "This browser has no room to keep that message: leave the page open until it is sent.";
  }

  /** A message that no machine has yet: taken out again. Its text, for writing it anew; null when it is too late. */
  async takeBack(item: UserItem): Promise<string | null> {
    try {
      await this.delivery.takeBack(item.key.slice(2), item.state === "mailed");
    } catch (error) {
      this.trouble.value = words(error);
      return null;
    }
    this.showItems(this.items.value.filter((one) => one.key !== item.key));
    return item.text;
  }

  async removeQueued(item: Queued): Promise<boolean> {
    return this.doing(async () => {
      await this.link.request({ type: "remove_queue_item", runtime: this.runtime, item_id: item.id });
    }, "It was taken up already.");
  }

  async resumeQueue(): Promise<boolean> {
    return this.doing(() => this.link.request({ type: "resume_queue", runtime: this.runtime }));
  }

  async stop(): Promise<boolean> {
    return this.doing(() => this.link.request({ type: "abort_message", runtime: this.runtime }));
  }

  async answer(question: Question, word: Word): Promise<boolean> {
    const decision = decisionOf(question, word);
    const payload: Frame = { kind: "approval_response", request_id: question.id, decision };
    return this.doing(async () => {
      const answer = await this.link.request({ type: "input", runtime: this.runtime, payload });
      this.settle(question.id);
      if (answer["accepted"] !== true) this.trouble.value = "That question had been settled already.";
    });
  }

  setMode(mode: string): void {
    this.link.tell({ type: "change_device_state", runtime: this.runtime, payload: { mode } });
  }

  setFolder(cwd: string): void {
    this.link.tell({ type: "change_device_state", runtime: this.runtime, payload: { cwd } });
  }

  async setModel(handle: string): Promise<boolean> {
    return this.doing(async () => {
      const payload = { model_id: handle, model_handle: handle };
      await this.link.request({ type: "update_model", runtime: this.runtime, payload });
      this.model.value = handle;
    });
  }

  async compact(): Promise<boolean> {
    const frame: Frame = { type: "execute_command", command_id: "compact", runtime: this.runtime };
    return this.doing(() => this.link.request(frame, COMPACT_LIMIT_MS));
  }

  async loadOlder(): Promise<void> {
    await this.doing(async () => {
      const page = await this.page(this.oldest);
      this.showItems(merged(this.items.value, page, true));
    });
  }

  private async doing(work: () => Promise<unknown>, refusedWords = ""): Promise<boolean> {
    this.trouble.value = "";
    try {
      await work();
      return true;
    } catch (error) {
      this.trouble.value = error instanceof LinkError && error.refused && refusedWords ? refusedWords : words(error);
      return false;
    }
  }

  // -- opening and coming back --

  private async open(): Promise<void> {
    const turn = ++this.opening;
    const after = this.resume.begin(Date.now());
    try {
      const started = await this.link.request(this.startFrame(after), OPEN_LIMIT_MS);
      if (turn !== this.opening) return;
      const last = asNumber(started["lodger_last_event"]) ?? 0;
      if (this.resume.mustLookBack(this.status.value !== IDLE, last)) {
        this.link.restart();
        return;
      }
      this.showHead(started);
      if (this.resume.isFresh) await this.loadNewest();
      if (turn !== this.opening) return;
      batch(() => {
        for (const frame of this.resume.release(last, Date.now())) this.apply(frame);
      });
      if (!this.resume.isFresh) void this.refresh();
      this.loaded.value = true;
      this.trouble.value = "";
      await this.delivery.flush();
    } catch (error) {
      if (turn !== this.opening) return;
      this.resume.abandon();
      if (error instanceof LinkError && error.refused) this.trouble.value = error.message;
      else if (this.link.isOpen) this.link.restart();
    }
  }

  private startFrame(after: number | null): Frame {
    return {
      type: "runtime_start",
      ...this.runtime,
      client_info: { name: "lodger-page", capabilities: ["resume", "batch_deltas"] },
      recover_approvals: true,
      wait_for_replay: true,
      ...(after === null ? {} : { after_event: after }),
    };
  }

  private showHead(started: Frame): void {
    const agent = asObject(started["agent"]);
    const conversation = asObject(started["conversation"]);
    this.agentName.value = asText(agent["name"]) || "the agent";
    this.model.value = asText(conversation["model"]) || asText(agent["model"]);
    this.title.value = asText(conversation["summary"]);
  }

  private async loadNewest(): Promise<void> {
    const page = await this.page("");
    // What only this page knows (a message not yet sent) stays, at the end.
    const pageKeys = new Set(page.map((item) => item.key));
    const own = this.items.value.filter((item) => item.kind === "user" && item.state !== "sent" && !pageKeys.has(item.key));
    this.showItems([...page, ...own]);
  }

  private async page(before: string): Promise<Item[]> {
    const query: Frame = { agent_id: this.place.agentId, limit: PAGE, order: "desc", ...(before ? { before } : {}) };
    const answer = await this.link.request({
      type: "conversation_messages_list",
      conversation_id: this.place.conversationId,
      query,
    });
    if (before || !this.oldest || this.resume.isNew) {
      this.oldest = asText(answer["next_before"]);
      this.hasOlder.value = answer["has_more"] === true && this.oldest !== "";
    }
    return itemsOf([...asList(answer["messages"])].reverse());
  }

  /** Take the stored form of the newest messages: what other devices said, and the whole of what was streamed. */
  private async refresh(): Promise<void> {
    if (this.refreshing) {
      this.refreshAgain = true;
      return;
    }
    this.refreshing = true;
    try {
      do {
        this.refreshAgain = false;
        const page = await this.page("");
        this.showItems(merged(this.items.value, page, false));
      } while (this.refreshAgain);
    } catch {
      // The link says what is wrong; the next opening looks again.
    } finally {
      this.refreshing = false;
    }
  }

  // -- what the machine says --

  private take(frame: Frame): void {
    const runtime = asObject(frame["runtime"]);
    if (runtime["agent_id"] !== this.place.agentId || runtime["conversation_id"] !== this.place.conversationId) return;
    this.resume.heard(Date.now());
    switch (frame["type"]) {
      case "stream_delta":
      case "turn_finished":
        for (const news of this.resume.take(frame)) this.apply(news);
        break;
      case "lodger_resync":
        this.resume.lost();
        break;
      case "update_loop_status":
        this.showLoop(asObject(frame["loop_status"]));
        break;
      case "update_queue":
        this.showQueue(readQueue(frame));
        break;
      case "update_device_status":
        this.showDevice(asObject(frame["device_status"]));
        break;
      case "control_request":
        this.ask(readQuestion(asText(frame["request_id"]), asObject(frame["request"])));
        break;
      case "lodger_question_settled":
        this.settle(asText(frame["request_id"]));
        break;
      default:
        break;
    }
  }

  private apply(frame: Frame): void {
    if (frame["type"] === "turn_finished") {
      this.finished(frame);
      return;
    }
    const delta = asObject(frame["delta"]);
    const waiting = waitingFor(delta, Date.now());
    if (waiting) this.waiting.value = waiting;
    else if (delta["message_type"] === "assistant_message") this.waiting.value = null;
    this.showItems(afterDelta(this.items.value, delta));
  }

  private showLoop(loop: Frame): void {
    this.status.value = asText(loop["status"]) || IDLE;
    if (this.status.value !== "RETRYING_API_REQUEST") this.waiting.value = null;
    // A message that another device sent is announced by nothing but its id.
    const unknown = causesOf(loop).filter((id) => !this.ownMessages.has(id) && !this.knows(id));
    if (unknown.length && this.loaded.value && !this.resume.isHolding) {
      unknown.forEach((id) => this.ownMessages.add(id));
      void this.refresh();
    }
  }

  private knows(messageId: string): boolean {
    return this.items.value.some((item) => item.key === userKey(messageId));
  }

  private showQueue(queue: readonly Queued[]): void {
    this.queue.value = queue;
    const waiting = new Set(queue.map((item) => userKey(item.messageId)));
    if (this.items.value.some((item) => waiting.has(item.key))) {
      this.showItems(this.items.value.filter((item) => !waiting.has(item.key)));
    }
  }

  private showDevice(status: Frame): void {
    this.mode.value = asText(status["current_permission_mode"]);
    this.folder.value = asText(status["current_working_directory"]);
    const pending = asList(status["pending_control_requests"]).map(asObject);
    const ids = new Set(pending.map((one) => asText(one["request_id"])));
    const left = this.questions.value.filter((question) => ids.has(question.id));
    if (left.length !== this.questions.value.length) this.questions.value = left;
    for (const one of pending) this.ask(readQuestion(asText(one["request_id"]), asObject(one["request"])));
  }

  private ask(question: Question): void {
    if (!question.id) return;
    if (this.questions.value.some((one) => one.id === question.id)) {
      // The same question told again may have its preview by now.
      this.questions.value = this.questions.value.map((one) => (one.id === question.id ? question : one));
      return;
    }
    this.questions.value = [...this.questions.value, question];
    announce(askedWords(question), true);
    this.notify(`${this.agentName.value || "The agent"} asks`, askedWords(question));
  }

  private settle(questionId: string): void {
    this.questions.value = this.questions.value.filter((one) => one.id !== questionId);
  }

  private finished(frame: Frame): void {
    const reason = asText(frame["stop_reason"]);
    const error = asText(frame["error"]);
    this.waiting.value = null;
    if (error && reason !== "cancelled") {
      this.showItems(afterDelta(this.items.value, { message_type: "loop_error", id: asText(frame["turn_id"]), message: error }));
    }
    const last = [...this.items.value].reverse().find((item) => item.kind === "agent");
    const said = last?.kind === "agent" ? last.text : "";
    if (!this.resume.isHolding && this.loaded.value) {
      announce(said.slice(0, 600) || "The turn has ended.", false);
      this.notify(this.agentName.value || "Lodger", error || said.slice(0, 140) || "The turn has ended.");
    }
    void this.refresh();
  }

  private showItems(items: readonly Item[]): void {
    this.items.value = withoutJoined(items);
  }

  private notify(title: string, body: string): void {
    notify(title, body, paths.chat(this.place.machineId, this.place.agentId, this.place.conversationId));
  }

  // -- messages on their way --

  private showLetter(letter: Letter, state: UserItem["state"], reason = ""): void {
    const item: UserItem = {
      kind: "user",
      key: userKey(letter.id),
      text: letter.text,
      pictures: letter.pictures,
      state,
      ...(reason ? { reason } : {}),
    };
    this.ownMessages.add(letter.id);
    // What the machine has joined others to says more than the letter.
    const changed = (known: Item): Item => (known.kind === "user" && known.joined ? known : item);
    this.showItems(withItem(this.items.value, item.key, changed, () => item));
  }

  /** The queue shows it; it may have been taken up again by now, and then the echo has shown it. */
  private hideQueued(letter: Letter): void {
    if (this.queue.value.some((item) => item.messageId === letter.id)) {
      this.showItems(this.items.value.filter((item) => item.key !== userKey(letter.id)));
    } else this.showLetter(letter, "sent");
  }
}

/** `randomUUID` exists in secure contexts only. */
function uuid(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
