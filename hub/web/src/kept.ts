/** What the page keeps in this browser. A browser that refuses storage works until it is closed. */
const memory = new Map<string, string>();
const PREFIX = "lodger.";

export function kept(name: string): string {
  try {
    return localStorage.getItem(PREFIX + name) ?? memory.get(name) ?? "";
  } catch {
    return memory.get(name) ?? "";
  }
}

export function keep(name: string, value: string): void {
  if (value) memory.set(name, value);
  else memory.delete(name);
  try {
    if (value) localStorage.setItem(PREFIX + name, value);
    else localStorage.removeItem(PREFIX + name);
  } catch {
    // Full or forbidden: the copy in memory serves until the page is closed.
  }
}

export function forgetAll(): void {
  memory.clear();
  try {
    for (const name of Object.keys(localStorage)) if (name.startsWith(PREFIX)) localStorage.removeItem(name);
  } catch {
    // Nothing was kept, then.
  }
}
