import { signal } from "@preact/signals";

export type Route =
  | { readonly view: "machines" }
  | { readonly view: "settings" }
  | { readonly view: "machine"; readonly machineId: string }
  | { readonly view: "status"; readonly machineId: string }
  | { readonly view: "search"; readonly machineId: string }
  | { readonly view: "memory"; readonly machineId: string; readonly agentId: string }
  | { readonly view: "chat"; readonly machineId: string; readonly agentId: string; readonly conversationId: string };

const code = (part: string): string => encodeURIComponent(part);

export const paths = {
  machines: "#/",
  settings: "#/settings",
  machine: (machineId: string): string => `#/m/${code(machineId)}`,
  status: (machineId: string): string => `#/m/${code(machineId)}/status`,
  search: (machineId: string): string => `#/m/${code(machineId)}/search`,
  memory: (machineId: string, agentId: string): string => `#/m/${code(machineId)}/${code(agentId)}/memory`,
  chat: (machineId: string, agentId: string, conversationId: string): string =>
    `#/m/${code(machineId)}/${code(agentId)}/c/${code(conversationId)}`,
};

export function readRoute(hash: string): Route {
  let parts: string[];
  try {
    parts = hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  } catch {
    return { view: "machines" };
  }
  const [first = "", machineId = "", second = "", third = "", fourth = ""] = parts;
  if (first === "settings") return { view: "settings" };
  if (first !== "m" || !machineId) return { view: "machines" };
  if (!second) return { view: "machine", machineId };
  if (second === "status" && !third) return { view: "status", machineId };
  if (second === "search" && !third) return { view: "search", machineId };
  if (third === "memory") return { view: "memory", machineId, agentId: second };
  if (third === "c" && fourth) return { view: "chat", machineId, agentId: second, conversationId: fourth };
  return { view: "machine", machineId };
}

export const route = signal<Route>(readRoute(location.hash));
addEventListener("hashchange", () => {
  // The view for pairing takes the code itself; see `takePairingCode`.
  if (location.hash.startsWith("#pair=")) return;
  route.value = readRoute(location.hash);
});

export function go(path: string): void {
  location.hash = path;
}

/** The pairing code of a link, which is taken out of the address at once. */
export function takePairingCode(): string {
  const { hash } = location;
  if (!hash.startsWith("#pair=")) return "";
  history.replaceState(null, "", "/");
  route.value = { view: "machines" };
  // Not decoded as a whole: a lone % in somebody's link would end the page before it has begun.
  return /^#pair=([A-Za-z0-9 -]{1,64})$/.exec(hash.slice(0, 200).replaceAll("%20", " "))?.[1] ?? "";
}
