"""Keys and values of answers under way: one budget, slots of equal capacity, a length per row."""
