import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { endLinks } from "./link/links";
import { paths, type Route, route, takePairingCode } from "./route";
import { session } from "./session";
import { LiveRegions } from "./ui/parts";
import { wide } from "./ui/wide";
import { ChatView } from "./views/chat";
import { MachineView } from "./views/machine";
import { MachinesView } from "./views/machines";
import { MemoryView } from "./views/memory";
import { PairView } from "./views/pair";
import { SearchView } from "./views/search";
import { SettingsView } from "./views/settings";
import { Side } from "./views/side";
import { StatusView } from "./views/status";
import { Welcome } from "./views/welcome";

export function App(): JSX.Element {
  const paired = session.value !== null;
  useEffect(() => {
    if (!paired) endLinks();
  }, [paired]);
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => {
        event.preventDefault();
        document.getElementById("main")?.focus();
      }}>
        Skip to content
      </a>
      {paired ? <Inside /> : <PairView />}
      <LiveRegions />
    </>
  );
}

function Inside(): JSX.Element {
  const here = route.value;
  useEffect(() => {
    // A device that is paired already has no use for a code; it should not stay in the address all the same.
    takePairingCode();
    const again = (): void => void takePairingCode();
    addEventListener("hashchange", again);
    return () => removeEventListener("hashchange", again);
  }, []);
  useEffect(() => {
    if (here.view === "machines" || here.view === "settings") endLinks();
  }, [here.view]);
  // One shape for both widths: a tablet that is turned keeps its conversation and what was written.
  return (
    <div class={wide.value ? "beside" : "alone"}>
      {wide.value ? <Side /> : null}
      <View here={here} />
    </div>
  );
}

function View({ here }: { here: Route }): JSX.Element {
  switch (here.view) {
    case "machines":
      return wide.value ? <Welcome machineId="" /> : <MachinesView />;
    case "settings":
      return <SettingsView />;
    case "machine":
      return wide.value ? (
        <Welcome key={here.machineId} machineId={here.machineId} />
      ) : (
        <MachineView key={here.machineId} machineId={here.machineId} />
      );
    case "status":
      return <StatusView key={here.machineId} machineId={here.machineId} />;
    case "search":
      return <SearchView key={here.machineId} machineId={here.machineId} />;
    case "memory":
      return <MemoryView key={paths.memory(here.machineId, here.agentId)} machineId={here.machineId} agentId={here.agentId} />;
    case "chat":
      return <ChatView key={paths.chat(here.machineId, here.agentId, here.conversationId)} {...here} />;
  }
}
