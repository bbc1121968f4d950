import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Conversation } from "../chat/conversation";
import type { Picture } from "../chat/items";
import { keep, kept } from "../kept";
import { pictureFrom } from "../ui/pictures";
import { Trouble } from "../ui/parts";

const PICTURES = 6;
const TALLEST_PX = 180;

interface Props {
  readonly chat: Conversation;
  /** The text of a message that was taken back, to be written anew. */
  readonly rewritten: string | null;
  readonly onTaken: () => void;
}

export function Composer({ chat, rewritten, onTaken }: Props): JSX.Element {
  const { machineId, agentId, conversationId } = chat.place;
  const draft = `draft.${machineId}.${agentId}.${conversationId}`;
  const [text, setShown] = useState(() => kept(draft));
  const [pictures, setPictures] = useState<readonly Picture[]>([]);
  const [trouble, setTrouble] = useState("");
  const field = useRef<HTMLTextAreaElement>(null);
  // Kept at once: a page may be closed at any moment.
  const setText = (next: string): void => {
    keep(draft, next);
    setShown(next);
  };
  const busy = chat.status.value !== "WAITING_ON_INPUT";

  useEffect(() => {
    if (rewritten === null) return;
    setText(text.trim() ? `${rewritten}\n${text}` : rewritten);
    field.current?.focus();
    onTaken();
  }, [rewritten]);
  useLayoutEffect(() => {
    const element = field.current;
    if (!element) return;
    element.style.height = "auto";
    element.style.height = `${Math.min(TALLEST_PX, element.scrollHeight)}px`;
  }, [text]);

  const send = (): void => {
    if (!text.trim() && !pictures.length) return;
    void chat.send(text.trim(), pictures);
    setText("");
    setPictures([]);
    field.current?.focus();
  };
  const add = async (files: FileList | null): Promise<void> => {
    setTrouble("");
    for (const file of [...(files ?? [])].slice(0, PICTURES - pictures.length)) {
      try {
        const picture = await pictureFrom(file);
        setPictures((before) => [...before, picture]);
      } catch (error) {
        setTrouble(error instanceof Error ? error.message : "The picture could not be read.");
      }
    }
  };
  const key = (event: KeyboardEvent): void => {
    // On a phone the key makes a new line; there is a button for sending.
    const typing = matchMedia("(pointer: coarse)").matches || event.shiftKey || event.isComposing;
    if (event.key !== "Enter" || typing) return;
    event.preventDefault();
    send();
  };

  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <Trouble text={trouble} />
      {pictures.length ? (
        <ul class="picked">
          {pictures.map((picture, place) => (
            <li key={place}>
              <img src={`data:${picture.mediaType};base64,${picture.data}`} alt={`Picture ${place + 1}`} />
              <button type="button" class="quiet small" aria-label={`Remove picture ${place + 1}`} onClick={() => setPictures(pictures.filter((_, one) => one !== place))}>
                ✕
              </button>
            </li>
          ))}
        </ul>
      ) : null}
      <div class="composer-row">
        <label class="attach" aria-label="Add pictures">
          <input
            type="file"
            accept="image/*"
            multiple
            onChange={(event) => {
              void add(event.currentTarget.files);
              event.currentTarget.value = "";
            }}
          />
          <svg viewBox="0 0 24 24" aria-hidden="true">
            <path d="M12 5v14M5 12h14" />
          </svg>
        </label>
        <textarea
          ref={field}
          aria-label="Message"
          rows={1}
          value={text}
          placeholder={busy ? "Next message" : "Message"}
          onInput={(event) => setText(event.currentTarget.value)}
          onKeyDown={key}
        />
        {busy ? (
          <button type="button" class="stop" onClick={() => void chat.stop()}>
            Stop
          </button>
        ) : null}
        <button type="submit" class="main" disabled={!text.trim() && !pictures.length}>
          Send
        </button>
      </div>
    </form>
  );
}
