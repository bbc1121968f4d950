/** What the page keeps in this browser. A browser that refuses storage works until it is closed. */
const memory = new Map<string, string>();
/** What the browser did not take: its own copy, if it has one, is older. */
const unsaved = new Set<string>();
const PREFIX = "lodger.";

export function kept(name: string): string {
  if (unsaved.has(name)) return memory.get(name) ?? "";
  try {
    return localStorage.getItem(PREFIX + name) ?? "";
  } catch {
    return memory.get(name) ?? "";
  }
}

/** False when the browser has no room for it, or forbids it: then it lasts until the page is closed, and what was kept
 * before under this name comes back afterwards. */
export function keep(name: string, value: string): boolean {
  if (value) memory.set(name, value);
  else memory.delete(name);
  try {
    if (value) localStorage.setItem(PREFIX + name, value);
    else localStorage.removeItem(PREFIX + name);
    unsaved.delete(name);
    return true;
  } catch {
    unsaved.add(name);
    return false;
  }
}

export function forgetAll(): void {
  memory.clear();
  unsaved.clear();
  try {
    for (const name of Object.keys(localStorage)) if (name.startsWith(PREFIX)) localStorage.removeItem(name);
  } catch {
    // Nothing was kept, then.
  }
}
