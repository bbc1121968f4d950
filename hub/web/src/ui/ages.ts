import { signal } from "@preact/signals";
import { age } from "./age";

/** Now, to within some seconds: what shows an age reads it, so that ages grow while they are looked at. */
export const now = signal(Date.now());
setInterval(() => {
  now.value = Date.now();
}, 5_000);

/** The age of something that was `ageMs` old at the moment `heardAt`. */
export function aged(ageMs: number | null, heardAt: number): string {
  return ageMs === null ? "never" : age(ageMs + Math.max(0, now.value - heardAt));
}

export function since(instant: number): string {
  return age(now.value - instant);
}
