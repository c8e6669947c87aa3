"""The runner: claims runs, drives them, writes their commits, keeps their leases."""
