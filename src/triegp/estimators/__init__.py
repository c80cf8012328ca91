"""scikit-learn's manners around the models."""
