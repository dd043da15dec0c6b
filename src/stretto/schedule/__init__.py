"""What runs together next: partial orders over block visits, decided without acting."""
