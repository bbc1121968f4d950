import { signal } from "@preact/signals";
import { forgetAll, keep, kept } from "./kept";

export interface Session {
  readonly token: string;
  readonly deviceId: string;
  readonly name: string;
}

function read(): Session | null {
  const token = kept("token");
  return token ? { token, deviceId: kept("device"), name: kept("name") } : null;
}

/** Who this browser is to the hub; null until it is paired. The token goes to the page's own origin only. */
export const session = signal<Session | null>(read());

/** Why the page asks to be paired again; empty the first time. */
export const farewell = signal("");

export function begin(made: Session): void {
  keep("token", made.token);
  keep("device", made.deviceId);
  keep("name", made.name);
  farewell.value = "";
  session.value = made;
}

export function end(reason: string): void {
  forgetAll();
  farewell.value = reason;
  session.value = null;
}

export const REVOKED = "This device is no longer paired.";
