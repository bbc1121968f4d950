"""The `lodger` command; the one place that may see every other package."""
