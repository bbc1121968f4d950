"""The embedded control plane: relay, pairing, memory git host."""
