"""What came out of a run, made ready to serve: adapters merged, weights checked, everything in one folder."""
