import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { assertive, polite } from "./attention";

/** A view's head: where one is, the way back, and what can be done here. */
export function Head(props: { title: string; sub?: string; back?: string; backLabel?: string; children?: ComponentChildren }): JSX.Element {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => heading.current?.focus({ preventScroll: true }), []);
  return (
    <header class="head">
      {props.back === undefined ? null : (
        <a class="back" href={props.back} aria-label={props.backLabel ?? "Back"}>
          <svg viewBox="0 0 24 24" aria-hidden="true">
            <path d="M15 5l-7 7 7 7" />
          </svg>
        </a>
      )}
      <div class="head-title">
        <h1 ref={heading} tabIndex={-1}>
          {props.title}
        </h1>
        {props.sub ? <p class="soft clip">{props.sub}</p> : null}
      </div>
      <div class="head-tools">{props.children}</div>
    </header>
  );
}

export function Light({ on }: { on: boolean }): JSX.Element {
  return <span class={on ? "light on" : "light"} aria-hidden="true" />;
}

export function Trouble({ text }: { text: string }): JSX.Element | null {
  return text ? (
    <p class="trouble" role="alert">
      {text}
    </p>
  ) : null;
}

/** Where screen readers hear what happens. */
export function LiveRegions(): JSX.Element {
  return (
    <>
      <div class="unseen" aria-live="polite" role="status">
        {polite.value}
      </div>
      <div class="unseen" aria-live="assertive" role="alert">
        {assertive.value}
      </div>
    </>
  );
}
