"""The house itself: its configuration, its embedded database, its migrations, its process."""
