import type { JSX } from "preact";
import { directoryOf, linkTo } from "../link/links";
import { lettersWords, presence, useMachines } from "../machine/machines";
import { paths, route } from "../route";
import { aged } from "../ui/ages";
import { Light, Trouble } from "../ui/parts";
import { AgentList } from "./agents";
import { NoMachine } from "./machines";

/** On a wide screen: the machines, and what lives on the one that is looked at, beside everything else. */
export function Side(): JSX.Element {
  const { found, trouble } = useMachines();
  const here = route.value;
  const current = "machineId" in here ? here.machineId : "";
  return (
    <nav class="side" aria-label="Machines and conversations">
      <div class="side-head">
        <a class="wordmark" href={paths.machines}>
          Lodger
        </a>
        <a class="button quiet" href={paths.settings} aria-current={here.view === "settings" ? "page" : undefined}>
          Settings
        </a>
      </div>
      <Trouble text={trouble} />
      {found?.length === 0 ? <NoMachine /> : null}
      <ul class="side-machines">
        {found?.map((machine) => (
          <li key={machine.deviceId}>
            <div class="row">
              <a
                class="side-machine"
                href={paths.machine(machine.deviceId)}
                aria-current={machine.deviceId === current ? "true" : undefined}
              >
                <Light on={machine.connected && !trouble} />
                <span class="clip">{machine.name}</span>
              </a>
              {machine.deviceId === current ? (
                <>
                  <a class="button quiet" href={paths.search(machine.deviceId)} aria-current={here.view === "search" ? "page" : undefined}>
                    Search
                  </a>
                  <a class="button quiet" href={paths.status(machine.deviceId)} aria-current={here.view === "status" ? "page" : undefined}>
                    Status
                  </a>
                </>
              ) : null}
            </div>
            <p class="soft side-facts">
              {presence(machine, trouble !== "")}
              {machine.deviceId === current ? `. Memory synced ${aged(machine.lastSyncAgeMs, machine.heardAt)}.` : ""}
            </p>
            {machine.letters ? <p class="soft side-facts">{lettersWords(machine)}</p> : null}
            {machine.deviceId === current ? <Inhabitants machineId={current} /> : null}
          </li>
        ))}
      </ul>
    </nav>
  );
}

function Inhabitants({ machineId }: { machineId: string }): JSX.Element {
  const directory = directoryOf(machineId);
  const open = linkTo(machineId).state.value.kind === "open";
  return (
    <div class="inhabitants">
      <Trouble text={open ? directory.trouble.value : ""} />
      <AgentList machineId={machineId} directory={directory} />
    </div>
  );
}
