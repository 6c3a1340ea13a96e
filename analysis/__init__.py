"""What runs mean: collapse, effects, plots and reports. Imports none of the other storeys."""
