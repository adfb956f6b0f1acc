"""Lives: programs of calls, modes, writes and updates, never reloaded in between."""
