"""The real Kafka and etcd as child processes of a laptop's stack: fetched once, verified, started, stopped."""
