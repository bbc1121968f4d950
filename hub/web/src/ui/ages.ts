import { signal } from "@preact/signals";

/** Now, to within some seconds: what shows an age reads it, so that ages grow while they are looked at. */
export const now = signal(Date.now());
setInterval(() => {
  now.value = Date.now();
}, 5_000);

export function age(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 10) return "just now";
  if (seconds < 60) return `${seconds} s ago`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min ago`;
  const hours = Math.round(minutes / 60);
  if (hours < 48) return `${hours} h ago`;
  return `${Math.round(hours / 24)} days ago`;
}

/** The age of something that was `ageMs` old at the moment `heardAt`. */
export function aged(ageMs: number | null, heardAt: number): string {
  return ageMs === null ? "never" : age(ageMs + Math.max(0, now.value - heardAt));
}

export function since(instant: number): string {
  return age(now.value - instant);
}
