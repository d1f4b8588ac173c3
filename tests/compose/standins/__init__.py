"""Stand-ins for the images of docker-compose.yml where no registry can be reached: `python -m tests.compose.standins`.

Under the real names, so that the real compose file and Dockerfile are what runs: Python on a Debian base, this machine's
Java, Kafka from its jars with Kafka's own reading of the environment, etcd built from its Go module (without Go the one of
the packages), Prometheus from Debian's package. There is none for Grafana and Jaeger: tests/deploy looks at what they are given. Needs
root, mmdebstrap and a Docker engine. Then builds both images of Millrace upon them. Nothing is made anew that is there.
"""
