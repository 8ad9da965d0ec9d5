"""Other methods of the DRAGON paper: token-wise, sequence-wise, fetched documents."""
