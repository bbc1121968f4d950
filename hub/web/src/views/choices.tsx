import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { type Choice, type Given, readChoices, withAnswers } from "../chat/choices";
import type { Question } from "../chat/questions";
import type { Frame } from "../json";

interface Props {
  readonly question: Question;
  readonly busy: boolean;
  readonly onAnswers: (input: Frame) => void;
  readonly onSkip: () => void;
}

const NOTHING: Given = { chosen: [], written: "" };

/** What the agent wants to know, each with its choices and room for other words. */
export function Choices({ question, busy, onAnswers, onSkip }: Props): JSX.Element {
  const [given, setGiven] = useState<{ readonly [text: string]: Given }>({});
  const answered = withAnswers(question.input, given);
  return (
    <form
      class="choices"
      onSubmit={(event) => {
        event.preventDefault();
        if (answered) onAnswers(answered);
      }}
    >
      <div class="question-body">
        {readChoices(question.input).map((choice, place) => (
          <ChoiceView
            key={choice.question}
            id={`choice-${question.id}-${place}`}
            choice={choice}
            given={given[choice.question] ?? NOTHING}
            onChange={(now) => setGiven({ ...given, [choice.question]: now })}
          />
        ))}
      </div>
      <div class="answers">
        <button type="submit" class="main" disabled={busy || answered === null}>
          Answer
        </button>
        <button type="button" disabled={busy} onClick={onSkip}>
          Skip
        </button>
      </div>
    </form>
  );
}

function ChoiceView(props: { id: string; choice: Choice; given: Given; onChange: (given: Given) => void }): JSX.Element {
  const { id, choice, given, onChange } = props;
  const choose = (label: string, on: boolean): void => {
    const others = choice.several ? given.chosen.filter((one) => one !== label) : [];
    onChange({ chosen: on ? [...others, label] : others, written: choice.several ? given.written : "" });
  };
  const write = (written: string): void => onChange({ chosen: choice.several ? given.chosen : [], written });
  return (
    <fieldset class="choice">
      <legend>{choice.question}</legend>
      {choice.options.map((option) => (
        <label key={option.label} class="check">
          <input
            type={choice.several ? "checkbox" : "radio"}
            name={id}
            checked={given.chosen.includes(option.label)}
            onChange={(event) => choose(option.label, event.currentTarget.checked)}
          />
          <span>
            {option.label}
            {option.description ? <span class="soft"> {option.description}</span> : null}
          </span>
        </label>
      ))}
      <input
        class="other"
        aria-label={`Other words: ${choice.question}`}
        placeholder={choice.options.length ? "Or in your own words" : "Your answer"}
        value={given.written}
        onInput={(event) => write(event.currentTarget.value)}
      />
    </fieldset>
  );
}
