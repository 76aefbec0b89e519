"""Changes of settings of the server's operating system: order, kernel files, sysctl.d, revert."""
