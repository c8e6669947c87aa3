"""The command line: run it, see it, mend it.

Everything acts through the client, the store port and `outlast.query`, as programs do; nothing
reads tables behind the store's back. One file per command, or per small group, in `commands/`.
"""
