import { asList, asNumber, asObject, asText, type Frame, type Json } from "../json";
import { end, REVOKED, session } from "../session";

const LIMIT_MS = 15_000;

/** The hub could not be reached, or said no. The message is for the person. */
export class HubError extends Error {
  constructor(
    message: string,
    /** The HTTP status; 0 when nothing was heard. */
    readonly status: number,
  ) {
    super(message);
  }
}

export interface Machine {
  readonly deviceId: string;
  readonly name: string;
  readonly connected: boolean;
  readonly lastContactAgeMs: number | null;
  readonly lastSyncAgeMs: number | null;
  /** When the ages were true, on this device's clock. */
  readonly heardAt: number;
}

export interface Device {
  readonly id: string;
  readonly name: string;
  readonly role: string;
  readonly lastSeenAt: number | null;
  readonly isOwn: boolean;
  readonly isCaller: boolean;
}

/** Paths only: whatever the address bar says, a request goes to the page's own origin. */
async function call(method: string, path: string, body?: Json): Promise<Frame> {
  const headers: Record<string, string> = {};
  const token = session.value?.token;
  if (token) headers["Authorization"] = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      headers,
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(LIMIT_MS),
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
    });
  } catch {
    throw new HubError("The hub does not answer. Check that this device is online and that the hub runs.", 0);
  }
  const answer = asObject(await response.json().catch(() => null));
  if (response.ok) return answer;
  if (response.status === 401 && token && token === session.value?.token) end(REVOKED);
  throw new HubError(asText(answer["message"]) || `The hub answered ${response.status}.`, response.status);
}

export async function pair(code: string, name: string): Promise<{ token: string; deviceId: string; name: string }> {
  const made = await call("POST", "/v1/pair", { code, name });
  return { token: asText(made["token"]), deviceId: asText(made["device_id"]), name: asText(made["name"]) };
}

function readMachine(value: Json): Machine {
  const found = asObject(value);
  const lodger = asObject(found["lodger"]);
  return {
    deviceId: asText(found["deviceId"]),
    name: asText(found["connectionName"]) || "a machine",
    connected: lodger["connected"] === true,
    lastContactAgeMs: asNumber(lodger["lastContactAgeMs"]),
    lastSyncAgeMs: asNumber(lodger["lastMemorySyncAgeMs"]),
    heardAt: Date.now(),
  };
}

export async function machines(): Promise<Machine[]> {
  return asList((await call("GET", "/v1/environments?limit=200"))["connections"]).map(readMachine);
}

export async function machine(deviceId: string): Promise<Machine> {
  return readMachine(await call("GET", `/v1/environments/${encodeURIComponent(deviceId)}`));
}

export async function devices(): Promise<Device[]> {
  return asList((await call("GET", "/v1/devices"))["devices"]).map((value) => {
    const found = asObject(value);
    return {
      id: asText(found["id"]),
      name: asText(found["name"]),
      role: asText(found["role"]),
      lastSeenAt: asNumber(found["last_seen_at"]),
      isOwn: found["is_own"] === true,
      isCaller: found["is_caller"] === true,
    };
  });
}

export async function revoke(deviceId: string): Promise<void> {
  await call("DELETE", `/v1/devices/${encodeURIComponent(deviceId)}`);
}

/** Where this browser gets into a shared port: once, and soon. On the page's own host, at a port of its own. */
export async function enterPort(share: string): Promise<string> {
  const entry = await call("POST", `/v1/ports/${encodeURIComponent(share)}/entries`);
  const port = asNumber(entry["port"]);
  const path = asText(entry["path"]);
  if (port === null || !path.startsWith("/")) throw new HubError("The hub's answer makes no sense.", 0);
  return `${location.protocol}//${location.hostname}:${port}${path}`;
}

/** What has become of a message at the hub, and why when it was not delivered. */
export interface Sent {
  readonly state: "waiting" | "delivered" | "refused" | "expired";
  readonly reason: string;
}

const STATES = ["waiting", "delivered", "refused", "expired"] as const;

function readSent(found: Frame): Sent {
  const state = STATES.find((one) => one === found["state"]) ?? "waiting";
  return { state, reason: asText(found["reason"]) };
}

/** Leave a message for a machine that is not connected. One that was left before, by its id, is not left again. */
export async function mail(deviceId: string, frame: Frame): Promise<Sent> {
  return readSent(await call("POST", `/v1/machines/${encodeURIComponent(deviceId)}/mailbox`, frame));
}

export async function takeMailBack(deviceId: string, messageId: string): Promise<void> {
  const path = `/v1/machines/${encodeURIComponent(deviceId)}/mailbox/${encodeURIComponent(messageId)}`;
  await call("DELETE", path);
}

/** What this device left at the hub for a machine, by the messages' ids. */
export async function sentMail(deviceId: string): Promise<Map<string, Sent>> {
  const found = asList((await call("GET", `/v1/machines/${encodeURIComponent(deviceId)}/mailbox`))["messages"]);
  return new Map(found.map(asObject).map((one) => [asText(one["client_message_id"]), readSent(one)]));
}
