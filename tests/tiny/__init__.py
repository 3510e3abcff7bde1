"""Toy models and tokenizers, built in the process: nothing is downloaded and every test finishes in moments."""
