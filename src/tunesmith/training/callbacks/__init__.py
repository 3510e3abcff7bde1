"""Callbacks that change a run: stop it, save it, show what the model says meanwhile."""
