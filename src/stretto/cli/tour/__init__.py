"""The stops of `stretto tour`: small programs that run when they are shown, with what their results mean."""
