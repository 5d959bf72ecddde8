"""Code compiled for this processor at first use, and the threads and memory it runs on."""
