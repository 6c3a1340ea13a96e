"""What agents face: one text interface and the environments behind it."""
