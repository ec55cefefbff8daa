"""Figures of the paper: each module reads the run store, draws, and compares with the published numbers."""
