import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { linkTo } from "../link/links";
import { LinkBanner } from "../ui/banner";
import { Head } from "../ui/parts";

/** On a wide screen, before a conversation has been chosen: the list beside it is where to look. */
export function Welcome({ machineId }: { machineId: string }): JSX.Element {
  useEffect(() => {
    document.title = "Lodger";
  }, []);
  return (
    <div class="view">
      <Head title={machineId ? "Agents" : "Machines"} />
      {machineId ? <LinkBanner link={linkTo(machineId)} /> : null}
      <main id="main" tabIndex={-1}>
        <p class="soft">{machineId ? "Choose a conversation." : "Choose a machine."}</p>
      </main>
    </div>
  );
}
