"""The commands of `arena`, a module each group. They import what they need when they run."""
