"""The `rnix` command: a thin wrapper over the files of the mount."""
