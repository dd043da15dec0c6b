"""Parsing of `st.parallel` functions: source text to loop tree, name resolution, and argument binding."""
