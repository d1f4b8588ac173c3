#!/bin/bash
# What the image apache/kafka does at its start: settings from the environment, a formatted folder, the broker.
set -e
java() { "$JAVA_HOME/bin/java" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp '/opt/kafka/libs/*' "$@"; }
config=/opt/kafka/config
java kafka.docker.KafkaDockerWrapper setup -D /etc/kafka/docker -M /mnt/shared/config -F $config
java kafka.tools.StorageTool format --ignore-formatted --cluster-id "$CLUSTER_ID" --config $config/server.properties
exec "$JAVA_HOME/bin/java" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 ${KAFKA_HEAP_OPTS:--Xmx1g} -cp '/opt/kafka/libs/*' \
    -Dlog4j2.configurationFile=/opt/kafka/log4j2.properties kafka.Kafka $config/server.properties
