"""What an agent can do here: the runner inside the box; permissions, redaction and truncation outside it."""
