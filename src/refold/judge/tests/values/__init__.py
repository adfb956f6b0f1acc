"""Values that no ordinary draw makes."""
