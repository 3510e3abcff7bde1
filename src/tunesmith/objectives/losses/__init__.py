"""Pure loss functions: tensors in, tensors out; one named method per file."""
