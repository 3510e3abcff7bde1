"""One training run, from its settings to its results; `run_training` tells the story."""
