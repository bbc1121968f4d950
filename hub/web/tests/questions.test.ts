import assert from "node:assert/strict";
import test from "node:test";
import { readChoices, withAnswers } from "../src/chat/choices";
import { askedWords, decisionOf, readHosts, readAskedPorts, readQuestion, readSettings } from "../src/chat/questions";

const input = {
  questions: [
    { question: "Which colour?", header: "Colour", multiSelect: false, options: [{ label: "Red" }, { label: "Blue", description: "cool" }] },
    { question: "Which days?", multiSelect: true, options: [{ label: "Mon" }, { label: "Tue" }, { nonsense: 1 }] },
  ],
};

test("an answer goes back in the arguments, as recorded", () => {
  const [first] = input.questions;
  const one = { questions: [first!] };
  const given = withAnswers(one, { "Which colour?": { chosen: ["Blue"], written: "" } });
  assert.deepEqual(given, { ...one, answers: { "Which colour?": "Blue" } });
  const question = readQuestion("perm-1", { tool_name: "AskUserQuestion", input: one });
  assert.deepEqual(decisionOf(question, { kind: "answer", input: given! }), { behavior: "allow", updated_input: given });
});

test("every question needs an answer, a choice or words", () => {
  assert.equal(withAnswers(input, { "Which colour?": { chosen: ["Red"], written: "" } }), null);
  const given = withAnswers(input, {
    "Which colour?": { chosen: [], written: " teal " },
    "Which days?": { chosen: ["Mon", "Tue"], written: "and Friday" },
  });
  assert.deepEqual(given?.["answers"], { "Which colour?": "teal", "Which days?": ["Mon", "Tue", "and Friday"] });
});

test("what cannot be read is left out", () => {
  assert.deepEqual(readChoices(input)[1]?.options.map((option) => option.label), ["Mon", "Tue"]);
  assert.deepEqual(readChoices({ questions: [7, { question: 7 }, null] }), []);
});

test("a question in a line", () => {
  const asked = (tool_name: string, more: object = {}): string => askedWords(readQuestion("q", { tool_name, input: more as never }));
  assert.equal(asked("Bash"), "May the agent use Bash?");
  assert.equal(asked("AskUserQuestion", input), "Which colour?");
  assert.equal(asked("SpendLimit"), "A limit of spending is reached. Go on?");
});

test("hosts are named with their ports, and what git would run line by line", () => {
  assert.deepEqual(readHosts({ hosts: ["example.org:443", "[::1]:80", "bare", 7] }), [
    { host: "example.org", port: "443" },
    { host: "[::1]", port: "80" },
    { host: "bare", port: "" },
  ]);
  const asked = (hosts: string[]): string => askedWords(readQuestion("q", { tool_name: "NetworkAccess", input: { hosts } }));
  assert.equal(asked(["example.org:443"]), "May programs of the agent reach example.org?");
  assert.equal(asked(["a:1", "b:2"]), "May programs of the agent reach these 2 hosts?");
  assert.deepEqual(readSettings({ settings: { "core.hookspath": ".husky", "core.fsmonitor": "" } }), [
    { type: "add", content: "core.hookspath = .husky" },
    { type: "remove", content: "core.fsmonitor" },
  ]);
});

test("ports are named by their numbers", () => {
  assert.deepEqual(readAskedPorts({ ports: [5173, "7", null, 8080] }), [5173, 8080]);
  const asked = (ports: number[]): string => askedWords(readQuestion("q", { tool_name: "PortAccess", input: { ports, workspace: "/work" } }));
  assert.equal(asked([5173]), "May the machine reach port 5173 of the agent's box?");
  assert.equal(asked([5173, 8080]), "May the machine reach these 2 ports of the agent's box?");
});

test("always names the rules that were shown", () => {
  const question = readQuestion("q", { tool_name: "Bash", permission_suggestions: [{ id: "save-default", text: "t" }, { text: "no id" }] });
  assert.deepEqual(decisionOf(question, { kind: "allow", always: true }), { behavior: "allow", selected_permission_suggestion_ids: ["save-default"] });
  assert.deepEqual(decisionOf(question, { kind: "allow", always: false }), { behavior: "allow" });
  assert.equal(decisionOf(question, { kind: "deny" })["behavior"], "deny");
});
