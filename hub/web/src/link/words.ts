import { HubError } from "../hub/api";
import { LinkError } from "./link";

/** What went wrong, for the person. */
export function words(error: unknown): string {
  return error instanceof LinkError || error instanceof HubError ? error.message : "Something went wrong on this page. Load it again.";
}
