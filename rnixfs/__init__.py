"""rnixfs: an operating system for AI agents whose kernel is a mounted file system."""

__version__ = "0.1.0"
