"""The command line: one table of commands, one module that prints, one file per command.

Importing this package loads nothing heavy; a command imports what it needs inside its `run`.
"""
