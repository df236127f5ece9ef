"""`python -m rnixfs_cli` is the `rnix` command."""

from rnixfs_cli.main import main

main()
