"""When a read may proceed: clocks and the rules BSP, SSP, ASP. Pure: nothing here waits, it only says whether to."""
