import { Directory } from "../machine/directory";
import { Link } from "./link";

interface Reached {
  readonly link: Link;
  readonly directory: Directory;
}

let current: Reached | null = null;

function reach(machineId: string): Reached {
  if (current?.link.deviceId !== machineId) {
    endLinks();
    const link = new Link(machineId);
    current = { link, directory: new Directory(link) };
  }
  return current!;
}

/** The link to a machine. There is one at a time: turning to another machine ends the old one. */
export function linkTo(machineId: string): Link {
  return reach(machineId).link;
}

/** What lives on that machine, as its link tells. */
export function directoryOf(machineId: string): Directory {
  return reach(machineId).directory;
}

export function endLinks(): void {
  current?.directory.close();
  current?.link.close();
  current = null;
}
