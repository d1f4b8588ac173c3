import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.JobStatus;
import org.apache.flink.client.deployment.StandaloneClusterId;
import org.apache.flink.client.program.rest.RestClusterClient;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.RestOptions;
import org.apache.flink.runtime.client.JobStatusMessage;
import org.apache.flink.runtime.execution.Environment;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.runtime.jobgraph.JobGraphBuilder;
import org.apache.flink.runtime.jobgraph.JobVertex;
import org.apache.flink.runtime.jobgraph.tasks.AbstractInvokable;

/**
 * Jobs of one vertex that does nothing, sent to a session cluster by Flink's own client: NoOpJobs PORT, then a number of jobs for each
 * line of standard input. Prints for each the seconds until all have FINISHED. The class is on the cluster's class path, so no job has files.
 */
public class NoOpJobs {
    static final int AT_ONCE = 16;
    static final long LOOK_MS = 20;

    /** Returns at once. */
    public static class Nothing extends AbstractInvokable {
        public Nothing(Environment environment) {
            super(environment);
        }

        @Override
        public void invoke() {}
    }

    static JobGraph graph(int number) {
        JobVertex vertex = new JobVertex("nothing");
        vertex.setInvokableClass(Nothing.class);
        vertex.setParallelism(1);
        return JobGraphBuilder.newStreamingJobGraphBuilder().setJobName("no-op " + number).addJobVertex(vertex).build();
    }

    static double seconds(RestClusterClient<StandaloneClusterId> client, int jobs) throws Exception {
        long before = client.listJobs().get().stream().filter(NoOpJobs::finished).count();
        long began = System.nanoTime();
        Semaphore free = new Semaphore(AT_ONCE);
        List<CompletableFuture<JobID>> sent = new ArrayList<>();
        for (int number = 0; number < jobs; number++) {
            free.acquire();
            sent.add(client.submitJob(graph(number)).whenComplete((id, failure) -> free.release()));
        }
        for (CompletableFuture<JobID> each : sent) {
            each.get();
        }
        while (client.listJobs().get().stream().filter(NoOpJobs::finished).count() < before + jobs) {
            Thread.sleep(LOOK_MS);
        }
        return (System.nanoTime() - began) / 1e9;
    }

    static boolean finished(JobStatusMessage job) {
        if (job.getJobState().isTerminalState() && job.getJobState() != JobStatus.FINISHED) {
            throw new IllegalStateException(job.getJobId() + " is " + job.getJobState());
        }
        return job.getJobState() == JobStatus.FINISHED;
    }

    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new Configuration();
        configuration.set(RestOptions.ADDRESS, "127.0.0.1");
        configuration.set(RestOptions.PORT, Integer.parseInt(arguments[0]));
        try (RestClusterClient<StandaloneClusterId> client =
                new RestClusterClient<>(configuration, StandaloneClusterId.getInstance());
                BufferedReader asked = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line; (line = asked.readLine()) != null; ) {
                System.out.println("seconds " + seconds(client, Integer.parseInt(line.strip())));
            }
        }
    }
}
