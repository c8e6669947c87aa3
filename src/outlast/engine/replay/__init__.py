"""Replay: workflow code and its history. Pure: nothing here does I/O, and imports enforce that."""
