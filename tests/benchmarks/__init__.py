"""Lodger beside its peer: run with `make bench`; see README.md."""
