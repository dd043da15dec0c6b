"""Front end `st.Program`: iterative algorithms as three functions (schedule, update, aggregate), planned and run."""
