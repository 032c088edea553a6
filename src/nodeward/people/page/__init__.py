"""The web page for people on this machine: one HTML file, ES modules, and server-sent events."""
