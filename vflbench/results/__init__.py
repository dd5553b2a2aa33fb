"""The run folder: writing it (`folder`), naming it (`identity`), reading it (`reader`), tabling a sweep (`sweep`).
Never imports torch."""
