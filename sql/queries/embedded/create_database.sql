-- Makes the house's own database on the embedded server, whole or not at all; only one house is on it at a time.
create database switchboard;
