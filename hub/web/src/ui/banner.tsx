import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Link } from "../link/link";
import { aged } from "./ages";

/** A connection that comes back within this time was never worth a word. */
const PATIENCE_MS = 700;

/** What is wrong with the way to the machine, and what follows from it. Nothing while all is well. */
export function LinkBanner({ link, mails = false }: { link: Link; mails?: boolean }): JSX.Element | null {
  const state = link.state.value;
  const [patient, setPatient] = useState(true);
  useEffect(() => {
    setPatient(true);
    const timer = setTimeout(() => setPatient(false), PATIENCE_MS);
    return () => clearTimeout(timer);
  }, [state.kind]);
  if (state.kind === "open" || (state.kind === "connecting" && patient)) return null;
  let text: string;
  switch (state.kind) {
    case "connecting":
      text = "Connecting…";
      break;
    case "hub_unreachable":
      text = navigator.onLine
        ? "The hub does not answer. What you write is kept here and sent when it is back."
        : "This device is offline. What you write is kept here and sent when it is back.";
      break;
    case "machine_offline": {
      const { machine } = state;
      text = `${machine.name} is not connected, last heard ${aged(machine.lastContactAgeMs, machine.heardAt)}.`;
      if (mails) text += " Messages wait at the hub until it wakes.";
      break;
    }
  }
  return (
    <div class="banner" role="status">
      {text}
    </div>
  );
}
