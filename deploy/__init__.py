"""What runs Millrace: on a laptop (deploy.local), and what the shared services must hold (topics, keys)."""
