import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { lettersWords, presence, useMachines } from "../machine/machines";
import { paths } from "../route";
import { aged } from "../ui/ages";
import { Head, Light, Trouble } from "../ui/parts";

export function MachinesView(): JSX.Element {
  const { found, trouble } = useMachines();
  useEffect(() => {
    document.title = "Machines · Lodger";
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
          <NoMachine />
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
                  {machine.letters ? <span class="badge">{lettersWords(machine)}</span> : null}
                </a>
              </li>
            ))}
          </ul>
        )}
      </main>
    </div>
  );
}

export function NoMachine(): JSX.Element {
  return (
    <p class="soft">
      No machine has come to this hub yet. Run <code>lodger up</code> on one.
    </p>
  );
}
