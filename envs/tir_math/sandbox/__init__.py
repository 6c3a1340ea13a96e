"""Runs Python that nobody has read: persistent workers behind bubblewrap, a fresh cage for every snippet."""
