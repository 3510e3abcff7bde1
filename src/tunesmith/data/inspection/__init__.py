"""Looking at prepared data: what the model will see, and what is odd about it."""
