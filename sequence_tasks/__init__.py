"""Track 2: token sequence tasks with a small transformer (arXiv 2604.06159, section 5 of the experiments)."""
