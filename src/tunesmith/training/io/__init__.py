"""The IO engine: keeps the processor fed, measures whether it is, and settles how by itself."""
