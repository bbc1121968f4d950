"""What the turn machine says to the model or the person, in one place."""

from typing import Final

DENIED: Final = "The person denied this call."
PERSON_SAID: Final = 'The person allowed this call and said: "{comment}"\n{text}'
NOBODY_ANSWERED: Final = (
    "Nobody answered the question whether this call may run, so it was denied and nothing ran. Go on without it, or "
    "say what you would need it for."
)
NO_WAY_TO_ASK: Final = (
    "This call needs a person's approval, but this turn was started by a client that cannot answer questions, so it "
    "was denied and nothing ran. Why it needs approval: {reason}"
)
INTERRUPTED: Final = "Interrupted by user"
INTERRUPTED_NOTE: Final = "Interrupted"
EFFECT_UNKNOWN: Final = (
    "The program stopped while this call was running. Its effect is unknown: it may have happened wholly, partly or "
    "not at all. It was not repeated. Look at the present state before you decide whether to do it again."
)
PERMISSION_CHANGED: Final = (
    "The permission for this call changed before it ran, so nothing ran. Call it again if it is still needed. {reason}"
)
STEP_CUT: Final = "Lodger was restarted in the middle of this answer; the model is asked again."
EMPTY_ANSWER: Final = "The model gave an empty answer."
STILL_EMPTY: Final = (
    "The model gave only empty answers; the turn was ended. Send the message again or choose another model."
)
FILTERED: Final = "The provider's content filter stopped the answer."
SPEND_STOPPED: Final = "The turn was ended at a limit, as you said. {words}"
SPEND_NOBODY_ANSWERED: Final = "The turn was ended at a limit, because nobody answered whether to go on. {words}"
SPEND_NO_WAY_TO_ASK: Final = (
    "The turn was ended at a limit, because the client that started it cannot answer questions. {words}"
)
STEP_LIMIT: Final = "The turn was ended after {steps} model steps, its limit."
STILL_TOO_LONG: Final = (
    "The conversation does not fit into the model's context window, even after compaction. Start a new conversation or "
    "choose a model with a larger window."
)
REMIND_OF_EMPTY: Final = (
    "Your last answer was empty. Answer with text, or call a tool if there is still something to do."
)
