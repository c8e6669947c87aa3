"""Queues that have no store: each is a package of its own, behind an extra."""
