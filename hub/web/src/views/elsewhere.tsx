import type { JSX } from "preact";
import type { Place } from "../chat/place";
import type { Directory } from "../machine/directory";
import { paths } from "../route";

/** Questions of other conversations on this machine, each leading to where it waits. */
export function Elsewhere({ directory, place }: { directory: Directory; place: Place }): JSX.Element | null {
  const asking = directory.busy.value.filter(
    (one) => one.asks.length && (one.agentId !== place.agentId || one.conversationId !== place.conversationId),
  );
  if (!asking.length) return null;
  return (
    <ul class="elsewhere" aria-label="Questions in other conversations">
      {asking.map((one) => (
        <li key={`${one.agentId} ${one.conversationId}`}>
          <a href={paths.chat(place.machineId, one.agentId, one.conversationId)}>
            <span class="clip">
              {directory.agentName(one.agentId)} asks in “{directory.title(one.agentId, one.conversationId)}”
            </span>
            <span>Open</span>
          </a>
        </li>
      ))}
    </ul>
  );
}
