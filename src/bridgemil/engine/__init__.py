"""Many runs: which are to be done, and schedulers that do them on this machine or on a Ray cluster."""
