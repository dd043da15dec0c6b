"""Documents of text: reading them, cutting them into words, counting the words."""
