"""Models over real HTTP and real processes, against servers of ours on the loopback."""
