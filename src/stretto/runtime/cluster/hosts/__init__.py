"""The host processes of a job: start them (Ray or local), call them, detect failures, replace them."""
