/** JSON that came from outside: nothing is known of it until it has been looked at. */
export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
export type Frame = { [name: string]: Json };

export function asObject(value: unknown): Frame {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Frame) : {};
}

export function asList(value: unknown): Json[] {
  return Array.isArray(value) ? (value as Json[]) : [];
}

export function asText(value: unknown): string {
  return typeof value === "string" ? value : "";
}

export function asNumber(value: unknown): number | null {
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}
