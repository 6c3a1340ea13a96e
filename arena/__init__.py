"""The platform: grids, plans, trials, the ledger, the controller, tracking and the command line."""
