-- Nothing that this session says is worth waiting for the disk: after a crash of the server nobody is left to hear it.
set synchronous_commit = off
