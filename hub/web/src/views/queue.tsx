import type { JSX } from "preact";
import type { Conversation } from "../chat/conversation";
import type { Queued } from "../chat/queue";

/** Messages that wait for the turn under way. */
export function QueueView({ chat, onRewrite }: { chat: Conversation; onRewrite: (text: string) => void }): JSX.Element | null {
  const queue = chat.queue.value;
  if (!queue.length) return null;
  const parked = queue.some((item) => item.paused);
  const edit = async (item: Queued): Promise<void> => {
    if (await chat.removeQueued(item)) onRewrite(item.text);
  };
  return (
    <section class="queue" aria-label="Messages that wait">
      <h2 class="soft">{parked ? "Held back since you stopped" : "Next"}</h2>
      <ul>
        {queue.map((item) => (
          <li key={item.id}>
            <span class="clip">{item.text}</span>
            <button type="button" class="quiet small" aria-label={`Edit: ${item.text.slice(0, 40)}`} onClick={() => void edit(item)}>
              Edit
            </button>
            <button type="button" class="quiet small" aria-label={`Remove: ${item.text.slice(0, 40)}`} onClick={() => void chat.removeQueued(item)}>
              Remove
            </button>
          </li>
        ))}
      </ul>
      {parked ? (
        <button type="button" class="small" onClick={() => void chat.resumeQueue()}>
          Send them now
        </button>
      ) : null}
    </section>
  );
}
