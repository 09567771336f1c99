"""The workflows of entities: one file each."""
