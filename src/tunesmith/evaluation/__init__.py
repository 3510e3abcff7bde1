"""Numbers about a model: loss and perplexity, generated predictions, and how close they come to the expected text."""
