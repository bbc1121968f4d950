import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { directoryOf, linkTo } from "../link/links";
import { words } from "../link/words";
import { type Found, searchHistory, speaker } from "../machine/search";
import { paths } from "../route";
import { since } from "../ui/ages";
import { LinkBanner } from "../ui/banner";
import { Head, Trouble } from "../ui/parts";

/** As the machine limits a query. */
const QUERY_CHARS = 1000;

/** Everything that was said on a machine, by its words. */
export function SearchView({ machineId }: { machineId: string }): JSX.Element {
  const link = linkTo(machineId);
  const directory = directoryOf(machineId);
  const [query, setQuery] = useState("");
  const [asked, setAsked] = useState("");
  const [found, setFound] = useState<readonly Found[] | null>(null);
  const [before, setBefore] = useState<number | null>(null);
  const [busy, setBusy] = useState(false);
  const [trouble, setTrouble] = useState("");
  const round = useRef(0);
  const open = link.state.value.kind === "open";
  useEffect(() => {
    document.title = "Search · Lodger";
    if (link.isOpen) directory.lookAround();
  }, [directory]);

  const look = async (wanted: string, from: number | null): Promise<void> => {
    round.current += 1;
    const mine = round.current;
    setBusy(true);
    setTrouble("");
    try {
      const page = await searchHistory(link, wanted, from);
      if (mine !== round.current) return;
      setAsked(wanted);
      setFound((earlier) => (from === null ? page.found : [...(earlier ?? []), ...page.found]));
      setBefore(page.before);
    } catch (error) {
      if (mine !== round.current) return;
      setTrouble(words(error));
    }
    setBusy(false);
  };

  return (
    <div class="view">
      <Head title="Search" back={paths.machine(machineId)} backLabel="Conversations" />
      <LinkBanner link={link} />
      <main id="main" tabIndex={-1}>
        <form
          role="search"
          onSubmit={(event) => {
            event.preventDefault();
            void look(query.trim(), null);
          }}
        >
          <label for="query">Words that were said</label>
          <div class="pair-row">
            <input id="query" type="search" value={query} maxLength={QUERY_CHARS} onInput={(event) => setQuery(event.currentTarget.value)} />
            <button type="submit" class="main" disabled={!open || busy || !query.trim()}>
              Find
            </button>
          </div>
        </form>
        <Trouble text={trouble} />
        <p class="soft" role="status">
          {busy ? "Looking…" : found?.length === 0 ? `Nothing was said with “${asked}” in it.` : ""}
        </p>
        <ul class="rows">
          {found?.map((one) => (
            <li key={one.messageId}>
              <Hit found={one} machineId={machineId} name={directory.agentName(one.agentId)} title={directory.title(one.agentId, one.conversationId)} />
            </li>
          ))}
        </ul>
        {before === null ? null : (
          <button type="button" class="wide" disabled={!open || busy} onClick={() => void look(asked, before)}>
            Show earlier ones
          </button>
        )}
      </main>
    </div>
  );
}

function Hit({ found, machineId, name, title }: { found: Found; machineId: string; name: string; title: string }): JSX.Element {
  return (
    <a class="hit" href={paths.chat(machineId, found.agentId, found.conversationId)}>
      <span class="soft">
        {speaker(found, name)} in {title}
        {found.at === null ? "" : `, ${since(found.at)}`}
      </span>
      <span class="snippet">{found.snippet}</span>
    </a>
  );
}
