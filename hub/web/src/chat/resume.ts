import { asNumber, type Frame } from "../json";

/** Events looked back for the turn under way when this page saw nothing of it: a long answer word by word. */
const LOOK_BACK = 4000;
/** After so long away the transcript is fetched anew, which costs less than every event since. */
export const STALE_MS = 10 * 60_000;

/** Where in a conversation's numbered events this page is. Each event is applied once and in order, whatever happens to
 * the connection: what arrives while the page opens the conversation is held back until it knows what it has missed. */
export class Resume {
  private cursor: number | null = null;
  private seenAt = 0;
  private lookBackFrom: number | null = null;
  private held: Frame[] | null = null;
  private fresh = true;

  /** Open (again): the number after which events are wanted; null for none before now. */
  begin(now: number): number | null {
    if (this.cursor !== null && now - this.seenAt > STALE_MS) this.cursor = null;
    this.fresh = this.cursor === null;
    this.held = [];
    return this.cursor ?? this.lookBackFrom;
  }

  /** Whether the transcript has to be fetched: nothing seen here can be continued. */
  get isFresh(): boolean {
    return this.fresh;
  }

  get isHolding(): boolean {
    return this.held !== null;
  }

  get isNew(): boolean {
    return this.cursor === null;
  }

  /** True when the turn under way began before this page looked: then it should hang up and `begin` once more, and gets
   * that turn from its beginning on. */
  mustLookBack(busy: boolean, last: number): boolean {
    if (!this.fresh || !busy || this.lookBackFrom !== null || last <= 0) return false;
    this.lookBackFrom = Math.max(0, last - LOOK_BACK);
    return true;
  }

  /** The machine keeps no events from where this page is, or never had such a place: the transcript is fetched anew. */
  lost(): void {
    this.cursor = null;
    this.fresh = true;
  }

  /** The opening failed. */
  abandon(): void {
    this.held = null;
  }

  heard(now: number): void {
    this.seenAt = now;
  }

  /** What is to be applied now that an event has come: it alone, or nothing. */
  take(frame: Frame): readonly Frame[] {
    if (this.held) {
      this.held.push(frame);
      return [];
    }
    return this.isNews(frame) ? [frame] : [];
  }

  /** The opening is done, with `last` as the newest event then: what of the held events is news, in order. After a fresh
   * look that is the turn under way only: the rest is in the transcript. */
  release(last: number, now: number): readonly Frame[] {
    const held = this.held ?? [];
    this.held = null;
    let from = 0;
    if (this.fresh) {
      held.forEach((frame, place) => {
        if (frame["type"] === "turn_finished" && (numberOf(frame) ?? 0) <= last) from = place + 1;
      });
      this.cursor = 0;
    }
    const news = held.slice(from).filter((frame) => this.isNews(frame));
    if (this.fresh) this.cursor = Math.max(this.cursor ?? 0, last);
    this.lookBackFrom = null;
    this.seenAt = now;
    return news;
  }

  /** Events without a number, which another server sends, are always news. */
  private isNews(frame: Frame): boolean {
    const number = numberOf(frame);
    if (number === null) return true;
    if (this.cursor !== null && number <= this.cursor) return false;
    this.cursor = number;
    return true;
  }
}

function numberOf(frame: Frame): number | null {
  return asNumber(frame["lodger_event"]);
}
