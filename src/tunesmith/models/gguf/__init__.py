"""GGUF files as models to train: dequantised weights and a tokenizer that splits text as the original does."""
