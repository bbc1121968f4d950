import type { ComponentChildren, JSX } from "preact";
import { useState } from "preact/hooks";
import { words } from "../link/words";
import { focusOn, rescueFocus } from "../ui/focus";
import { Trouble } from "../ui/parts";

/** The button that unfolds what can be done with something, and says of what. */
export function More(props: { id: string; what: string; open: boolean; onToggle: () => void }): JSX.Element {
  return (
    <button type="button" id={`more-${props.id}`} class="more quiet" aria-label={`More about ${props.what}`} aria-expanded={props.open} onClick={props.onToggle}>
      <svg viewBox="0 0 24 24" aria-hidden="true">
        <circle cx="5" cy="12" r="1.8" />
        <circle cx="12" cy="12" r="1.8" />
        <circle cx="19" cy="12" r="1.8" />
      </svg>
    </button>
  );
}

interface Removal {
  /** The button's word, such as "Delete". */
  readonly word: string;
  /** What will be gone and what stays, said before it is done. */
  readonly warning: string;
  readonly act: () => Promise<void>;
}

interface Props {
  readonly id: string;
  readonly what: string;
  readonly name: string;
  readonly limit: number;
  readonly onRename: (name: string) => Promise<void>;
  readonly archive?: { readonly word: string; readonly act: () => Promise<void> };
  readonly removal?: Removal;
  readonly onDone: () => void;
  readonly children?: ComponentChildren;
}

/** Rename, put away, delete. Each closes the panel when the machine has done it, and else says why not. */
export function Manage(props: Props): JSX.Element {
  const [name, setName] = useState(props.name);
  const [busy, setBusy] = useState(false);
  const [asking, setAsking] = useState(false);
  const [trouble, setTrouble] = useState("");
  const run = async (act: () => Promise<void>): Promise<void> => {
    setBusy(true);
    setTrouble("");
    try {
      await act();
      props.onDone();
      focusOn(`more-${props.id}`);
      rescueFocus();
    } catch (error) {
      setTrouble(words(error));
      setBusy(false);
    }
  };
  const removal = props.removal;
  return (
    <div class="manage" role="group" aria-label={`About ${props.what}`}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void run(() => props.onRename(name.trim()));
        }}
      >
        <label for={`name-${props.id}`}>Name</label>
        <div class="pair-row">
          <input id={`name-${props.id}`} value={name} maxLength={props.limit} onInput={(event) => setName(event.currentTarget.value)} />
          <button type="submit" disabled={busy || !name.trim() || name.trim() === props.name}>
            Rename
          </button>
        </div>
      </form>
      <Trouble text={trouble} />
      {asking && removal ? (
        <>
          <p class="soft">{removal.warning}</p>
          <div class="pair-row">
            <button type="button" class="danger" disabled={busy} onClick={() => void run(removal.act)}>
              Really {removal.word.toLowerCase()}
            </button>
            <button
              type="button"
              id={`keep-${props.id}`}
              class="quiet"
              onClick={() => {
                setAsking(false);
                focusOn(`remove-${props.id}`);
              }}
            >
              Keep it
            </button>
          </div>
        </>
      ) : (
        <div class="pair-row">
          {props.archive ? (
            <button type="button" disabled={busy} onClick={() => void run(props.archive!.act)}>
              {props.archive.word}
            </button>
          ) : null}
          {removal ? (
            <button
              type="button"
              id={`remove-${props.id}`}
              class="danger"
              disabled={busy}
              onClick={() => {
                setAsking(true);
                focusOn(`keep-${props.id}`);
              }}
            >
              {removal.word}
            </button>
          ) : null}
          {props.children}
        </div>
      )}
    </div>
  );
}
