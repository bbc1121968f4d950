import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { type Machine, machines } from "../hub/api";
import { words } from "../chat/conversation";
import { paths } from "../route";
import { aged } from "../ui/ages";
import { Head, Light, Trouble } from "../ui/parts";

const EVERY_MS = 5_000;

export function MachinesView(): JSX.Element {
  const [found, setFound] = useState<Machine[] | null>(null);
  const [trouble, setTrouble] = useState("");
  useEffect(() => {
    document.title = "Machines · Lodger";
    let live = true;
    const look = async (): Promise<void> => {
      if (document.visibilityState === "hidden") return;
      try {
        const listed = await machines();
        if (live) {
          setFound(listed);
          setTrouble("");
        }
      } catch (error) {
        if (live) setTrouble(words(error));
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
  return (
    <div class="view">
      <Head title="Machines">
        <a class="button quiet" href={paths.settings}>
          Settings
        </a>
      </Head>
      <main id="main" tabIndex={-1}>
        <Trouble text={trouble} />
        {found === null ? (
          trouble ? null : <p class="soft">Looking…</p>
        ) : found.length === 0 ? (
          <p class="soft">No machine has come to this hub yet. Run <code>lodger up</code> on one.</p>
        ) : (
          <ul class="cards">
            {found.map((machine) => (
              <li key={machine.deviceId}>
                <a class="card" href={paths.machine(machine.deviceId)}>
                  <span class="card-title">
                    <Light on={machine.connected && !trouble} />
                    {machine.name}
                  </span>
                  <span class="soft">{presence(machine, trouble !== "")}</span>
                  <span class="soft">Memory synced {aged(machine.lastSyncAgeMs, machine.heardAt)}</span>
                </a>
              </li>
            ))}
          </ul>
        )}
      </main>
    </div>
  );
}

export function presence(machine: Machine, stale: boolean): string {
  const heard = `last heard ${aged(machine.lastContactAgeMs, machine.heardAt)}`;
  if (stale) return `Unknown: the hub does not answer; ${heard}`;
  return machine.connected ? `Connected, ${heard}` : `Not connected, ${heard}`;
}
