"""Consistency models: clocks and the rules BSP, SSP, ASP that decide when a read may proceed. Pure logic."""
