"""The reproduction report: one page on every claim of the paper, and the gallery, both built from the run store."""
