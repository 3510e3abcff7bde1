"""One script per tool: trains the given job with it and prints one JSON line of measurements.

A script is run by the interpreter of the environment its tool is installed in, from the root of the repository, as
`python -m benchmarks.contestants.NAME JOB.json`. So apart from its tool it imports the standard library and its
neighbours only.
"""
