import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { Conversation } from "../chat/conversation";
import type { Place } from "../chat/place";
import { directoryOf, linkTo } from "../link/links";
import { paths } from "../route";
import { now } from "../ui/ages";
import { LinkBanner } from "../ui/banner";
import { Head, Trouble } from "../ui/parts";
import { Composer } from "./composer";
import { Elsewhere } from "./elsewhere";
import { ItemView } from "./item";
import { Options } from "./options";
import { QuestionCard } from "./question";
import { QueueView } from "./queue";

/** So near to the end counts as reading along. */
const NEAR_END_PX = 80;

export function ChatView({ machineId, agentId, conversationId }: Place): JSX.Element {
  const link = linkTo(machineId);
  const chat = useMemo(() => new Conversation(link, { machineId, agentId, conversationId }), [link]);
  useEffect(() => () => chat.close(), [chat]);
  const state = link.state.value;
  const [options, setOptions] = useState(false);
  const [rewritten, setRewritten] = useState<string | null>(null);
  const directory = directoryOf(machineId);
  const name = chat.agentName.value || "Conversation";
  const listed = directory.agents.value !== null;
  const title = listed ? directory.title(agentId, conversationId) : chat.title.value;
  useEffect(() => {
    document.title = title ? `${title} · ${name} · Lodger` : `${name} · Lodger`;
  }, [name, title]);
  return (
    <div class="view chat">
      <Head title={name} sub={title} back={paths.machine(machineId)} backLabel="Conversations">
        <button type="button" class="quiet" aria-expanded={options} aria-controls="options" onClick={() => setOptions(!options)}>
          Options
        </button>
      </Head>
      {options ? <Options chat={chat} link={link} onClose={() => setOptions(false)} /> : null}
      <LinkBanner link={link} mails />
      <Elsewhere directory={directory} place={chat.place} />
      <Transcript chat={chat} machineName={state.kind === "machine_offline" ? state.machine.name : ""} onRewrite={setRewritten} />
      <div class="foot">
        {chat.questions.value.map((question) => (
          <QuestionCard key={question.id} question={question} onAnswer={(word) => chat.answer(question, word)} />
        ))}
        <QueueView chat={chat} onRewrite={setRewritten} />
        <Trouble text={chat.trouble.value} />
        <Composer chat={chat} rewritten={rewritten} onTaken={() => setRewritten(null)} />
      </div>
    </div>
  );
}

interface TranscriptProps {
  readonly chat: Conversation;
  /** Empty while nobody has said how the machine is called. */
  readonly machineName: string;
  readonly onRewrite: (text: string) => void;
}

function Transcript({ chat, machineName, onRewrite }: TranscriptProps): JSX.Element {
  const box = useRef<HTMLElement>(null);
  const follows = useRef(true);
  const [away, setAway] = useState(false);
  const items = chat.items.value;

  const toEnd = (): void => {
    const element = box.current;
    if (element) element.scrollTop = element.scrollHeight;
  };
  const said = chat.said.value;
  useLayoutEffect(() => {
    follows.current = true;
    setAway(false);
  }, [said]);
  useLayoutEffect(() => {
    if (follows.current) toEnd();
  });
  useEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    // Questions and the keyboard change the room there is.
    const watcher = new ResizeObserver(() => {
      if (follows.current) toEnd();
    });
    watcher.observe(element);
    return () => watcher.disconnect();
  }, []);
  const scrolled = (): void => {
    const element = box.current;
    if (!element) return;
    follows.current = element.scrollHeight - element.scrollTop - element.clientHeight < NEAR_END_PX;
    setAway(!follows.current);
  };
  const older = async (): Promise<void> => {
    const element = box.current;
    const before = element ? element.scrollHeight - element.scrollTop : 0;
    follows.current = false;
    await chat.loadOlder();
    requestAnimationFrame(() => {
      if (element) element.scrollTop = element.scrollHeight - before;
    });
  };

  return (
    <main id="main" class="transcript" tabIndex={-1} aria-busy={!chat.loaded.value} ref={box} onScroll={scrolled} aria-label="Conversation">
      <div class="column">
        {chat.hasOlder.value ? (
          <button type="button" class="quiet wide" onClick={() => void older()}>
            Show earlier messages
          </button>
        ) : null}
        {chat.loaded.value && items.length === 0 ? <p class="soft center">Say something: {chat.agentName.value} is listening.</p> : null}
        {items.map((item) => (
          <ItemView key={item.key} item={item} machine={machineName} onTakeBack={async (one) => {
            const text = await chat.takeBack(one);
            if (text !== null) onRewrite(text);
          }} />
        ))}
        <Activity chat={chat} />
      </div>
      {away ? (
        <button
          type="button"
          class="to-end"
          onClick={() => {
            follows.current = true;
            setAway(false);
            toEnd();
          }}
        >
          Newest
        </button>
      ) : null}
    </main>
  );
}

const DOING: Record<string, string> = {
  SENDING_API_REQUEST: "Thinking…",
  WAITING_FOR_API_RESPONSE: "Thinking…",
  RETRYING_API_REQUEST: "Trying again…",
  PROCESSING_API_RESPONSE: "Writing…",
  WAITING_ON_APPROVAL: "Waiting for your answer",
  EXECUTING_CLIENT_SIDE_TOOL: "Working…",
  EXECUTING_COMMAND: "Working…",
};

function again(until: number | null): string {
  if (until === null) return "Trying again.";
  const seconds = Math.round((until - now.value) / 1000);
  if (seconds <= 0) return "Trying again now.";
  return seconds < 90 ? `Trying again in ${seconds} s.` : `Trying again at ${new Date(until).toLocaleTimeString()}.`;
}

function Activity({ chat }: { chat: Conversation }): JSX.Element | null {
  const waiting = chat.waiting.value;
  const text = waiting ? `${waiting.words}. ${again(waiting.until)}` : DOING[chat.status.value];
  return text ? (
    <p class="activity soft">
      <span class="pulse" aria-hidden="true" />
      {text}
    </p>
  ) : null;
}
