import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { Link } from "../link/link";
import { words } from "../link/words";
import { exportToFile, type Wanted } from "../machine/export";
import { Trouble } from "./parts";

/** A button that brings what was said as a file to this device. */
export function ExportButton({ link, wanted, name }: { link: Link; wanted: Wanted; name: string }): JSX.Element {
  const [busy, setBusy] = useState(false);
  const [trouble, setTrouble] = useState("");
  const fetchIt = async (): Promise<void> => {
    setBusy(true);
    setTrouble("");
    try {
      await exportToFile(link, wanted, name);
    } catch (error) {
      setTrouble(words(error));
    }
    setBusy(false);
  };
  return (
    <>
      <button type="button" disabled={busy || link.state.value.kind !== "open"} aria-label={`Export ${name}`} onClick={() => void fetchIt()}>
        {busy ? "Exporting…" : "Export"}
      </button>
      <Trouble text={trouble} />
    </>
  );
}
