import { signal } from "@preact/signals";
import { keep, kept } from "../kept";

/** What a screen reader is told: in its turn, or at once. */
export const polite = signal("");
export const assertive = signal("");

export function announce(words: string, atOnce: boolean): void {
  (atOnce ? assertive : polite).value = words;
}

export const notifying = signal(kept("notify") === "yes" && "Notification" in window && Notification.permission === "granted");

/** Must be called from a tap: browsers ask the person only then. */
export async function allowNotifications(wanted: boolean): Promise<string> {
  if (!wanted) {
    keep("notify", "");
    notifying.value = false;
    return "";
  }
  if (!("Notification" in window)) return "This browser shows no notifications to this page.";
  const answer = await Notification.requestPermission();
  notifying.value = answer === "granted";
  keep("notify", notifying.value ? "yes" : "");
  return notifying.value ? "" : "The browser does not allow it. Its settings for this site can be changed.";
}

/** Only while nobody looks. `path` is where a tap leads; a newer word about the same place replaces the older. */
export function notify(title: string, body: string, path: string): void {
  if (!notifying.value || document.visibilityState === "visible") return;
  const options = { body, icon: "/icon-192.png", tag: `lodger ${path}`, data: { path } };
  // Phones show notifications only through a service worker.
  void navigator.serviceWorker?.getRegistration().then((found) => {
    if (found) return found.showNotification(title, options);
    new Notification(title, options);
    return undefined;
  }).catch(() => undefined);
}
