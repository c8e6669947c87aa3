"""What `outlast doctor` looks at: settings of the store, and what goes on in it."""
