"""This process and this machine: ranks, logging, optional packages, whole-or-absent files, memory limits.

Nothing here knows anything about models or data, and nothing here loads torch.
"""
