"""Many rows: main effects, trees with a smooth part on some rows, a mixture on all others."""
