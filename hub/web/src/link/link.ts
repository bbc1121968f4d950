import { signal } from "@preact/signals";
import { HubError, machine, type Machine } from "../hub/api";
import { asObject, asText, type Frame } from "../json";
import { session } from "../session";
import { waitMs } from "./backoff";

const REQUEST_LIMIT_MS = 30_000;
const OPEN_LIMIT_MS = 10_000;
const SETTLE_LIMIT_MS = 8_000;
/** Silence after which the link is probed, and how long an answer to the probe may take. */
const QUIET_MS = 25_000;
const PROBE_LIMIT_MS = 8_000;

export type LinkState =
  | { readonly kind: "connecting" }
  | { readonly kind: "open" }
  | { readonly kind: "hub_unreachable" }
  | { readonly kind: "machine_offline"; readonly machine: Machine };

/** The link broke, or the daemon said no. The message is for the person. */
export class LinkError extends Error {
  constructor(
    message: string,
    readonly refused: boolean,
  ) {
    super(message);
  }
}

interface Waiting {
  readonly expected: string;
  readonly take: (frame: Frame) => boolean;
  readonly fail: (error: Error) => void;
}

export interface LinkListener {
  /** Hears every frame that answers no request. */
  readonly frame?: (frame: Frame) => void;
  /** Called each time the socket has opened. */
  readonly opened?: () => void;
}

/** One machine's socket, kept open until `close`: it comes back by itself for as long as this device is paired. */
export class Link {
  readonly state = signal<LinkState>({ kind: "connecting" });

  private socket: WebSocket | null = null;
  private readonly waiting = new Map<string, Waiting>();
  private counter = 0;
  private failures = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private probe: ReturnType<typeof setInterval> | undefined;
  private heardAt = 0;
  private closed = false;
  private readonly listeners = new Set<LinkListener>();
  private readonly wake = (): void => this.hurry();

  constructor(readonly deviceId: string) {
    addEventListener("online", this.wake);
    document.addEventListener("visibilitychange", this.wake);
    this.dial();
  }

  close(): void {
    this.closed = true;
    removeEventListener("online", this.wake);
    document.removeEventListener("visibilitychange", this.wake);
    clearTimeout(this.timer);
    this.drop();
  }

  /** Until the function that is returned has been called. */
  listen(listener: LinkListener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Hang up and dial again at once. */
  restart(): void {
    this.drop();
    this.dial();
  }

  get isOpen(): boolean {
    return this.socket?.readyState === WebSocket.OPEN;
  }

  /** Wait for a link that is just being built; after that long a request fails with words of its own. */
  async settled(limitMs: number = SETTLE_LIMIT_MS): Promise<void> {
    if (this.isOpen) return;
    await new Promise<void>((resolve) => {
      const done = (): void => {
        clearTimeout(timer);
        unlisten();
        resolve();
      };
      const timer = setTimeout(done, limitMs);
      const unlisten = this.listen({ opened: done });
    });
  }

  async request(frame: Frame, limitMs: number = REQUEST_LIMIT_MS): Promise<Frame> {
    let found: Frame = {};
    await this.collect(frame, (answer) => {
      found = answer;
      return true;
    }, limitMs);
    if (found["success"] === false) throw new LinkError(asText(found["error"]) || "The machine said no.", true);
    return found;
  }

  /** A request that is answered in several frames, until `take` says that it was the last. */
  collect(frame: Frame, take: (answer: Frame) => boolean, limitMs: number = REQUEST_LIMIT_MS): Promise<void> {
    return new Promise((resolve, reject) => {
      const socket = this.socket;
      if (socket === null || socket.readyState !== WebSocket.OPEN) {
        reject(new LinkError("The machine cannot be reached at the moment.", false));
        return;
      }
      this.counter += 1;
      const id = `page-${this.counter}-${Math.random().toString(36).slice(2, 10)}`;
      const done = (): void => {
        clearTimeout(limit);
        this.waiting.delete(id);
      };
      const limit = setTimeout(() => {
        done();
        reject(new LinkError("The machine did not answer in time. Try again.", false));
      }, limitMs);
      this.waiting.set(id, {
        expected: frame["type"] === "input" ? "input_accepted" : `${asText(frame["type"])}_response`,
        take: (answer) => {
          if (!take(answer)) return false;
          done();
          resolve();
          return true;
        },
        fail: (error) => {
          done();
          reject(error);
        },
      });
      socket.send(JSON.stringify({ ...frame, request_id: id }));
    });
  }

  /** For commands that are not answered. */
  tell(frame: Frame): void {
    if (this.isOpen) this.socket?.send(JSON.stringify(frame));
  }

  private dial(): void {
    clearTimeout(this.timer);
    const token = session.value?.token;
    if (this.closed || !token) return;
    if (this.state.value.kind === "open") this.state.value = { kind: "connecting" };
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const url = `${scheme}//${location.host}/v1/environments/${encodeURIComponent(this.deviceId)}/status/ws`;
    const socket = new WebSocket(url, ["lodger.v1", `lodger.token.${token}`]);
    this.socket = socket;
    const slow = setTimeout(() => this.lost(socket), OPEN_LIMIT_MS);
    socket.onopen = () => {
      clearTimeout(slow);
      if (this.socket !== socket) return;
      this.failures = 0;
      this.heardAt = Date.now();
      this.state.value = { kind: "open" };
      this.watch(socket);
      for (const listener of [...this.listeners]) listener.opened?.();
    };
    socket.onmessage = (event) => {
      if (this.socket === socket) this.take(event.data);
    };
    socket.onclose = () => {
      clearTimeout(slow);
      this.lost(socket);
    };
  }

  private take(data: unknown): void {
    this.heardAt = Date.now();
    if (typeof data !== "string") return;
    let frame: Frame;
    try {
      frame = asObject(JSON.parse(data));
    } catch {
      return;
    }
    const waiting = this.waiting.get(asText(frame["request_id"]));
    if (waiting && frame["type"] === waiting.expected) waiting.take(frame);
    else for (const listener of [...this.listeners]) listener.frame?.(frame);
  }

  private lost(socket: WebSocket): void {
    if (this.socket !== socket) return;
    this.drop();
    if (this.closed) return;
    this.failures += 1;
    const attempt = this.failures;
    if (this.state.value.kind === "open") this.state.value = { kind: "connecting" };
    // A browser does not say why a socket was refused; the hub does, on its other door.
    void this.explain().finally(() => {
      if (this.closed || this.socket !== null || attempt !== this.failures) return;
      this.timer = setTimeout(() => this.dial(), waitMs(attempt));
    });
  }

  private async explain(): Promise<void> {
    try {
      const found = await machine(this.deviceId);
      this.state.value = found.connected ? { kind: "connecting" } : { kind: "machine_offline", machine: found };
    } catch (error) {
      if (error instanceof HubError && error.status > 0 && error.status < 500) return;
      this.state.value = { kind: "hub_unreachable" };
    }
  }

  private drop(): void {
    const socket = this.socket;
    this.socket = null;
    clearTimeout(this.timer);
    clearInterval(this.probe);
    for (const waiting of [...this.waiting.values()]) {
      waiting.fail(new LinkError("The connection broke off. It is being built again.", false));
    }
    socket?.close();
  }

  /** A phone that slept, or changed networks, should not wait for a timer. */
  private hurry(): void {
    if (this.closed || document.visibilityState === "hidden") return;
    if (this.isOpen) {
      if (this.socket && Date.now() - this.heardAt > 5_000) void this.check(this.socket);
    } else if (this.socket === null) {
      this.dial();
    }
  }

  private watch(socket: WebSocket): void {
    clearInterval(this.probe);
    this.probe = setInterval(() => {
      if (Date.now() - this.heardAt > QUIET_MS) void this.check(socket);
    }, QUIET_MS / 5);
  }

  private async check(socket: WebSocket): Promise<void> {
    try {
      await this.request({ type: "app_server_info" }, PROBE_LIMIT_MS);
    } catch {
      this.lost(socket);
    }
  }
}
