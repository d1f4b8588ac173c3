"""All messages. `contracts` has them in one registry; a client that needs a few imports those alone, for each takes a while to build."""
