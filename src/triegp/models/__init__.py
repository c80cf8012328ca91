"""What the mixture and the sum of trees share: their contract, a run, what they predict."""
