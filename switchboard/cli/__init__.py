"""The command line: what may be typed, and the commands that ask a running house."""
