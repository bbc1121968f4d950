/** Keeps a keyboard's place: what had the focus may be taken off the page by what it did. */
export function focusOn(id: string): void {
  requestAnimationFrame(() => document.getElementById(id)?.focus());
}

/** The view's content, if the focus is nowhere. Never a field: on a phone that would open the keyboard. */
export function rescueFocus(): void {
  requestAnimationFrame(() => {
    if (document.activeElement === document.body) document.getElementById("main")?.focus({ preventScroll: true });
  });
}
