"""One module per command.

Each holds `HELP`, the text shown by `--help`, and `run(arguments) -> int`, which does the work and returns
the exit code. Heavy libraries are imported inside `run`, so that help and configuration errors are instant.
"""
