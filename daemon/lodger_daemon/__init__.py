"""The long-lived process of one machine: turns, inbox, questions, backends, models, memory, links."""
