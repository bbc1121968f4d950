import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { enterPort } from "../hub/api";
import { asText } from "../json";
import type { Link } from "../link/link";
import { words } from "../link/words";
import { type Port, portCommand, portWords } from "../machine/ports";
import { now } from "../ui/ages";
import { Trouble } from "../ui/parts";

/** What programs in boxes listen at, and the way there. */
export function PortList({ link, ports, changed }: { link: Link; ports: readonly Port[]; changed: () => void }): JSX.Element | null {
  const [trouble, setTrouble] = useState("");
  if (!ports.length) return null;
  const change = (type: "lodger_ports_open" | "lodger_ports_close", port: Port): void => {
    setTrouble("");
    link
      .request(portCommand(type, port))
      .then(changed)
      .catch((error: unknown) => setTrouble(words(error)));
  };
  const go = async (port: Port): Promise<void> => {
    setTrouble("");
    // While the click lasts, since browsers open nothing later on.
    const tab = window.open("about:blank");
    if (tab === null) {
      setTrouble("The browser did not let a new tab open. Allow it for this page, and try again.");
      return;
    }
    // What is shown there is the agent's: it must not be able to send this page elsewhere.
    tab.opener = null;
    try {
      const shared = await link.request(portCommand("lodger_ports_share", port));
      tab.location.replace(await enterPort(asText(shared["share"])));
    } catch (error) {
      tab.close();
      setTrouble(words(error));
    }
  };
  return (
    <section aria-labelledby="ports">
      <h2 id="ports">Ports</h2>
      <p class="soft">What an agent's programs listen at. Open, a port is reached from that machine, and by you through the hub.</p>
      <Trouble text={trouble} />
      <ul class="rows plain-rows">
        {ports.map((port) => (
          <li key={`${port.agentId} ${port.workspace} ${port.port}`}>
            <span class="clip">
              {port.port} in {port.workspace}
              <span class="soft">, {portWords(port, now.value)}</span>
            </span>
            {port.state === "open" ? (
              <>
                <button type="button" class="quiet" aria-label={`Go to port ${port.port}`} onClick={() => void go(port)}>
                  Go there
                </button>
                <button type="button" class="quiet" aria-label={`Close port ${port.port}`} onClick={() => change("lodger_ports_close", port)}>
                  Close
                </button>
              </>
            ) : (
              <button type="button" class="quiet" aria-label={`Open port ${port.port}`} onClick={() => change("lodger_ports_open", port)}>
                Open
              </button>
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}
