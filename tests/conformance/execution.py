"""Items about JobMaster, TaskManager, stores, and where Flink is known to be weak: see `items.py`."""

from __future__ import annotations

from .items import Item, Without

JM, TM, ST = "test_job_master.py:", "test_task_manager.py:", "test_stores.py:"
RESTARTS, RESETTING = "test_job_master_restarts.py:", "test_job_master_resetting.py:"
SPECULATION = "test_job_master_speculation.py:"
OF_JM, OF_TM, ENDS = "test_job_master_machine.py:", "test_task_manager_machine.py:", "test_task_manager_ends.py:"
PORTS, BLOBS, CACHE = "test_dispatcher_ports.py:", "test_io_blobs.py:", "test_blob_cache.py:"

JOB_MASTER = (
    Item("JobMasterTest", "testHeartbeatTimeoutWithTaskManager, testTaskManagerBecomesUnreachableTriggersDisconnect, "
         "testJobFailureWhenGracefulTaskExecutorTermination, testJobFailureWhenTaskExecutorHeartbeatTimeout",
         "One detector, the ResourceManager: attempts of a lost TaskManager run elsewhere, and that is no failure.", (
             f"{JM}test_attempts_of_a_lost_task_manager_run_elsewhere",
             f"{OF_JM}test_a_lost_task_manager_moves_its_attempts_without_counting_a_failure",
             "tests/transcripts/task_manager_stops.txt",
         )),
    Item("JobMasterTest", "testHeartbeatTimeoutWithResourceManager, testReconnectionAfterDisconnect, "
         "testResourceManagerConnectionAfterStart", "A new life of the ResourceManager is declared to; what runs goes on.", (
             f"{JM}test_a_new_life_of_the_resource_manager_is_declared_to_and_nothing_that_runs_is_touched",
         )),
    Item("JobMasterTest", "testJobMasterRejectsTaskExecutorRegistrationIfJobIdsAreNotEqual",
         "A slot that is offered for a job that is not here is given back.", (
             f"{JM}test_a_slot_that_is_offered_for_a_job_that_is_not_here_is_given_back",
         )),
    Item("JobMasterTest", "testJobMasterAcknowledgesDuplicateTaskExecutorRegistrations", "A repeat changes nothing.", (
        f"{JM}test_a_slot_that_is_offered_again_is_taken_once",
        "test_resource_manager_machine.py:test_a_task_manager_that_registers_again_is_taken_as_it_is",
    )),
    Item("JobMasterTest", "testJobMasterDisconnectsOldTaskExecutorIfNewSessionIsSeen", "A later incarnation ends the one before.", (
        f"{JM}test_a_task_manager_that_came_again_has_lost_what_it_held_before",
        f"{OF_JM}test_a_lost_earlier_incarnation_leaves_the_slots_of_the_later_one",
    )),
    Item("JobMasterTest", "testJobMasterOnlyTerminatesAfterTheSchedulerHasClosed", "A job is kept until its end is stored.", (
        f"{JM}test_a_job_is_kept_until_its_end_is_stored", f"{OF_JM}test_retired_of_another_acceptance_is_of_another_job",
    )),
    Item("JobMasterTest", "testAllocatedSlotReportDoesNotContainStaleInformation", "What is declared has no slot that is given back.", (
        f"{JM}test_what_is_declared_has_no_slot_that_is_given_back",
    )),
    Item("DefaultSchedulerTest", "updateTaskExecutionStateReturnsFalseIfExecutionDoesNotExist",
         "The state of an attempt that is not known changes nothing.", (
             f"{JM}test_the_state_of_an_attempt_that_is_not_known_changes_nothing",
             f"{OF_JM}test_a_late_word_of_an_old_attempt_changes_nothing",
         )),
    Item("DefaultSchedulerTest", "skipDeploymentIfVertexVersionOutdated, releaseSlotIfVertexVersionOutdated",
         "A late slot is given the new attempt, or goes back.", (
             f"{JM}test_a_slot_that_comes_after_a_restart_is_given_the_new_attempt",
             f"{JM}test_a_slot_that_comes_when_its_job_ends_is_given_back",
         )),
    Item("DefaultSchedulerTest", "jobStatusIsRestartingIfOneVertexIsWaitingForRestart",
         "A job is RESTARTING while a subtask waits for its restart.", (
             f"{JM}test_a_job_is_restarting_while_one_of_its_subtasks_waits_for_its_restart",
         )),
    Item("DefaultSchedulerTest", "cancelWhileRestartingShouldWaitForRunningTasks", "The end of a cancel waits for what runs.", (
        f"{JM}test_a_cancel_while_one_subtask_waits_for_its_restart_waits_for_the_running_one",
    )),
    Item("DefaultSchedulerTest", "testExceptionHistoryConcurrentRestart, testExceptionHistoryTruncation",
         "Failures are kept in their order, the last ones of each subtask, below the one that caused the restart.", (
             "test_job_master_history.py:test_what_fails_while_a_restart_waits_is_concurrent_with_what_caused_it",
             "test_job_master_history.py:test_the_history_is_truncated_and_says_by_how_much",
             "test_flink_api.py:test_what_failed_while_a_job_restarted_is_below_what_caused_that",
             f"{JM}test_two_failures_at_one_moment_are_both_kept_in_their_order",
             f"{JM}test_of_the_failures_of_a_subtask_the_last_ones_are_kept",
             "test_job_master_costs.py:test_the_failures_that_a_job_keeps_are_bounded_in_number_and_bytes",
         )),
    Item("ExecutionGraphRestartTest", "testCancelWhileRestarting, testCancelWhileFailing, testFailWhileCanceling, "
         "testFailExecutionAfterCancel", "A cancel is right at any moment; a failure behind it is CANCELED.", (
             f"{JM}test_a_cancel_while_one_subtask_waits_for_its_restart_waits_for_the_running_one",
             f"{JM}test_a_cancel_while_the_job_fails_makes_it_canceled",
             f"{JM}test_a_failure_while_the_job_is_canceled_does_not_make_it_failed",
             f"{OF_JM}test_cancel_at_any_moment",
         )),
    Item("ExecutionVertexCancelTest", "from CREATED and SCHEDULED; repeated; a late failure behind a cancel",
         "What does not run is canceled at once, what runs is asked to end once.", (
             f"{JM}test_what_does_not_run_yet_is_canceled_at_once_and_without_a_message",
             f"{JM}test_a_cancel_that_is_repeated_is_sent_to_its_task_manager_once",
             f"{JM}test_a_failure_while_the_job_is_canceled_does_not_make_it_failed",
         )),
    Item("ExecutionGraphSuspendTest", "from each other state to SUSPENDED",
         "What runs, waits or is tried again is suspended; what is ending comes to its end.", (
             "test_job_master_suspension.py:test_what_runs_is_canceled_and_runs_again_later",
             "test_job_master_suspension.py:test_who_waits_for_a_slot_or_a_retry_is_suspended_at_once",
             "test_job_master_suspension.py:test_a_job_that_is_ending_comes_to_its_end",
         )),
    Item("ExecutionGraphSuspendTest", "from FAILED and CANCELED: unchanged", "Nothing leaves an end.", (
        f"{JM}test_nothing_leaves_an_end", f"{OF_JM}test_the_tables_are_total_and_nothing_leaves_an_end",
    )),
    Item("RestartPipelinedRegionFailoverStrategyTest", "testRegionFailoverForDataConsumptionErrors",
         "Who wrote rows that are gone runs again, and all that has read of them.", (
             f"{RESETTING}test_rows_that_are_gone_are_made_anew_and_all_that_read_of_them_runs_again",
             f"{RESETTING}test_what_has_finished_after_reading_of_them_runs_again_too",
             "tests/transcripts/lost_rows.txt",
         )),
    Item("DefaultSchedulerTest", "handleGlobalFailure, handleGlobalFailureWithLocalFailure",
         "Where a job asks for full restarts, a failure runs all of it again; others that fail meanwhile are a part of that.", (
             f"{RESETTING}test_a_full_restart_runs_all_subtasks_again_after_one_failure",
             f"{RESETTING}test_a_lost_task_manager_restarts_all_of_a_job_whose_restarts_are_full",
         )),
    Item("SpeculativeExecutionTest", "slow by the finished ones; another slot; the first to finish, the others canceled",
         "A slow subtask has a second attempt on another TaskManager; whichever finishes first counts, and the other one is canceled.", (
             f"{SPECULATION}test_what_is_slow",
             f"{SPECULATION}test_a_second_attempt_runs_on_another_task_manager_alone",
             f"{SPECULATION}test_the_second_attempt_finishes_first_and_counts_and_the_first_is_canceled",
             f"{SPECULATION}test_the_first_attempt_finishes_first_and_the_second_is_canceled",
             "tests/transcripts/second_attempt.txt",
         )),
    Item("SpeculativeExecutionTest", "no restart while one attempt goes on; a restart when all have failed",
         "The failure of one of two is none of the subtask, and uses up nothing; that of the last one is.", (
             f"{SPECULATION}test_the_failure_of_one_is_none_of_the_subtask",
             f"{SPECULATION}test_the_failure_of_the_last_one_is_the_subtasks",
             f"{SPECULATION}test_a_lost_task_manager_costs_no_move_where_the_other_attempt_goes_on",
         )),
    Item("FailureRateRestartBackoffTimeStrategyTest", "testFailuresExceedingRate",
         "Exactly so many failures within an interval are allowed; the next one fails the job.", (
             f"{RESTARTS}test_failure_rate_allows_exactly_so_many_failures_within_an_interval",
             f"{RESTARTS}test_the_failure_that_is_too_many_fails_the_job",
         )),
    Item("ExponentialDelayRestartBackoffTimeStrategyTest", "testMergeMultipleExceptionsIntoOneAttempt",
         "Failures while a restart waits are merged into it, and do not count.", (
             f"{RESTARTS}test_failures_while_a_restart_waits_are_merged_into_it",
             f"{RESTARTS}test_a_job_is_restarting_while_one_subtask_waits_and_merged_failures_return_together",
         )),
    Item("ExponentialDelayRestartBackoffTimeStrategyTest", "testJitterNoHigherThanMax, testResetBackoff",
         "Jitter stays within the first and the longest delay; a quiet time begins the delays anew.", (
             f"{RESTARTS}test_jitter_stays_within_the_first_and_the_longest_delay",
             f"{RESTARTS}test_a_quiet_time_begins_the_delays_anew",
         )),
    Item("FixedDelayRestartBackoffTimeStrategyTest", "the number of restarts; no restart strategy",
         "After its restarts a job fails with the cause; with none it fails at once.", (
             f"{RESTARTS}test_fixed_delay_restarts_so_often_and_no_more", f"{RESTARTS}test_none_fails_at_once",
             f"{OF_JM}test_after_its_restarts_the_job_fails_with_the_cause",
         )),
    Item("AdaptiveSchedulerTest", "testRequestDefaultResourceRequirements, testRequestUpdatedResourceRequirements",
         "What a job is to have is 1 up to the parallelism of its graph, then up to what was asked for last.", (
             "test_flink_requirements.py:test_each_vertex_is_told_with_its_bounds_and_gets_the_upper_one",
             "test_dispatcher_requirements.py:test_the_same_numbers_are_answered_and_nobody_is_asked",
             "test_job_master_rescaling.py:test_what_runs_is_canceled_and_begins_again_beside_what_stays_the_same",
         )),
)  # fmt: skip

TASK_MANAGER = (
    Item("TaskExecutorTest", "testHeartbeatTimeoutWithJobManager, testDisconnectFromJobMasterWhenNewLeader, "
         "testOfferSlotToJobMasterAfterTimeout", "Attempts run on under the new leader, and each life of a shard is offered its slots.", (
             f"{TM}test_what_a_job_holds_is_offered_to_each_new_life_of_its_job_master_and_runs_on",
             f"{JM}test_a_shard_that_is_born_anew_adopts_no_attempt_of_the_life_before",
             "tests/transcripts/standby.txt",
         )),
    Item("TaskExecutorTest", "testHeartbeatTimeoutWithResourceManager, testInitialSlotReportFailure",
         "Each life of the ResourceManager is told all slots with the registration.", (
             f"{TM}test_each_life_of_the_resource_manager_is_reported_all_slots_with_the_registration",
         )),
    Item("TaskExecutorTest", "testRMHeartbeatStopWhenLeadershipRevoked, testIgnoringSlotRequestsIfNotRegistered",
         "What is meant for another incarnation is not for this one.", (
             f"{TM}test_what_is_meant_for_an_earlier_incarnation_ends_nobody",
             "test_task_manager_shell.py:test_what_stood_in_its_inbox_before_is_not_for_it",
         )),
    Item("TaskExecutorTest", "testSlotAcceptance", "A used slot is active; a rejected one is freed and reported.", (
        f"{TM}test_of_offered_slots_the_used_one_is_active_and_the_other_is_freed_and_reported",
    )),
    Item("TaskExecutorTest", "testSubmitTaskBeforeAcceptSlot", "The deployment is the acceptance.", (
        f"{TM}test_a_task_runs_though_nothing_has_accepted_its_slot_yet",
    )),
    Item("TaskExecutorTest", "testRejectedSlotNotFreedIfAnotherOfferIsPending, testAcceptedSlotNotActivatedIfAnotherOfferIsPending",
         "A late message of an earlier allocation touches no later one.", (
             f"{TM}test_a_slot_that_was_given_again_is_not_touched_by_what_comes_late_of_its_earlier_job",
         )),
    Item("TaskExecutorTest", "testMaximumRegistrationDuration, testMaximumRegistrationDurationAfterConnectionLoss",
         "One where nothing runs waits; with an attempt in it, it ends when neither Kafka nor etcd answers.", (
             f"{TM}test_a_task_manager_that_is_not_registered_yet_beats_and_waits",
             "test_task_manager_shell.py:test_a_task_manager_where_nothing_runs_waits_for_kafka_and_etcd",
             "test_task_manager_shell.py:test_when_neither_kafka_nor_etcd_answers_it_ends_before_it_is_declared_lost",
         )),
    Item("TaskExecutorTest", "testReleaseOfJobResourcesIfJobMasterIsNotCorrect, testReleaseInactiveSlots",
         "What nobody needs is given back, with what runs in it killed.", (
             f"{TM}test_what_the_job_master_does_not_know_any_more_is_killed_and_freed",
             f"{TM}test_an_allocation_that_nobody_uses_is_given_back_and_both_masters_are_notified",
         )),
    Item("TaskExecutorTest", "testSyncSlotsWithJobMasterByHeartbeat: with the ResourceManager",
         "Heartbeats carry all slots now and then.", (f"{TM}test_heartbeats_carry_the_slots_until_both_sides_agree",)),
    Item("TaskExecutorGateway", "submitTask and cancelTask of an attempt that is there, or not",
         "An attempt runs once; one that is not there is over.", (
             f"{TM}test_an_attempt_that_is_deployed_twice_runs_once",
             f"{TM}test_of_an_attempt_that_is_not_there_the_end_is_reported",
         )),
)  # fmt: skip

STORES = (
    Item("JobResultStoreContractTest", "duplicates; dirty after clean", "The first result stands, whatever comes later.", (
        f"{ST}test_a_result_that_is_stored_twice_is_stored_once", f"{ST}test_no_result_makes_a_clean_one_dirty_again",
    )),
    Item("JobResultStoreContractTest", "clean twice; clean of an unknown one", "Both change nothing.", (
        f"{ST}test_a_result_is_marked_clean_as_often_as_you_like", f"{ST}test_a_result_of_nobody_is_not_marked_clean",
    )),
    Item("JobResultStoreContractTest", "what is visible; getDirtyResults",
         "A result is there from dirty on; a new leader is told which are dirty.", (
             f"{ST}test_a_result_is_there_from_dirty_on_and_stays", f"{ST}test_a_new_leader_is_told_which_results_are_dirty",
         )),
    Item("FileSystemJobResultStoreTest", "testStoreCleanJobResultDeletesDirtyFile", "The clean result takes the place of the dirty one.", (
        f"{ST}test_a_clean_result_takes_the_place_of_the_dirty_one",
    )),
    Item("DefaultExecutionPlanStoreTest", "recover a missing one; a foreign one is not updated; a failed recovery",
         "A put is create-if-absent and answers what stands; one broken graph is its own trouble.", (
             f"{ST}test_a_graph_that_is_not_there_is_none", f"{ST}test_a_graph_of_somebody_else_is_not_replaced",
             f"{ST}test_one_broken_graph_keeps_no_other_from_being_recovered",
         )),
    Item("DefaultExecutionPlanStoreTest", "own changes are not notified; onAddedExecutionPlan, onRemovedExecutionPlan",
         "What the leader does itself is not taken for somebody else's.", (
             "test_graph_listener.py:test_what_the_leader_does_itself_is_not_told",
             "test_graph_listener.py:test_a_graph_that_somebody_puts_there_is_told_once_until_there_is_room",
             "test_graph_listener.py:test_a_delete_that_etcd_tells_of_is_told_whoever_leads_then",
         )),
    Item("DefaultExecutionPlanStoreTest", "stop releases all; local clean-up only releases",
         "Whose term is over changes nothing; the graph stays for the next leader.", (
             f"{PORTS}test_who_leads_no_more_changes_nothing_and_knows_nothing",
         )),
    Item("DefaultExecutionPlanStoreTest", "testGlobalCleanupFailsIfRemovalReturnsFalse",
         "What cannot be deleted is noted, and swept later.", (
             f"{PORTS}test_what_cannot_be_deleted_holds_up_nothing",
             f"{PORTS}test_staged_output_whose_place_hangs_is_told_and_holds_up_no_other",
         )),
    Item("FileExecutionGraphInfoStoreTest", "testPut, testUnknownGet, testStoredJobOverview, testStoredJobsOverview",
         "An archive in storage for each ended job, which every leader finds; none for a live one.", (
             f"{ST}test_an_archive_outlives_every_leader_and_is_found_by_its_job", f"{ST}test_a_live_job_has_no_archive",
             "test_dispatcher.py:test_ended_jobs_are_listed_by_the_next_leader",
         )),
    Item("FileExecutionGraphInfoStoreTest, MemoryExecutionGraphInfoStoreTest", "testExecutionGraphExpiration, testMaximumCapacity",
         "Archives go after keep_hours, and above keep_archives the oldest; of the list, above retained_jobs.", (
             "test_housekeeping.py:test_old_uploads_logs_results_and_archives_go_and_young_ones_stay",
             "test_housekeeping.py:test_the_oldest_archives_beyond_so_many_go",
         )),
    Item("DispatcherResourceCleanupTest", "testArchivingFinishedJobToHistoryServer, testNotArchivingSuspendedJobToHistoryServer",
         "With archive_url a copy goes there, after the end is stored, and no end waits for it.", (
             f"{ST}test_an_archive_is_copied_for_the_history_when_its_job_ends_and_no_end_waits_for_it",
             "test_archivist.py:test_what_was_left_out_is_copied_by_the_sweep_and_what_is_old_goes",
         )),
    Item("BlobServerPutTest", "one content, one key; concurrent puts; failed puts",
         "One content is stored once, under its hash; a broken upload leaves nothing.", (
             f"{BLOBS}test_put_and_get", f"{BLOBS}test_many_uploads_of_one_content_store_it_once",
             f"{BLOBS}test_a_broken_upload_leaves_nothing",
         )),
    Item("BlobServerGetTest", "one fetch; corruption; testGetReDownloadsCorruptedPermanentBlobFromBlobStoreInCaseOfRestart",
         "A file is fetched once and checked at each use; a damaged one is fetched again.", (
             f"{CACHE}test_a_file_is_fetched_once_and_each_attempt_has_a_copy_of_its_own",
             f"{CACHE}test_attempts_that_begin_together_fetch_a_file_once", f"{CACHE}test_a_damaged_file_of_the_cache_is_fetched_again",
             f"{CACHE}test_a_file_with_other_bytes_is_refused", f"{BLOBS}test_client_notices_damage",
         )),
    Item("BlobCacheRetriesTest, BlobCacheCorruptionTest", "a fetch that fails, or comes damaged, is tried again",
         "So often as blob_fetch_retries says; nothing of a try is left.", (
             f"{CACHE}test_a_fetch_that_is_cut_leaves_nothing_and_is_tried_again",
             f"{CACHE}test_a_fetch_that_does_not_come_to_its_end_leaves_nothing",
         )),
    Item("BlobCacheCleanupTest", "reference counts by job; what was released goes after a time; size limit",
         "Attempts count, from launch to end; what none uses goes after a time, or above the bound.", (
             f"{CACHE}test_a_file_goes_a_time_after_its_last_use",
             f"{CACHE}test_above_its_bound_those_go_that_were_not_used_for_longest_and_nobody_uses",
         )),
    Item("BlobCachePutTest, BlobLibraryCacheManagerTest", "files of one job reach no other one",
         "An attempt has verified copies of its own job's files alone, and may write into them.", (
             f"{CACHE}test_what_an_attempt_does_to_its_copy_reaches_no_other_one",
             f"{CACHE}test_an_attempt_has_its_files_and_no_path_to_the_cache",
         )),
    Item("BlobServerDeleteTest", "isolation by job; twice; testJobCleanup", "Each job has its own; deleting twice is fine.", (
        f"{ST}test_each_job_has_its_own_copy_of_a_file_and_loses_no_other_ones",
        "test_io_storage.py:test_deleting_what_is_not_there_leaves_the_folder_above_it",
    )),
    Item("BlobServerCleanupTest", "transient ones by age; a failed deletion; testBlobServerRetainsJobs",
         "Uploads go by age, but not what is used; a failed deletion does not stop the others.", (
             f"{BLOBS}test_use_keeps_a_blob_from_being_swept",
             "test_io_storage.py:test_sweep_deletes_by_age_with_the_folders_left_empty",
             "test_housekeeping.py:test_old_uploads_logs_results_and_archives_go_and_young_ones_stay",
             f"{PORTS}test_nothing_but_a_jobs_own_staging_is_deleted",
         )),
)  # fmt: skip

BETTER = (
    Item("FLINK-9537", "one process for all masters: one job can end all", "What ends processes is passed over, and costs one job.", (
        "test_parked.py:test_a_job_whose_handling_ends_processes_fails_and_takes_down_nothing_else",
    )),
    Item("FLINK-40554, FLINK-30444", "one broken stored plan ends every leader", "It is that job's trouble alone.", (
        "test_dispatcher.py:test_one_stored_job_that_cannot_be_read_holds_up_no_other",
        f"{ST}test_one_broken_graph_keeps_no_other_from_being_recovered",
    )),
    Item("FLINK-39704", "a result is lost with the leadership, and the job runs again", "It is folded, so the next leader has it.", (
        f"{JM}test_an_end_that_was_observed_counts_for_the_next_leader",
        "test_dispatcher.py:test_an_end_that_was_reported_twice_is_announced_once",
    )),
    Item("FLINK-31709, FLINK-39989", "ended jobs vanish with the process", "The next leader lists and answers for them.", (
        "test_dispatcher.py:test_ended_jobs_are_listed_by_the_next_leader",
        "test_jobs.py:test_an_ended_job_is_answered_for_after_the_dispatcher_was_killed",
    )),
    Item("FLINK-40602", "jobs of a silent JobMaster are left out of the list", "They are listed, and shown with who is silent.", (
        "test_dispatcher.py:test_jobs_of_a_silent_job_master_are_listed_all_the_same",
    )),
    Item("FLINK-25486", "data of jobs are deleted at a change of leaders", "A change of leaders deletes nothing: every write is fenced.", (
        f"{PORTS}test_who_leads_no_more_changes_nothing_and_knows_nothing",
    )),
    Item("FLINK-10052, FLINK-6174", "a hiccup of ZooKeeper restarts all jobs", "etcd may be away for a minute; no attempt is touched.", (
        "test_scenarios.py:test_f7_etcd_away_for_a_minute",
        "test_election.py:test_a_new_leader_sends_what_the_one_before_had_folded_and_nobody_received",
    )),
    Item("FLINK-4911", "running tasks are not adopted by a new JobManager", "They run on under the next leader.", (
        f"{TM}test_what_a_job_holds_is_offered_to_each_new_life_of_its_job_master_and_runs_on", "tests/transcripts/all_killed.txt",
    )),
    Item("FLINK-12763, FLINK-10883", "no queue: a job without a slot fails, or hangs", "It waits in a queue with a reason and a place.", (
        "test_resource_manager_machine.py:test_a_waiting_job_is_told_why_and_its_place_and_that_it_waits_no_more",
        "tests/transcripts/queue.txt",
    )),
    Item("FLINK-21884 and since", "two detectors of lost TaskManagers, in series", "One detector, which notifies all at once.", (
        "test_resource_manager_liveness.py:test_a_silent_task_manager_is_lost_once_and_its_jobs_wait_or_move",
    )),
)  # fmt: skip

_CHECKPOINTS = "not there yet: checkpoints and savepoints"
WITHOUT = (
    Without("JobMasterTest", "testCheckpointPrecedesSavepointRecovery", _CHECKPOINTS),
    Without("DefaultSchedulerTest", "abortPendingCheckpointsWhenRestartingTasks, restoreStateWhenRestartingTasks", _CHECKPOINTS),
    Without("ExecutionVertexCancelTest", "a cancel whose call fails", "none: a message is sent until it is in Kafka"),
    Without("TaskExecutorTest", "testSyncSlotsWithJobMasterByHeartbeat: with the JobMaster",
            "none: they compare at each birth; later the ResourceManager does, by what both send it (`ReconcileSlots`)"),
    Without("TaskExecutorPartitionLifecycleTest", "testEnableBatchJobRecoveryAndRetainPartitions",
            "none: what was published lies in storage, not in a TaskManager"),
    Without("TaskExecutorRecoveryTest", "slots restored from disk", "none: a TaskManager that is started again has nothing [R28]"),
    Without("HeartbeatManagerTest", "testHeartbeatManagerIgnoresRecipientUnreachableExceptionIfDisabled",
            "none: there is one way to be silent, and no call that could fail"),
    Without("FileSystemJobResultStoreTest", "testDeleteOnCommit", "none: a tombstone stays, so that a late repeat is recognised [R18]"),
    Without("FileExecutionGraphInfoStoreTest", "testCacheLoading, testCloseCleansUp",
            "none: no Dispatcher holds archives, and none deletes them with its process"),
    Without("AdaptiveSchedulerTest", "the other tests of 68",
            "not there yet: a job that runs with fewer slots than it asks for, or takes more as they come"),
    Without("BatchJobRecoveryTest", "7 tests", "none: every job is recovered, from the log of its JobMaster"),
    Without("SpeculativeExecutionTest", "block the slow node, its timeout", "none: a host is blocked by hand"),
)  # fmt: skip
