"""Track 1: tabular bandits (single and multi context) and the MNIST contextual bandit (arXiv 2604.06159, sections 3-4)."""
