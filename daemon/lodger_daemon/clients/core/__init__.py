"""What clients see, as pure functions."""
