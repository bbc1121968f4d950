import { HubError, mail, type Sent, sentMail, takeMailBack } from "../hub/api";
import { asText, type Frame } from "../json";
import type { Link } from "../link/link";
import type { UserItem } from "./items";
import { contentOf, type Letter, Outbox } from "./outbox";
import type { Place } from "./place";

/** How often the hub is asked what became of messages it keeps. */
const MAIL_EVERY_MS = 20_000;

export interface Heard {
  /** What has become of a message. */
  readonly show: (letter: Letter, state: UserItem["state"], reason?: string) => void;
  /** The machine took it up later than others: its queue shows it. */
  readonly queued: (letter: Letter) => void;
  /** Whether messages may go out now. */
  readonly ready: () => boolean;
}

/** Brings each message to its machine once, however often it has to be sent: to the machine itself, or to its mailbox at
 * the hub while it is away. What nobody has acknowledged is kept in this browser. */
export class Delivery {
  private readonly outbox: Outbox;
  private sending = false;
  private again = false;
  private timer: ReturnType<typeof setInterval> | undefined;

  constructor(
    private readonly link: Link,
    private readonly place: Place,
    private readonly heard: Heard,
  ) {
    this.outbox = new Outbox(`outbox.${place.machineId}.${place.agentId}.${place.conversationId}`);
    this.timer = setInterval(() => void this.askAboutMail(), MAIL_EVERY_MS);
  }

  close(): void {
    clearInterval(this.timer);
  }

  get waiting(): readonly Letter[] {
    return this.outbox.all;
  }

  /** False when this browser does not keep it. */
  add(letter: Letter): boolean {
    return this.outbox.add(letter);
  }

  /** Raises HubError when it is too late. */
  async takeBack(id: string, mailed: boolean): Promise<void> {
    if (mailed) await takeMailBack(this.place.machineId, id);
    this.outbox.remove(id);
  }

  /** Hand over what waits, one after the other. What fails for want of a connection is tried at the next opening. */
  async flush(): Promise<void> {
    if (this.sending) {
      this.again = true;
      return;
    }
    this.sending = true;
    try {
      do {
        this.again = false;
        for (let letter = this.outbox.all[0]; letter; letter = this.outbox.all[0]) {
          if (!(await this.hand(letter))) break;
        }
        if (this.link.state.value.kind === "machine_offline") await this.post();
      } while (this.again);
    } finally {
      this.sending = false;
    }
  }

  private async hand(letter: Letter): Promise<boolean> {
    if (!this.heard.ready()) return false;
    try {
      const answer = await this.link.request(this.frame(letter));
      this.outbox.remove(letter.id);
      const accepted = answer["accepted"] === true;
      if (!accepted) this.heard.show(letter, "refused", asText(answer["error"]) || "The machine refused it.");
      else if (answer["disposition"] === "queued") this.heard.queued(letter);
      else this.heard.show(letter, "sent");
      return true;
    } catch {
      return false;
    }
  }

  private frame(letter: Letter): Frame {
    const runtime = { agent_id: this.place.agentId, conversation_id: this.place.conversationId };
    const message: Frame = { role: "user", content: contentOf(letter), client_message_id: letter.id };
    return { type: "input", runtime, payload: { kind: "create_message", messages: [message] } };
  }

  private async post(): Promise<void> {
    for (const letter of this.outbox.all) {
      try {
        this.settle(letter, await mail(this.place.machineId, this.frame(letter)));
      } catch (error) {
        if (!(error instanceof HubError) || error.status < 400 || error.status >= 500) return;
        this.heard.show(letter, "refused", error.message);
        this.outbox.remove(letter.id);
      }
    }
  }

  private async askAboutMail(): Promise<void> {
    if (this.link.state.value.kind !== "machine_offline" || !this.outbox.all.length) return;
    const sent = await sentMail(this.place.machineId).catch(() => null);
    if (sent === null) return;
    for (const letter of this.outbox.all) {
      const found = sent.get(letter.id);
      if (found) this.settle(letter, found);
    }
  }

  /** A message at the hub stays here too until a machine has it: which of the two brings it first does not matter. */
  private settle(letter: Letter, sent: Sent): void {
    if (sent.state === "waiting") {
      this.heard.show(letter, "mailed");
      return;
    }
    this.outbox.remove(letter.id);
    if (sent.state === "delivered") this.heard.show(letter, "sent");
    else this.heard.show(letter, "refused", sent.reason || "The machine did not take it.");
  }
}
