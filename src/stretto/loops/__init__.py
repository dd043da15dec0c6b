"""Front end `st.parallel`: parse, type, analyse, compile and run serial Python loops in parallel."""
