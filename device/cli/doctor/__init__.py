"""What is right and wrong with a side of this machine, and what to do: facts, and findings from them."""
