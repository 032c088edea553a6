"""The commands. Each sub-command is one module, imported when it is called, so that `--help` stays fast."""
