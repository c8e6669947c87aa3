"""The command line: run an app, inspect runs, repair them.

Commands use the client, the store port and `outlast.query`, as programs do, and never read a store's tables.
`commands/` has one file per command or small group of commands.
"""
