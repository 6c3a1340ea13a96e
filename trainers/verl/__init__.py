"""The verl back-end: the same functions and environments under verl's trainer. Imports no verl by itself."""
