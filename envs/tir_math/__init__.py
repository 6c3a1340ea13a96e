"""Tool-integrated maths: problems, Python in a sandbox, graded answers."""
