import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Conversation } from "../chat/conversation";
import type { Picture } from "../chat/items";
import { keep, kept } from "../kept";
import { pictureFrom, tooMuch } from "../ui/pictures";
import { Trouble } from "../ui/parts";

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
    setTrouble("");
    field.current?.focus();
  };
  const add = async (files: readonly File[]): Promise<void> => {
    const refused: string[] = [];
    const made = [...pictures];
    for (const file of files) {
      try {
        const picture = await pictureFrom(file);
        const reason = tooMuch(made, picture);
        if (reason) refused.push(`${file.name} was left out: ${reason}`);
        else made.push(picture);
      } catch (error) {
        refused.push(error instanceof Error ? error.message : "A picture could not be read.");
      }
    }
    setPictures(made);
    setTrouble([...new Set(refused)].join(" "));
  };
  const paste = (event: ClipboardEvent): void => {
    const files = [...(event.clipboardData?.files ?? [])].filter((file) => file.type.startsWith("image/"));
    if (!files.length) return;
    event.preventDefault();
    void add(files);
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
              void add([...(event.currentTarget.files ?? [])]);
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
          onPaste={paste}
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
