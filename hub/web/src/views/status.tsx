import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { asObject, type Frame } from "../json";
import { directoryOf, linkTo } from "../link/links";
import { words } from "../link/words";
import { readKnownPorts } from "../machine/ports";
import { statusLines } from "../machine/status";
import { paths } from "../route";
import { age } from "../ui/age";
import { now } from "../ui/ages";
import { LinkBanner } from "../ui/banner";
import { Head, Trouble } from "../ui/parts";
import { PortList } from "./ports";

interface Heard {
  readonly facts: Frame;
  readonly at: number;
}

/** A machine's own account of itself. */
export function StatusView({ machineId }: { machineId: string }): JSX.Element {
  const link = linkTo(machineId);
  const [heard, setHeard] = useState<Heard | null>(null);
  const [trouble, setTrouble] = useState("");
  const open = link.state.value.kind === "open";
  const directory = directoryOf(machineId);
  const title = (agentId: string, conversationId: string): string =>
    `${directory.title(agentId, conversationId)} (${directory.agentName(agentId)})`;
  const look = (): void => {
    link
      .request({ type: "lodger_status" })
      .then((answer) => {
        setHeard({ facts: asObject(answer["status"]), at: Date.now() });
        setTrouble("");
      })
      .catch((error: unknown) => setTrouble(words(error)));
  };
  useEffect(() => {
    document.title = "Status · Lodger";
  }, [link]);
  useEffect(() => {
    if (open) look();
  }, [open]);
  return (
    <div class="view">
      <Head title="Status" back={paths.machine(machineId)} backLabel="Conversations">
        <button type="button" class="quiet" disabled={!open} onClick={look}>
          Look again
        </button>
      </Head>
      <LinkBanner link={link} />
      <main id="main" tabIndex={-1}>
        <Trouble text={open ? trouble : ""} />
        {heard === null ? null : (
          <>
            <p class="soft">As of {age(now.value - heard.at)}.</p>
            <dl class="facts">
              {statusLines(heard.facts, now.value, title).map((line, place) => (
                <div key={place}>
                  <dt>{line.name}</dt>
                  <dd>{line.text}</dd>
                </div>
              ))}
            </dl>
            <PortList link={link} ports={readKnownPorts(heard.facts)} changed={look} />
          </>
        )}
      </main>
    </div>
  );
}
