"""What the `ensemble` command does, one module per sub-command."""
