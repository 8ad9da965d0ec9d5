"""What a request spent its time on, on both sides and between them."""
