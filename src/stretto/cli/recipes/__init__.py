"""What a run was asked to do, complete enough to do it again."""
