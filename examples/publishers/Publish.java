import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.zip.CRC32;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Submits a job and follows it, with kafka-clients and Jackson alone. A JDK 17 or newer runs it as it stands:
 * java -cp 'KAFKA/libs/*' Publish.java HOST:PORT JOB
 */
public class Publish {
    static final Set<String> ENDS = Set.of("JobFinished", "JobFailed", "JobCanceled");
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        String bootstrap = args[0], job = args[1];
        ObjectNode request = JSON.createObjectNode().put("type", "SubmitJob").put("version", 1).put("job", job);
        ObjectNode graph = request.putObject("graph").put("name", "from-java");
        graph.putObject("vertices").putObject("greeting").put("sql", "SELECT 'Hello from Java' AS greeting");

        Map<String, Object> reading = Map.of("bootstrap.servers", bootstrap, "enable.auto.commit", false);
        Map<String, Object> writing = Map.of("bootstrap.servers", bootstrap, "acks", "all");
        StringDeserializer text = new StringDeserializer();
        try (var consumer = new KafkaConsumer<>(reading, text, text);
                var producer = new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer())) {
            TopicPartition facts = new TopicPartition("job.events", partition(job, consumer.partitionsFor("job.events").size()));
            consumer.assign(List.of(facts));
            consumer.seekToBeginning(List.of(facts)); // a job that is sent again may have ended: its facts stand there
            producer.send(new ProducerRecord<>("client.commands", JSON.writeValueAsString(request))).get();
            System.exit(follow(consumer, job) ? 0 : 1);
        }
    }

    /** Prints the job's facts to its end; whether it finished. */
    static boolean follow(KafkaConsumer<String, String> consumer, String job) throws Exception {
        while (true) {
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                if (!job.equals(record.key())) continue; // another job of the same partition
                System.out.println(record.value());
                JsonNode fact = JSON.readTree(record.value());
                if (ENDS.contains(fact.get("type").asText())) return fact.get("type").asText().equals("JobFinished");
            }
        }
    }

    /** Where Millrace puts the facts of a job: not Kafka's own partitioner, but crc32. */
    static int partition(String key, int partitions) {
        CRC32 crc = new CRC32();
        crc.update(key.getBytes(StandardCharsets.UTF_8));
        return (int) (crc.getValue() % partitions);
    }
}
