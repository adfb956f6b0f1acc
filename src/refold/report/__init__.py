"""What people see: tables on the terminal, JSON."""
