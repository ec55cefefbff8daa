"""MNIST as a contextual bandit: see an image, sample a class, be told only whether it was right."""
