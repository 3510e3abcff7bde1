"""Speed and memory, measured side by side with the tools people use today."""
