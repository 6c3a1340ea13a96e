"""Environments of other libraries behind `envs.text_env`, and ours behind OpenEnv's protocol."""
