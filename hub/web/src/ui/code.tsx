import type { JSX } from "preact";
import { useState } from "preact/hooks";

/** What fits on a page; the rest is on the machine. */
const SHOWN_CHARS = 60_000;

export function CodeBlock({ text, label }: { text: string; label: string }): JSX.Element {
  const shown = text.length > SHOWN_CHARS ? `${text.slice(0, SHOWN_CHARS)}\n… (${text.length - SHOWN_CHARS} more characters)` : text;
  return (
    <div class="code">
      <div class="code-head">
        <span>{label}</span>
        <CopyButton text={text} />
      </div>
      <pre tabIndex={0} aria-label={label || "Code"}>
        <code>{shown}</code>
      </pre>
    </div>
  );
}

export function CopyButton({ text }: { text: string }): JSX.Element {
  const [state, setState] = useState<"idle" | "copied" | "failed">("idle");
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text);
      setState("copied");
    } catch {
      setState("failed");
    }
    setTimeout(() => setState("idle"), 2000);
  };
  const words = { idle: "Copy", copied: "Copied", failed: "Could not copy" }[state];
  return (
    <button type="button" class="quiet small" onClick={() => void copy()}>
      {words}
    </button>
  );
}
