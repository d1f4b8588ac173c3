import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.lang.reflect.Field;
import java.lang.reflect.Proxy;
import java.net.InetAddress;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Deque;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.common.ApplicationID;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.blob.VoidBlobWriter;
import org.apache.flink.runtime.checkpoint.StandaloneCheckpointRecoveryFactory;
import org.apache.flink.runtime.clusterframework.types.AllocationID;
import org.apache.flink.runtime.clusterframework.types.ResourceID;
import org.apache.flink.runtime.clusterframework.types.ResourceProfile;
import org.apache.flink.runtime.concurrent.ComponentMainThreadExecutor;
import org.apache.flink.runtime.deployment.TaskDeploymentDescriptor;
import org.apache.flink.runtime.execution.ExecutionState;
import org.apache.flink.runtime.executiongraph.ExecutionAttemptID;
import org.apache.flink.runtime.executiongraph.failover.FailoverStrategy;
import org.apache.flink.runtime.io.network.partition.JobMasterPartitionTrackerImpl;
import org.apache.flink.runtime.io.network.partition.PartitionNotFoundException;
import org.apache.flink.runtime.io.network.partition.ResultPartitionID;
import org.apache.flink.runtime.io.network.partition.ResultPartitionType;
import org.apache.flink.runtime.jobgraph.DistributionPattern;
import org.apache.flink.runtime.jobgraph.IntermediateDataSetID;
import org.apache.flink.runtime.jobgraph.IntermediateResultPartitionID;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.runtime.jobgraph.JobGraphBuilder;
import org.apache.flink.runtime.jobgraph.JobType;
import org.apache.flink.runtime.jobgraph.JobVertex;
import org.apache.flink.runtime.jobgraph.tasks.AbstractInvokable;
import org.apache.flink.runtime.jobmanager.slots.TaskManagerGateway;
import org.apache.flink.runtime.jobmaster.DefaultExecutionDeploymentTracker;
import org.apache.flink.runtime.jobmaster.DefaultSlotPoolServiceSchedulerFactory;
import org.apache.flink.runtime.jobmaster.JobMasterId;
import org.apache.flink.runtime.jobmaster.slotpool.DefaultDeclarativeSlotPoolFactory;
import org.apache.flink.runtime.jobmaster.slotpool.SlotPoolService;
import org.apache.flink.runtime.messages.Acknowledge;
import org.apache.flink.runtime.metrics.groups.UnregisteredMetricGroups;
import org.apache.flink.runtime.scheduler.DefaultScheduler;
import org.apache.flink.runtime.scheduler.SchedulerNG;
import org.apache.flink.runtime.scheduler.strategy.ExecutionVertexID;
import org.apache.flink.runtime.shuffle.NettyShuffleMaster;
import org.apache.flink.runtime.shuffle.ShuffleMasterContextImpl;
import org.apache.flink.runtime.taskexecutor.slot.SlotOffer;
import org.apache.flink.runtime.taskmanager.TaskExecutionState;
import org.apache.flink.runtime.taskmanager.TaskManagerLocation;
import org.apache.flink.util.InstantiationUtil;
import org.slf4j.LoggerFactory;

/**
 * Flink's DefaultScheduler with its own slot pool, whose TaskManagers only take what they are sent: FlinkScheduler SUBTASKS ROUNDS. Prints
 * a line of JSON for each round: milliseconds of the process's processor time until 2 x SUBTASKS subtasks with a blocking all-to-all edge
 * are deployed, the first half of which has finished, and for the restart set of one failure. What is deployed is serialized, as Flink's
 * RPC does it. Java compiles it before it runs it.
 */
public class FlinkScheduler {
    static final int SLOTS = 8;
    static final long SOON_MS = 1_000;

    /** Never runs. */
    public static class Nothing extends AbstractInvokable {
        public Nothing() {
            super(null);
        }

        @Override
        public void invoke() {}
    }

    /** The main thread: what it is given waits until `drain`. What is due within a second is due now, the rest never. */
    static class MainThread implements ComponentMainThreadExecutor {
        final Deque<Runnable> waiting = new ArrayDeque<>();

        void drain() {
            for (Runnable next; (next = waiting.poll()) != null; ) {
                next.run();
            }
        }

        @Override
        public void assertRunningInMainThread() {}

        @Override
        public void execute(Runnable command) {
            waiting.add(command);
        }

        @Override
        public ScheduledFuture<?> schedule(Runnable command, long delay, TimeUnit unit) {
            if (unit.toMillis(delay) < SOON_MS) {
                waiting.add(command);
            }
            return null;
        }

        @Override
        public <V> ScheduledFuture<V> schedule(Callable<V> callable, long delay, TimeUnit unit) {
            return null;
        }

        @Override
        public ScheduledFuture<?> scheduleAtFixedRate(Runnable command, long initial, long period, TimeUnit unit) {
            return null;
        }

        @Override
        public ScheduledFuture<?> scheduleWithFixedDelay(Runnable command, long initial, long delay, TimeUnit unit) {
            return null;
        }
    }

    /** What makes descriptors and sends them: on the thread that asks for it. */
    static class AtOnce extends ScheduledThreadPoolExecutor {
        AtOnce() {
            super(1);
        }

        @Override
        public void execute(Runnable command) {
            command.run();
        }
    }

    static final OperatingSystemMXBean PROCESS = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    static double cpuMs() {
        return PROCESS.getProcessCpuTime() / 1e6;
    }

    static long bytes;
    static final List<ExecutionAttemptID> deployed = new ArrayList<>();

    static TaskManagerGateway gateway() {
        Class<?>[] kinds = {TaskManagerGateway.class};
        return (TaskManagerGateway) Proxy.newProxyInstance(FlinkScheduler.class.getClassLoader(), kinds, (self, method, given) -> {
            if (method.getName().equals("submitTask")) {
                deployed.add(((TaskDeploymentDescriptor) given[0]).getExecutionAttemptId());
                bytes += InstantiationUtil.serializeObject(given[0]).length;
            }
            if (method.getReturnType() == CompletableFuture.class) {
                return CompletableFuture.completedFuture(Acknowledge.get());
            }
            return method.getReturnType() == String.class ? "nowhere" : null;
        });
    }

    static JobGraph graph(int subtasks) {
        JobVertex map = new JobVertex("map"), reduce = new JobVertex("reduce");
        for (JobVertex each : List.of(map, reduce)) {
            each.setInvokableClass(Nothing.class);
            each.setParallelism(subtasks);
        }
        reduce.connectNewDataSetAsInput(
                map, DistributionPattern.ALL_TO_ALL, ResultPartitionType.BLOCKING, new IntermediateDataSetID(), false, false);
        return JobGraphBuilder.newBatchJobGraphBuilder().setJobName("wide").addJobVertex(map).addJobVertex(reduce).build();
    }

    static void all(SchedulerNG scheduler, List<ExecutionAttemptID> attempts, ExecutionState... states) {
        for (ExecutionAttemptID each : attempts) {
            for (ExecutionState state : states) {
                scheduler.updateTaskExecutionState(new TaskExecutionState(each, state));
            }
        }
    }

    static void expect(boolean holds, String what) {
        if (!holds) {
            throw new IllegalStateException(what + ": " + deployed.size() + " are deployed");
        }
    }

    public static void main(String[] arguments) throws Exception {
        int subtasks = Integer.parseInt(arguments[0]);
        ScheduledExecutorService timers = new AtOnce();
        Thread.setDefaultUncaughtExceptionHandler((thread, failure) -> {
            failure.printStackTrace();
            System.exit(1);
        });
        for (int round = 0; round < Integer.parseInt(arguments[1]); round++) {
            round(subtasks, timers);
        }
        System.exit(0);
    }

    static void round(int subtasks, ScheduledExecutorService timers) throws Exception {
        deployed.clear();
        bytes = 0;
        System.gc();
        Configuration settings = new Configuration();
        settings.setString("jobmanager.scheduler", "Default");
        JobGraph graph = graph(subtasks);
        graph.setApplicationId(new ApplicationID());
        MainThread main = new MainThread();
        double started = cpuMs();
        DefaultSlotPoolServiceSchedulerFactory factory =
                DefaultSlotPoolServiceSchedulerFactory.fromConfiguration(settings, JobType.BATCH, false);
        SlotPoolService slots =
                factory.createSlotPoolService(graph.getJobID(), new ApplicationID(), new DefaultDeclarativeSlotPoolFactory(), main);
        slots.start(JobMasterId.generate(), "nowhere");
        NettyShuffleMaster shuffle = new NettyShuffleMaster(new ShuffleMasterContextImpl(settings, failure -> {}));
        SchedulerNG scheduler = factory.createScheduler(
                LoggerFactory.getLogger("bench"), graph, Runnable::run, settings, slots, timers,
                FlinkScheduler.class.getClassLoader(), new StandaloneCheckpointRecoveryFactory(), Duration.ofMinutes(5),
                VoidBlobWriter.getInstance(), UnregisteredMetricGroups.createUnregisteredJobManagerJobMetricGroup(), Duration.ofMinutes(5),
                shuffle, new JobMasterPartitionTrackerImpl(graph.getJobID(), shuffle, id -> Optional.empty()),
                new DefaultExecutionDeploymentTracker(), 0L, main, Throwable::printStackTrace, (job, status, at) -> {},
                Collections.emptyList(), nodes -> {});
        scheduler.startScheduling();
        main.drain();
        for (int number = 0; number < (subtasks + SLOTS - 1) / SLOTS; number++) {
            ResourceID id = new ResourceID("tm-" + number);
            slots.registerTaskManager(id);
            TaskManagerLocation location = new TaskManagerLocation(id, InetAddress.getLoopbackAddress(), 10_000 + number);
            List<SlotOffer> offers = new ArrayList<>();
            for (int slot = 0; slot < SLOTS; slot++) {
                offers.add(new SlotOffer(new AllocationID(), slot, ResourceProfile.ANY));
            }
            slots.offerSlots(location, gateway(), offers);
            main.drain();
        }
        expect(deployed.size() == subtasks, "the first half");
        double first = cpuMs();
        List<ExecutionAttemptID> maps = new ArrayList<>(deployed);
        deployed.clear();
        all(scheduler, maps, ExecutionState.INITIALIZING, ExecutionState.RUNNING);
        main.drain();
        for (ExecutionAttemptID each : maps) {
            all(scheduler, List.of(each), ExecutionState.FINISHED);
            main.drain();
        }
        expect(deployed.size() == subtasks, "the second half");
        double second = cpuMs();
        List<ExecutionAttemptID> reduces = new ArrayList<>(deployed);
        all(scheduler, reduces, ExecutionState.INITIALIZING, ExecutionState.RUNNING);
        main.drain();
        Field field = DefaultScheduler.class.getDeclaredField("failoverStrategy");
        field.setAccessible(true);
        FailoverStrategy strategy = (FailoverStrategy) field.get(scheduler);
        ResultPartitionID lost = new ResultPartitionID(
                new IntermediateResultPartitionID(graph.getVerticesSortedTopologicallyFromSources().get(0).getProducedDataSets().get(0).getId(), 0),
                maps.get(0));
        long before = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
        Set<ExecutionVertexID> again =
                strategy.getTasksNeedingRestart(reduces.get(5).getExecutionVertexId(), new PartitionNotFoundException(lost));
        long after = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
        System.out.printf("{\"first_ms\": %.1f, \"second_ms\": %.1f, \"set_ms\": %.2f, \"set\": %d, \"megabytes\": %.1f}%n",
                first - started, second - first, (after - before) / 1e6, again.size(), bytes / 1e6);
        scheduler.closeAsync();
        main.drain();
        slots.close();
    }
}
