"""Experiments and presets as data: one folder a track, composed by Hydra."""
