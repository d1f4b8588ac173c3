#!/bin/bash
# What the image apache/kafka does at its start: settings from the environment, a formatted folder, the broker.
set -e
java=("$JAVA_HOME/bin/java" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp '/opt/kafka/libs/*')
config=/opt/kafka/config
said=$("${java[@]}" kafka.docker.KafkaDockerWrapper setup -D /etc/kafka/docker -M /mnt/shared/config -F $config 2>&1) \
    || grep -q "already formatted" <<<"$said" || { echo "$said" >&2; exit 1; }
logging=-Dlog4j2.configurationFile=/opt/kafka/log4j2.properties
exec "${java[@]}" ${KAFKA_HEAP_OPTS:--Xmx1g} $logging kafka.Kafka $config/server.properties
