"""What sites wish: robots.txt and every other way to say no."""
