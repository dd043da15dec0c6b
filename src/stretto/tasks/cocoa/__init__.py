"""`st.cocoa`: linear models by CoCoA, CoCoA+ and ProxCoCoA+, as a task."""
