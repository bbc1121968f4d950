import assert from "node:assert/strict";
import test from "node:test";
import { waitMs } from "../src/link/backoff";

test("waits double up to twenty seconds, with at most half taken off", () => {
  const most = [1, 2, 3, 4, 5, 6, 7, 50].map((failures) => waitMs(failures, () => 0));
  assert.deepEqual(most, [500, 1000, 2000, 4000, 8000, 16000, 20000, 20000]);
  const least = [1, 7].map((failures) => waitMs(failures, () => 1));
  assert.deepEqual(least, [250, 10000]);
});
