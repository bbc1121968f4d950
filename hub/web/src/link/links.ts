import { Link } from "./link";

let current: Link | null = null;

/** The link to a machine. There is one at a time: turning to another machine ends the old one. */
export function linkTo(machineId: string): Link {
  if (current?.deviceId !== machineId) {
    current?.close();
    current = new Link(machineId);
  }
  return current;
}

export function endLinks(): void {
  current?.close();
  current = null;
}
