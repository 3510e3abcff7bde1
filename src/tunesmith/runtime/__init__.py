"""This process and this machine: ranks, logging, optional packages, files that are whole or absent, memory limits.

Nothing here knows anything about models or data, and nothing here loads torch.
"""
