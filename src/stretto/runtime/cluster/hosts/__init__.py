"""The processes of a job: started, called, watched, replaced."""
