const FIRST_MS = 500;
const LONGEST_MS = 20_000;

/** How long to wait before the next attempt after so many failed ones: doubling, with up to a half taken off at random
 * so that many pages do not come back at the same moment. */
export function waitMs(failures: number, random: () => number = Math.random): number {
  const full = Math.min(LONGEST_MS, FIRST_MS * 2 ** Math.max(0, failures - 1));
  return full * (1 - random() / 2);
}
