"""Static schedules: partial orders over block visits."""
