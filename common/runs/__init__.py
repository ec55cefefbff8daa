"""The run store: identity, atomic files, checkpoints, resume, reading back, moving between machines."""
