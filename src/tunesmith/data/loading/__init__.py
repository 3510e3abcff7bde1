"""Encoded rows on their way to a batch: the cache and its files, data sets and their order, the road from a worker."""
