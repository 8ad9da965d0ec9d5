"""Methods by which texts, or their keys and values, travel; and how they do."""
