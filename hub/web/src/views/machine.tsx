import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { directoryOf, linkTo } from "../link/links";
import { paths } from "../route";
import { LinkBanner } from "../ui/banner";
import { Head, Trouble } from "../ui/parts";
import { AgentList } from "./agents";

export function MachineView({ machineId }: { machineId: string }): JSX.Element {
  const link = linkTo(machineId);
  const directory = directoryOf(machineId);
  const open = link.state.value.kind === "open";
  const trouble = directory.trouble.value;
  useEffect(() => {
    document.title = "Agents · Lodger";
    if (link.isOpen) directory.lookAround();
  }, [directory]);
  return (
    <div class="view">
      <Head title="Agents" back={paths.machines} backLabel="All machines">
        <a class="button quiet" href={paths.search(machineId)}>
          Search
        </a>
        <a class="button quiet" href={paths.status(machineId)}>
          Status
        </a>
      </Head>
      <LinkBanner link={link} />
      <main id="main" tabIndex={-1}>
        <Trouble text={open ? trouble : ""} />
        {directory.agents.value === null && open && !trouble ? <p class="soft">Looking…</p> : null}
        <AgentList machineId={machineId} directory={directory} />
      </main>
    </div>
  );
}
