"""Who we are to the service: credentials, where they are looked for, and signatures."""
