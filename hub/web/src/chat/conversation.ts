import { batch, effect, signal } from "@preact/signals";
import { HubError, mail, takeMailBack } from "../hub/api";
import { asList, asNumber, asObject, asText, type Frame } from "../json";
import { type Link, LinkError } from "../link/link";
import { announce, notify } from "../ui/attention";
import { afterDelta, waitingFor } from "./deltas";
import { type Item, itemsOf, merged, textOf, type UserItem, userKey, withItem } from "./items";
import { contentOf, type Letter, Outbox } from "./outbox";
import { type Question, readQuestion } from "./questions";

/** The first clone of an agent on a machine may take its time. */
const OPEN_LIMIT_MS = 120_000;
const PAGE = 50;
/** Events looked back for the turn under way when this page saw nothing of it: a long answer word by word. */
const LOOK_BACK = 4000;
/** After so long away the transcript is fetched anew, which costs less than every event since. */
const STALE_MS = 10 * 60_000;
const IDLE = "WAITING_ON_INPUT";

export interface Queued {
  readonly id: string;
  readonly messageId: string;
  readonly text: string;
  readonly paused: boolean;
}

export interface Place {
  readonly machineId: string;
  readonly agentId: string;
  readonly conversationId: string;
}

/** One conversation as this page sees it. Survives every loss of the connection; ended by `close`. */
export class Conversation {
  readonly items = signal<readonly Item[]>([]);
  readonly queue = signal<readonly Queued[]>([]);
  readonly questions = signal<readonly Question[]>([]);
  readonly status = signal(IDLE);
  readonly waiting = signal("");
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
  private readonly outbox: Outbox;
  private cursor: number | null = null;
  private seenAt = 0;
  private lookBackFrom: number | null = null;
  private oldest = "";
  private held: Frame[] | null = null;
  private opening = 0;
  private sending = false;
  private refreshing = false;
  private readonly ownMessages = new Set<string>();
  private readonly unwatch: () => void;

  constructor(
    private readonly link: Link,
    readonly place: Place,
  ) {
    this.runtime = { agent_id: place.agentId, conversation_id: place.conversationId };
    this.outbox = new Outbox(`outbox.${place.machineId}.${place.agentId}.${place.conversationId}`);
    for (const letter of this.outbox.all) this.showLetter(letter, "sending");
    link.onFrame = (frame) => this.take(frame);
    link.onOpen = () => void this.open();
    if (link.isOpen) link.restart();
    this.unwatch = effect(() => {
      if (link.state.value.kind === "machine_offline" && this.outbox.all.length) void this.flush();
    });
  }

  close(): void {
    this.opening += 1;
    this.unwatch();
    this.link.onFrame = () => {};
    this.link.onOpen = () => {};
  }

  // -- what a person does --

  async send(text: string, letterPictures: Letter["pictures"]): Promise<void> {
    const letter: Letter = { id: `cm-${uuid()}`, text, pictures: letterPictures };
    this.outbox.add(letter);
    this.showLetter(letter, "sending");
    this.said.value += 1;
    await this.flush();
  }

  /** A message that no machine has yet: taken out again. Its text, for writing it anew; null when it is too late. */
  async takeBack(item: UserItem): Promise<string | null> {
    const id = item.key.slice(2);
    if (item.state === "mailed") {
      try {
        await takeMailBack(this.place.machineId, id);
      } catch (error) {
        this.trouble.value = words(error);
        return null;
      }
    }
    this.outbox.remove(id);
    this.items.value = this.items.value.filter((one) => one.key !== item.key);
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

  async answer(question: Question, allow: boolean, always: boolean): Promise<boolean> {
    const chosen = always ? { selected_permission_suggestion_ids: question.suggestions.map((one) => one.id) } : {};
    const decision: Frame = allow ? { behavior: "allow", ...chosen } : { behavior: "deny", message: "the person said no" };
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
    return this.doing(() =>
      this.link.request({ type: "execute_command", command_id: "compact", runtime: this.runtime }, 600_000),
    );
  }

  async loadOlder(): Promise<void> {
    await this.doing(async () => {
      const page = await this.page(this.oldest);
      this.items.value = merged(this.items.value, page, true);
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
    if (this.cursor !== null && Date.now() - this.seenAt > STALE_MS) this.cursor = null;
    const after = this.cursor ?? this.lookBackFrom;
    const fresh = this.cursor === null;
    this.held = [];
    try {
      const started = await this.link.request(this.startFrame(after), OPEN_LIMIT_MS);
      if (turn !== this.opening) return;
      const last = asNumber(started["lodger_last_event"]) ?? 0;
      const busy = this.status.value !== IDLE;
      if (fresh && busy && this.lookBackFrom === null && last > 0) {
        // The turn under way began before this page looked: come in again, from its beginning on.
        this.lookBackFrom = Math.max(0, last - LOOK_BACK);
        this.link.restart();
        return;
      }
      this.showHead(started);
      if (fresh) await this.loadNewest();
      if (turn !== this.opening) return;
      this.release(fresh, last);
      if (!fresh) void this.refresh();
      this.loaded.value = true;
      this.trouble.value = "";
      await this.flush();
    } catch (error) {
      if (turn !== this.opening) return;
      this.held = null;
      if (error instanceof LinkError && error.refused) this.trouble.value = error.message;
      else if (this.link.isOpen) this.link.restart();
    }
  }

  private startFrame(after: number | null): Frame {
    return {
      type: "runtime_start",
      agent_id: this.place.agentId,
      conversation_id: this.place.conversationId,
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
    this.items.value = [...page, ...own];
  }

  private async page(before: string): Promise<Item[]> {
    const query: Frame = { agent_id: this.place.agentId, limit: PAGE, order: "desc", ...(before ? { before } : {}) };
    const answer = await this.link.request({
      type: "conversation_messages_list",
      conversation_id: this.place.conversationId,
      query,
    });
    if (before || !this.oldest || this.cursor === null) {
      this.oldest = asText(answer["next_before"]);
      this.hasOlder.value = answer["has_more"] === true && this.oldest !== "";
    }
    return itemsOf([...asList(answer["messages"])].reverse());
  }

  /** Apply what was held back. Before the first look only the turn under way is news: the rest is in the transcript. */
  private release(fresh: boolean, last: number): void {
    const held = this.held ?? [];
    this.held = null;
    let from = 0;
    if (fresh) {
      held.forEach((frame, place) => {
        const number = asNumber(frame["lodger_event"]) ?? 0;
        if (frame["type"] === "turn_finished" && number <= last) from = place + 1;
      });
      this.cursor = 0;
    }
    batch(() => {
      for (const frame of held.slice(from)) this.apply(frame);
    });
    if (fresh) this.cursor = Math.max(this.cursor ?? 0, last);
    this.lookBackFrom = null;
    this.seenAt = Date.now();
  }

  /** Take the stored form of the newest messages: what other devices said, and the whole of what was streamed. */
  private async refresh(): Promise<void> {
    if (this.refreshing) return;
    this.refreshing = true;
    try {
      const page = await this.page("");
      this.items.value = merged(this.items.value, page, false);
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
    this.seenAt = Date.now();
    const type = frame["type"];
    if (type === "stream_delta" || type === "turn_finished") {
      if (this.held) this.held.push(frame);
      else this.apply(frame);
      return;
    }
    this.takeState(type, frame);
  }

  /** Events that are told once, each by its number: those come in order, and one that was seen is not news. */
  private apply(frame: Frame): void {
    const number = asNumber(frame["lodger_event"]);
    if (number !== null) {
      if (this.cursor !== null && number <= this.cursor) return;
      this.cursor = number;
    }
    if (frame["type"] === "turn_finished") {
      this.finished(frame);
      return;
    }
    const delta = asObject(frame["delta"]);
    const waiting = waitingFor(delta);
    if (waiting) this.waiting.value = waiting;
    else if (delta["message_type"] === "assistant_message") this.waiting.value = "";
    this.items.value = afterDelta(this.items.value, delta);
  }

  private takeState(type: Frame[string] | undefined, frame: Frame): void {
    switch (type) {
      case "update_loop_status":
        this.showLoop(asObject(frame["loop_status"]));
        break;
      case "update_queue":
        this.showQueue(frame);
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

  private showLoop(loop: Frame): void {
    this.status.value = asText(loop["status"]) || IDLE;
    if (this.status.value !== "RETRYING_API_REQUEST") this.waiting.value = "";
    const causes = Object.values(asObject(loop["client_message_ids_by_run_id"])).flatMap(asList).map(asText);
    // A message that another device sent is announced by nothing but its id.
    const unknown = causes.filter((id) => id && !this.ownMessages.has(id) && !this.knows(id));
    if (unknown.length && this.loaded.value && !this.held) {
      unknown.forEach((id) => this.ownMessages.add(id));
      void this.refresh();
    }
  }

  private knows(messageId: string): boolean {
    return this.items.value.some((item) => item.key === userKey(messageId));
  }

  private showQueue(frame: Frame): void {
    const queue = asList(frame["queue"]).map(asObject);
    const shown = queue.map((item) => ({
      id: asText(item["id"]),
      messageId: asText(item["client_message_id"]),
      text: textOf(item["content"]) || "(pictures)",
      paused: item["paused"] === true,
    }));
    this.queue.value = shown;
    const waiting = new Set(shown.map((item) => userKey(item.messageId)));
    if (this.items.value.some((item) => waiting.has(item.key))) {
      this.items.value = this.items.value.filter((item) => !waiting.has(item.key));
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
    if (!question.id || this.questions.value.some((one) => one.id === question.id)) return;
    this.questions.value = [...this.questions.value, question];
    announce(`The agent asks to use ${question.toolName}.`, true);
    notify(`${this.agentName.value || "The agent"} asks`, `May it use ${question.toolName}?`);
  }

  private settle(questionId: string): void {
    this.questions.value = this.questions.value.filter((one) => one.id !== questionId);
  }

  private finished(frame: Frame): void {
    const reason = asText(frame["stop_reason"]);
    const error = asText(frame["error"]);
    this.waiting.value = "";
    if (error && reason !== "cancelled") {
      this.items.value = afterDelta(this.items.value, { message_type: "loop_error", id: asText(frame["turn_id"]), message: error });
    }
    const last = [...this.items.value].reverse().find((item) => item.kind === "agent");
    const said = last?.kind === "agent" ? last.text : "";
    if (!this.held && this.loaded.value) {
      announce(said.slice(0, 600) || "The turn has ended.", false);
      notify(this.agentName.value || "Lodger", said.slice(0, 140) || "The turn has ended.");
    }
    void this.refresh();
  }

  // -- sending --

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
    this.items.value = withItem(this.items.value, item.key, () => item, () => item);
  }

  /** Hand over what waits, one after the other. What fails for want of a connection is tried at the next opening. */
  private async flush(): Promise<void> {
    if (this.sending) return;
    this.sending = true;
    try {
      for (let letter = this.outbox.all[0]; letter; letter = this.outbox.all[0]) {
        if (!(await this.hand(letter))) break;
      }
      if (this.link.state.value.kind === "machine_offline") await this.post();
    } finally {
      this.sending = false;
    }
  }

  private async hand(letter: Letter): Promise<boolean> {
    if (!this.loaded.value || this.held) return false;
    try {
      const answer = await this.link.request(this.messageFrame(letter));
      this.outbox.remove(letter.id);
      const accepted = answer["accepted"] === true;
      if (!accepted) this.showLetter(letter, "refused", asText(answer["error"]) || "The machine refused it.");
      else if (answer["disposition"] === "queued") this.hideQueued(letter);
      else this.showLetter(letter, "sent");
      return true;
    } catch {
      return false;
    }
  }

  /** The queue shows it; it may have been taken up again by now, and then the echo has shown it. */
  private hideQueued(letter: Letter): void {
    if (this.queue.value.some((item) => item.messageId === letter.id)) {
      this.items.value = this.items.value.filter((item) => item.key !== userKey(letter.id));
    } else this.showLetter(letter, "sent");
  }

  private messageFrame(letter: Letter): Frame {
    const message: Frame = { role: "user", content: contentOf(letter), client_message_id: letter.id };
    return { type: "input", runtime: this.runtime, payload: { kind: "create_message", messages: [message] } };
  }

  private async post(): Promise<void> {
    for (const letter of this.outbox.all) {
      try {
        await mail(this.place.machineId, this.messageFrame(letter));
        this.showLetter(letter, "mailed");
      } catch (error) {
        if (error instanceof HubError && error.status >= 400 && error.status < 500) {
          this.showLetter(letter, "refused", error.message);
          this.outbox.remove(letter.id);
        }
        return;
      }
    }
  }
}

export function words(error: unknown): string {
  return error instanceof LinkError || error instanceof HubError ? error.message : "Something went wrong on this page. Load it again.";
}

/** `randomUUID` exists in secure contexts only. */
function uuid(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
