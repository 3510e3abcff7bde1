"""Monitors that watch a run and never change it: log, progress bar, plot."""
