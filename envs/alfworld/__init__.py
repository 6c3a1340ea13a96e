"""ALFWorld: household tasks in text, on the engine of the `alfworld` package."""
