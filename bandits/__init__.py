"""Track 1: tabular bandits and the MNIST contextual bandit (arXiv 2604.06159, sections 3-4)."""
