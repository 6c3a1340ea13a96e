"""The four axes as pure functions on tensors, written to be read beside the formulas."""
