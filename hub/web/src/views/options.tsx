import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Conversation } from "../chat/conversation";
import { asList, asObject, asText } from "../json";
import type { Link } from "../link/link";
import { words } from "../link/words";
import { Trouble } from "../ui/parts";

const MODES: readonly (readonly [string, string])[] = [
  ["standard", "Standard: what stays in the box runs, the rest asks"],
  ["acceptEdits", "Accept edits: changes to files need no question"],
  ["strict", "Strict: every command and every change asks"],
  ["unrestricted", "Unrestricted: nothing asks"],
];

interface Model {
  readonly handle: string;
  readonly label: string;
}

/** A conversation's mode, model and folder. */
export function Options({ chat, link, onClose }: { chat: Conversation; link: Link; onClose: () => void }): JSX.Element {
  const [models, setModels] = useState<readonly Model[]>([]);
  const [trouble, setTrouble] = useState("");
  const [folder, setFolder] = useState(chat.folder.value);
  const [compacting, setCompacting] = useState(false);
  const open = link.state.value.kind === "open";
  useEffect(() => setFolder(chat.folder.value), [chat.folder.value]);
  useEffect(() => {
    if (!open) return;
    link
      .request({ type: "list_models" })
      .then((answer) => setModels(asList(answer["entries"]).map(asObject).map((one) => ({ handle: asText(one["handle"]), label: asText(one["label"]) }))))
      .catch((error: unknown) => setTrouble(words(error)));
  }, [open]);
  const known = models.some((model) => model.handle === chat.model.value);
  return (
    <section id="options" class="options" aria-label="Options of this conversation">
      <label for="mode">What needs a question</label>
      <select id="mode" value={chat.mode.value} disabled={!open} onChange={(event) => chat.setMode(event.currentTarget.value)}>
        {MODES.map(([mode, label]) => (
          <option key={mode} value={mode}>
            {label}
          </option>
        ))}
      </select>
      <label for="model">Model</label>
      <select id="model" value={chat.model.value} disabled={!open} onChange={(event) => void chat.setModel(event.currentTarget.value)}>
        {known ? null : <option value={chat.model.value}>{chat.model.value || "…"}</option>}
        {models.map((model) => (
          <option key={model.handle} value={model.handle}>
            {model.handle}
          </option>
        ))}
      </select>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          chat.setFolder(folder);
        }}
      >
        <label for="folder">Folder on the machine</label>
        <div class="pair-row">
          <input id="folder" value={folder} disabled={!open} spellcheck={false} autocapitalize="off" onInput={(event) => setFolder(event.currentTarget.value)} />
          <button type="submit" disabled={!open || folder === chat.folder.value}>
            Change
          </button>
        </div>
      </form>
      <Trouble text={trouble} />
      <div class="pair-row">
        <button
          type="button"
          disabled={!open || compacting}
          onClick={() => {
            setCompacting(true);
            void chat.compact().finally(() => setCompacting(false));
          }}
        >
          {compacting ? "Condensing…" : "Condense conversation"}
        </button>
        <button type="button" class="quiet" onClick={onClose}>
          Close
        </button>
      </div>
    </section>
  );
}
