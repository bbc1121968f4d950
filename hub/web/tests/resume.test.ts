import assert from "node:assert/strict";
import test from "node:test";
import { Resume, STALE_MS } from "../src/chat/resume";
import type { Frame } from "../src/json";
import { seeded } from "./seeded";

const event = (number: number, type = "stream_delta"): Frame => ({ type, lodger_event: number });
const numbers = (frames: readonly Frame[]): unknown[] => frames.map((frame) => frame["lodger_event"]);

test("the first look takes only the turn under way", () => {
  const resume = new Resume();
  assert.equal(resume.begin(0), null);
  assert.deepEqual([resume.take(event(8)), resume.take(event(9, "turn_finished")), resume.take(event(10))], [[], [], []]);
  assert.deepEqual(numbers(resume.release(10, 0)), [10]);
  assert.deepEqual(numbers(resume.take(event(11))), [11]);
});

test("a turn that began before the first look is asked for from further back, once", () => {
  const resume = new Resume();
  resume.begin(0);
  assert.equal(resume.mustLookBack(true, 5000), true);
  assert.equal(resume.begin(0), 1000);
  assert.equal(resume.mustLookBack(true, 5000), false);
  resume.release(5000, 0);
  assert.equal(resume.begin(1), 5000);
});

test("an idle or empty conversation needs no look back", () => {
  const resume = new Resume();
  resume.begin(0);
  assert.equal(resume.mustLookBack(false, 5000), false);
  assert.equal(resume.mustLookBack(true, 0), false);
});

test("coming back continues at the cursor; what was seen is not applied again", () => {
  const resume = new Resume();
  resume.begin(0);
  resume.release(5, 0);
  assert.deepEqual(numbers(resume.take(event(6))), [6]);
  assert.equal(resume.begin(1000), 6);
  for (const number of [5, 6, 7, 7, 8]) resume.take(event(number));
  assert.deepEqual(numbers(resume.release(8, 1000)), [7, 8]);
  assert.deepEqual(numbers(resume.take(event(8))), []);
});

test("a failed opening loses nothing", () => {
  const resume = new Resume();
  resume.begin(0);
  resume.release(5, 0);
  resume.begin(1);
  resume.take(event(6));
  resume.abandon();
  assert.equal(resume.begin(2), 5, "the event that was held back is asked for again");
});

test("after a long absence everything is fetched anew", () => {
  const resume = new Resume();
  resume.begin(0);
  resume.release(5, 0);
  assert.equal(resume.begin(STALE_MS + 1), null);
  assert.equal(resume.isFresh, true);
});

test("a place that the machine does not know is given up, and its numbers count from then on", () => {
  const resume = new Resume();
  resume.begin(0);
  resume.release(9000, 0);
  assert.equal(resume.begin(1), 9000);
  resume.lost();
  assert.equal(resume.isFresh, true);
  assert.equal(resume.isNew, true);
  resume.take(event(7, "turn_finished"));
  resume.take(event(8));
  assert.deepEqual(numbers(resume.release(8, 1)), [8]);
  assert.deepEqual(numbers(resume.take(event(9))), [9]);
  assert.equal(resume.begin(2), 9);
});

test("events without a number are always news", () => {
  const resume = new Resume();
  resume.begin(0);
  resume.release(0, 0);
  assert.equal(resume.take({ type: "stream_delta" }).length, 1);
});

test("whatever breaks off, every event after the first look is applied once and in order", () => {
  for (let seed = 0; seed < 300; seed += 1) {
    const random = seeded(seed);
    const resume = new Resume();
    resume.begin(0);
    resume.release(0, 0);
    const applied: number[] = [];
    const apply = (frames: readonly Frame[]): void => void applied.push(...frames.map((frame) => Number(frame["lodger_event"])));
    let written = 0;
    for (let step = 0; step < 30; step += 1) {
      const after = resume.begin(step) ?? 0;
      const broken = random() < 0.4;
      written += Math.floor(random() * 5);
      // The machine replays from the cursor and may repeat a little of what came before it.
      for (let number = Math.max(1, after - 2); number <= written; number += 1) {
        if (broken && random() < 0.3) break;
        apply(resume.take(event(number)));
      }
      if (broken) {
        resume.abandon();
        continue;
      }
      apply(resume.release(written, step));
      for (let more = Math.floor(random() * 4); more > 0; more -= 1) apply(resume.take(event((written += 1))));
    }
    resume.begin(99);
    const after = applied.at(-1) ?? 0;
    for (let number = after + 1; number <= written; number += 1) resume.take(event(number));
    apply(resume.release(written, 99));
    assert.deepEqual(applied, Array.from({ length: written }, (_, place) => place + 1), `seed ${seed}`);
  }
});
