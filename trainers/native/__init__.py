"""The built-in back-end: a small torch policy trained in this process."""
