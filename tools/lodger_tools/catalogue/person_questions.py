"""The tool by which the model asks the person something. Nothing runs: the answers come back in its arguments. Pure."""

from typing import Final

from lodger_tools.catalogue.arguments import BadArguments
from lodger_tools.json_value import Json, JsonObject

ASK_TOOL: Final = "AskUserQuestion"
ANSWERS: Final = "answers"
"""The argument that only the person fills: each question's text with what they chose or wrote."""
QUESTIONS_LIMIT: Final = 8
OPTIONS_LIMIT: Final = 12
ANSWER_LIMIT_CHARS: Final = 20_000
NO_ANSWER: Final = "The person gave no answer."


def check_questions(arguments: JsonObject) -> None:
    """What a model may ask. Raises: BadArguments, also for answers it has filled in itself."""
    if arguments.get(ANSWERS):
        raise BadArguments(f"{ASK_TOOL}: leave out {ANSWERS}; the person fills it in.")
    questions = arguments.get("questions")
    if not isinstance(questions, list) or not 1 <= len(questions) <= QUESTIONS_LIMIT:
        raise BadArguments(f"{ASK_TOOL} needs the argument questions: a list of 1 to {QUESTIONS_LIMIT} questions.")
    texts = [_check_question(question) for question in questions]
    if len(set(texts)) < len(texts):
        raise BadArguments(f"{ASK_TOOL}: two of the questions have the same text.")


def with_answers(arguments: JsonObject, answers: Json) -> JsonObject | str:
    """Checked arguments together with a person's answers, or what is wrong with those."""
    if answers is None:
        return arguments
    if not isinstance(answers, dict) or not all(isinstance(name, str) for name in answers):
        return f"{ASK_TOOL}: {ANSWERS} must be an object of each question's text and its answer."
    if any(_words(answer) is None for answer in answers.values()):
        return f"{ASK_TOOL}: an answer must be a text or a list of texts, of at most {ANSWER_LIMIT_CHARS} characters."
    return {**arguments, ANSWERS: answers}


def answers_in_words(arguments: JsonObject) -> str:
    """The result of the call as the model reads it."""
    answers = arguments.get(ANSWERS)
    questions = arguments.get("questions")
    if not isinstance(answers, dict) or not answers or not isinstance(questions, list):
        return NO_ANSWER
    asked = [str(question.get("question", "")) for question in questions if isinstance(question, dict)]
    lines = [f"{text}\n  {_words(answers.get(text)) or '(no answer)'}" for text in asked]
    # Clients may name a question otherwise than it was asked; nothing a person wrote is dropped.
    lines += [f"{name}\n  {_words(answer)}" for name, answer in answers.items() if name not in asked]
    return "The person answered:\n" + "\n".join(lines)


def _check_question(question: Json) -> str:
    if not isinstance(question, dict):
        raise BadArguments(f"{ASK_TOOL}: each of the questions must be an object.")
    text = question.get("question")
    if not isinstance(text, str) or not text.strip():
        raise BadArguments(f"{ASK_TOOL}: each question needs its text, the field question (a string).")
    options = question.get("options")
    if options is None:
        return text
    if not isinstance(options, list) or len(options) > OPTIONS_LIMIT:
        raise BadArguments(f"{ASK_TOOL}: options must be a list of at most {OPTIONS_LIMIT}.")
    for option in options:
        if not isinstance(option, dict) or not isinstance(option.get("label"), str) or not option["label"]:
            raise BadArguments(f"{ASK_TOOL}: each option must be an object with a label (a string).")
    return text


def _words(answer: Json) -> str | None:
    if isinstance(answer, str):
        return answer if len(answer) <= ANSWER_LIMIT_CHARS else None
    if isinstance(answer, list) and all(isinstance(part, str) for part in answer):
        return _words(", ".join(str(part) for part in answer))
    return None
