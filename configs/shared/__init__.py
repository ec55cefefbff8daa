"""What the tracks' configurations share."""
