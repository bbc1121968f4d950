const ALLOWED = new Set(["http:", "https:", "mailto:"]);

/** The address of a link that may be opened; null for every other, which is then shown as text. */
export function safeLink(href: string): string | null {
  try {
    const url = new URL(href);
    return ALLOWED.has(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}
