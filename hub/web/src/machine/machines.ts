import { useEffect, useState } from "preact/hooks";
import { type Machine, machines, sentMail } from "../hub/api";
import { words } from "../link/words";
import { aged } from "../ui/ages";

const EVERY_MS = 5_000;

export interface Seen extends Machine {
  /** Messages of this device that wait at the hub for the machine to wake. */
  readonly letters: number;
}

export interface Machines {
  /** Null until the hub has answered for the first time. */
  readonly found: readonly Seen[] | null;
  readonly trouble: string;
}

/** The hub's machines, asked for again while somebody looks. */
export function useMachines(): Machines {
  const [seen, setSeen] = useState<Machines>({ found: null, trouble: "" });
  useEffect(() => {
    let live = true;
    const look = async (): Promise<void> => {
      if (document.visibilityState === "hidden") return;
      try {
        const found = await Promise.all((await machines()).map(withLetters));
        if (live) setSeen({ found, trouble: "" });
      } catch (error) {
        if (live) setSeen((before) => ({ found: before.found, trouble: words(error) }));
      }
    };
    void look();
    const timer = setInterval(() => void look(), EVERY_MS);
    const again = (): void => void look();
    document.addEventListener("visibilitychange", again);
    return () => {
      live = false;
      clearInterval(timer);
      document.removeEventListener("visibilitychange", again);
    };
  }, []);
  return seen;
}

async function withLetters(machine: Machine): Promise<Seen> {
  if (machine.connected) return { ...machine, letters: 0 };
  const letters = await sentMail(machine.deviceId).catch(() => new Map());
  return { ...machine, letters: [...letters.values()].filter((one) => one.state === "waiting").length };
}

export function presence(machine: Machine, stale: boolean): string {
  const heard = `last heard ${aged(machine.lastContactAgeMs, machine.heardAt)}`;
  if (stale) return `Unknown: the hub does not answer; ${heard}`;
  return machine.connected ? `Connected, ${heard}` : `Not connected, ${heard}`;
}

export function lettersWords(machine: Seen): string {
  if (!machine.letters) return "";
  return machine.letters === 1 ? "A message waits for it to wake" : `${machine.letters} messages wait for it to wake`;
}
