import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;

/** A mini cluster of Flink that runs one job for ever, with its REST on a port: FlinkServed PORT. Java compiles it before it runs it. */
public class FlinkServed {
    public static void main(String[] arguments) throws Exception {
        Configuration settings = new Configuration();
        settings.setString("rest.address", "127.0.0.1");
        settings.setString("rest.bind-address", "127.0.0.1");
        settings.setString("rest.bind-port", arguments[0]);
        settings.setString("rest.port", arguments[0]);
        settings.setString("taskmanager.numberOfTaskSlots", "2");
        settings.setString("parallelism.default", "2");
        settings.setString("taskmanager.memory.managed.size", "64mb");
        settings.setString("taskmanager.memory.network.max", "64mb");
        TableEnvironment tables =
                TableEnvironment.create(EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(settings).build());
        tables.executeSql("CREATE TABLE events (k INT) WITH ('connector' = 'datagen', 'rows-per-second' = '1', 'fields.k.max' = '9')");
        tables.executeSql("CREATE TABLE counted (k INT, n BIGINT) WITH ('connector' = 'blackhole')");
        tables.executeSql("INSERT INTO counted SELECT k, COUNT(*) FROM events GROUP BY k").await();
    }
}
