-- From now on this session hears what the processes of this database tell each other.
listen switchboard
