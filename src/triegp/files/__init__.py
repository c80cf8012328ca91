"""Reading and writing of model files."""
