"""What all tracks share. Imports no track; importing it imports nothing."""
