import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { words } from "../chat/conversation";
import { asList, asNumber, asObject, asText, type Frame } from "../json";
import { linkTo } from "../link/links";
import { paths } from "../route";
import { age, now } from "../ui/ages";
import { LinkBanner } from "../ui/banner";
import { Head, Trouble } from "../ui/parts";

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
    link.onFrame = () => {};
    link.onOpen = () => {};
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
              {lines(heard.facts).map(([name, text]) => (
                <div key={name}>
                  <dt>{name}</dt>
                  <dd>{text}</dd>
                </div>
              ))}
            </dl>
          </>
        )}
      </main>
    </div>
  );
}

function lines(facts: Frame): [string, string][] {
  const machine = asObject(facts["machine"]);
  const uplink = asObject(facts["uplink"]);
  const model = asObject(facts["model"]);
  const sandbox = asObject(facts["sandbox"]);
  const agents = asList(facts["agents"]).map(asObject);
  return [
    ["Machine", `${asText(machine["name"])}, Lodger ${asText(machine["version"])}, started ${instant(machine["started_at"])}`],
    ["Hub", `${asText(uplink["state"])}, last heard ${instant(uplink["last_contact"])}`],
    ["Model", `${asText(model["default"])}${model["practice"] === true ? " (practice model: offline, rule-based)" : ""}`],
    ["Sandbox", `${asText(sandbox["summary"])} (checked ${instant(sandbox["at"])})`],
    ["Boxes", `${asList(facts["boxes"]).length} running`],
    ["Questions", `${asNumber(asObject(facts["questions"])["pending"]) ?? 0} waiting for an answer`],
    ["Disk", asText(asObject(facts["disk"])["summary"])],
    ...agents.map((agent): [string, string] => {
      const memory = asObject(agent["memory"]);
      const detail = asText(memory["detail"]);
      return [
        `Agent ${asText(agent["name"])}`,
        `${asText(agent["model"])}${agent["model_served"] === false ? " (nobody serves it here)" : ""}; memory ${asText(memory["outcome"])}, ` +
          `${asNumber(memory["ahead"]) ?? 0} unsynced, ${instant(memory["at"])}${detail ? `: ${detail}` : ""}`,
      ];
    }),
  ];
}

/** Of the machine's clock, in seconds. */
function instant(value: Frame[string] | undefined): string {
  const seconds = asNumber(value);
  return seconds === null ? "never" : age(now.value - seconds * 1000);
}
