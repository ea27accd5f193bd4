"""Communication with sites in other processes: messages, reply checks, relays and transports."""
