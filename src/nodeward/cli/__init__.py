"""Programs for people. One module a sub-command, imported when it is called, so that `--help` stays fast."""
