"""`python -m nodeward`: the same as the console script."""

from nodeward.cli.main import main

main()
