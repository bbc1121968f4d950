import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { HubError, pair } from "../hub/api";
import { takePairingCode } from "../route";
import { begin, farewell } from "../session";
import { Trouble } from "../ui/parts";

/** As browsers call themselves, the rarer names first: most call themselves Chrome or Safari too. */
const BROWSERS = [
  ["FxiOS", "Firefox"],
  ["Firefox", "Firefox"],
  ["Edg", "Edge"],
  ["OPR", "Opera"],
  ["SamsungBrowser", "Samsung Internet"],
  ["CriOS", "Chrome"],
  ["Chrome", "Chrome"],
  ["Safari", "Safari"],
] as const;

/** Such as "Firefox on Android": a person has several browsers, and revokes one of them by its name. */
function ownName(): string {
  const agent = navigator.userAgent;
  const system = /iPhone|iPad|Android|Windows|Macintosh|Linux/.exec(agent)?.[0].replace("Macintosh", "Mac") ?? "";
  const browser = BROWSERS.find(([word]) => agent.includes(word))?.[1] ?? "Browser";
  return system ? `${browser} on ${system}` : browser;
}

export function PairView(): JSX.Element {
  const [code, setCode] = useState(takePairingCode);
  const [name, setName] = useState(ownName);
  const [busy, setBusy] = useState(false);
  const [trouble, setTrouble] = useState("");
  const arrived = code !== "";

  useEffect(() => {
    document.title = "Pair · Lodger";
    const again = (): void => {
      const found = takePairingCode();
      if (found) setCode(found);
    };
    addEventListener("hashchange", again);
    return () => removeEventListener("hashchange", again);
  }, []);

  const submit = async (): Promise<void> => {
    setBusy(true);
    setTrouble("");
    try {
      begin(await pair(code, name));
    } catch (error) {
      setTrouble(error instanceof HubError ? error.message : "Pairing did not work. Try again.");
      setBusy(false);
    }
  };

  return (
    <main id="main" class="pair" tabIndex={-1}>
      <img src="/icon.svg" alt="" width="64" height="64" />
      <h1>Lodger</h1>
      <p class="lead">
        {farewell.value ? `${farewell.value} ` : ""}
        To pair it, run <code>lodger pair</code> on the hub's machine and enter the code it shows.
      </p>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void submit();
        }}
      >
        <label for="code">Pairing code</label>
        <input
          id="code"
          name="code"
          value={code}
          onInput={(event) => setCode(event.currentTarget.value)}
          autocomplete="one-time-code"
          autocapitalize="characters"
          spellcheck={false}
          placeholder="ABCD-1234"
          required
          maxLength={64}
          autofocus={!arrived}
        />
        <label for="name">This device's name</label>
        <input id="name" name="name" value={name} onInput={(event) => setName(event.currentTarget.value)} required maxLength={64} />
        <Trouble text={trouble} />
        <button type="submit" class="main" disabled={busy}>
          {busy ? "Pairing…" : "Pair this device"}
        </button>
      </form>
    </main>
  );
}
