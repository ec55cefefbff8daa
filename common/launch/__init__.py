"""Command lines of the tracks: compose settings with Hydra, plan the sweep, run it, watch it, sum it up."""
