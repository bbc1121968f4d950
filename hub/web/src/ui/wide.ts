import { signal } from "@preact/signals";

/** Room for a list beside a conversation: 340 px of it, and 760 for what is read. */
const query = matchMedia("(min-width: 1100px)");

export const wide = signal(query.matches);
query.addEventListener("change", () => {
  wide.value = query.matches;
});
