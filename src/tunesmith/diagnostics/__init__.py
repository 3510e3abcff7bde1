"""Answers before or after a run that need no training: what will go wrong, and how one can know."""
