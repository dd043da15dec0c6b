"""Side features of users and items: tables that are given, maps that are learned, rows known by features alone."""
