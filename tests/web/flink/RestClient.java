import org.apache.flink.api.common.JobID;
import org.apache.flink.client.deployment.StandaloneClusterId;
import org.apache.flink.client.program.rest.RestClusterClient;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.RestOptions;
import org.apache.flink.core.execution.CheckpointType;
import org.apache.flink.core.execution.SavepointFormatType;

/** What Flink's Java client reads of a cluster and of the jobs that are named, a line for each call. */
public class RestClient {

    interface Call {
        Object make() throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new Configuration();
        configuration.set(RestOptions.ADDRESS, "127.0.0.1");
        configuration.set(RestOptions.PORT, Integer.parseInt(arguments[0]));
        try (RestClusterClient<StandaloneClusterId> client =
                new RestClusterClient<>(configuration, StandaloneClusterId.getInstance())) {
            tell("listJobs", () -> client.listJobs().get().size());
            tell("getClusterOverview", () -> client.getClusterOverview().get().getNumTaskManagersConnected());
            tell("listCompletedClusterDatasetIds", () -> client.listCompletedClusterDatasetIds().get());
            for (int n = 1; n < arguments.length; n++) {
                JobID job = JobID.fromHexString(arguments[n]);
                tell("getJobStatus", () -> client.getJobStatus(job).get());
                tell("getJobDetails", () -> client.getJobDetails(job).get().getJobVertexInfos().size());
                tell("getAccumulators", () -> client.getAccumulators(job).get());
                tell("triggerSavepoint", () -> client.triggerSavepoint(job, null, SavepointFormatType.CANONICAL).get());
                tell("stopWithSavepoint", () -> client.stopWithSavepoint(job, false, null, SavepointFormatType.CANONICAL).get());
                tell("triggerCheckpoint", () -> client.triggerCheckpoint(job, CheckpointType.FULL).get());
                tell("cancel", () -> client.cancel(job).get());
                if (client.getJobStatus(job).get().isGloballyTerminalState()) {
                    tell("requestJobResult", () -> client.requestJobResult(job).get()
                            .toJobExecutionResult(RestClient.class.getClassLoader()).getJobID().equals(job));
                }
            }
            tell("disposeSavepoint", () -> client.disposeSavepoint("file:/s").get());
        }
    }

    private static void tell(String name, Call call) {
        String told;
        try {
            told = String.valueOf(call.make());
        } catch (Throwable failure) {
            Throwable cause = failure;
            while (cause.getCause() != null && cause.getCause() != cause) {
                cause = cause.getCause();
            }
            told = "failed: " + cause.toString().split("\n")[0];
        }
        System.out.println(name + " -> " + told);
    }
}
