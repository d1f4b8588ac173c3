#!/usr/bin/env bash
# Submits a job and follows it with Kafka's own console tools:   console.sh HOST:PORT JOB
# kafka-console-producer.sh and kafka-console-consumer.sh of Apache Kafka must be on PATH.
set -euo pipefail
kafka=$1 job=$2

# One request a line. The same job and graph again is the same job: to repeat this after a doubt is harmless.
kafka-console-producer.sh --bootstrap-server "$kafka" --topic client.commands <<END
{"type": "SubmitJob", "version": 1, "job": "$job", "graph": {"name": "from-the-console", "vertices": {"greeting": {"sql": "SELECT 'Hello from the console' AS greeting"}}}}
END

# The job's facts, in order; all jobs are on this topic, so it is looked for by its id.
exec 3< <(exec kafka-console-consumer.sh --bootstrap-server "$kafka" --topic job.events --from-beginning)
consumer=$!
trap 'kill "$consumer" 2>/dev/null || true' EXIT
while read -r event <&3; do
    case $event in *"\"job\":\"$job\""*) ;; *) continue ;; esac
    echo "$event"
    case $event in
        '{"type":"JobFinished"'*) exit 0 ;;
        '{"type":"JobFailed"'* | '{"type":"JobCanceled"'*) exit 1 ;;
    esac
done
