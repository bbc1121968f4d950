import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { type Device, devices, revoke } from "../hub/api";
import { words } from "../link/words";
import { paths } from "../route";
import { end, session } from "../session";
import { since } from "../ui/ages";
import { allowNotifications, notifying } from "../ui/attention";
import { focusOn, rescueFocus } from "../ui/focus";
import { Head, Trouble } from "../ui/parts";

export function SettingsView(): JSX.Element {
  const [found, setFound] = useState<Device[]>([]);
  const [trouble, setTrouble] = useState("");
  const [asking, setAsking] = useState("");
  const ask = (what: string): void => {
    setAsking(what);
    focusOn("really");
  };
  const look = async (): Promise<void> => {
    try {
      setFound(await devices());
    } catch (error) {
      setTrouble(words(error));
    }
  };
  useEffect(() => {
    document.title = "Settings · Lodger";
    void look();
  }, []);
  const remove = async (device: Device): Promise<void> => {
    setTrouble("");
    try {
      await revoke(device.id);
      if (device.isCaller) end("This device is forgotten.");
      else await look();
    } catch (error) {
      setTrouble(words(error));
    }
    setAsking("");
    rescueFocus();
  };
  const forget = async (): Promise<void> => {
    const own = session.value?.deviceId;
    try {
      if (own) await revoke(own);
    } catch {
      // Without the hub it can still be forgotten here; the hub's list shows it until it is revoked there.
    }
    end("This device is forgotten.");
  };
  return (
    <div class="view">
      <Head title="Settings" back={paths.machines} backLabel="All machines" />
      <main id="main" tabIndex={-1}>
        <Trouble text={trouble} />
        <section aria-labelledby="notifications">
          <h2 id="notifications">Notifications</h2>
          <label class="check">
            <input
              type="checkbox"
              checked={notifying.value}
              onChange={(event) => void allowNotifications(event.currentTarget.checked).then(setTrouble)}
            />
            Tell me about answers and questions while this page is open in the background
          </label>
        </section>
        <section aria-labelledby="devices">
          <h2 id="devices">Devices</h2>
          <p class="soft">To add one, run <code>lodger pair</code> on the hub's machine and open the link it shows.</p>
          <ul class="rows plain-rows">
            {found
              .filter((device) => !device.isOwn)
              .map((device) => (
                <li key={device.id}>
                  <span class="clip">
                    {device.name}
                    {device.isCaller ? " (this one)" : ""}
                    <span class="soft">, seen {device.lastSeenAt === null ? "never" : since(device.lastSeenAt)}</span>
                  </span>
                  {device.isCaller ? null : asking === device.id ? (
                    <button type="button" id="really" class="danger small" onClick={() => void remove(device)}>
                      Really remove
                    </button>
                  ) : (
                    <button type="button" class="quiet small" aria-label={`Remove ${device.name}`} onClick={() => ask(device.id)}>
                      Remove
                    </button>
                  )}
                </li>
              ))}
          </ul>
        </section>
        <section aria-labelledby="own">
          <h2 id="own">This device</h2>
          <p class="soft">Paired as {session.value?.name}. Forgetting it removes its key and drafts from this browser.</p>
          {asking === "own" ? (
            <button type="button" id="really" class="danger" onClick={() => void forget()}>
              Really forget this device
            </button>
          ) : (
            <button type="button" onClick={() => ask("own")}>
              Forget this device
            </button>
          )}
        </section>
      </main>
    </div>
  );
}
