"""One script per tool, run in a process and an environment of its own: rows in a file to encoded rows."""
