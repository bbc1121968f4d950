import { asList, asNumber, asObject, asText, type Frame } from "../json";
import { age } from "../ui/age";

/** A port that a program in a box of a machine listens at. */
export interface Port {
  readonly port: number;
  readonly state: "seen" | "offered" | "open" | "denied";
  /** Of the machine's clock, in seconds. */
  readonly since: number;
  readonly listens: boolean;
  readonly agentId: string;
  readonly workspace: string;
  readonly connections: number;
}

const STATES = ["seen", "offered", "open", "denied"] as const;

/** What a status says of ports; nothing from a machine that does not tell of any. */
export function readKnownPorts(facts: Frame): Port[] {
  return asList(facts["ports"])
    .map(asObject)
    .map((found) => ({
      port: asNumber(found["port"]) ?? 0,
      state: STATES.find((one) => one === found["state"]) ?? "seen",
      since: asNumber(found["since"]) ?? 0,
      listens: found["listens"] !== false,
      agentId: asText(found["agent_id"]),
      workspace: asText(found["workspace"]),
      connections: asNumber(found["connections"]) ?? 0,
    }));
}

export function portWords(port: Port, now: number): string {
  const ago = age(now - port.since * 1000);
  if (port.state === "open") {
    const gone = port.listens ? "" : ", but nothing listens there now";
    return `opened ${ago}, ${port.connections} connected on that machine${gone}`;
  }
  return port.state === "denied" ? `closed ${ago}` : `found ${ago}`;
}

/** The command about one port. */
export function portCommand(type: "lodger_ports_open" | "lodger_ports_close" | "lodger_ports_share", port: Port): Frame {
  return { type, port: port.port, workspace: port.workspace, agent_id: port.agentId };
}
