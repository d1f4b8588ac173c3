"""Items about Dispatcher, leadership, ResourceManager and SlotManager: see `items.py`."""

from __future__ import annotations

from .items import Item, Without

D, DC, RM, EL = "test_dispatcher.py:", "test_dispatcher_", "test_resource_manager.py:", "test_election.py:"
PROFILES = "test_resource_profiles.py:"
OF_RM, LIVE, WORK = "test_resource_manager_machine.py:", "test_resource_manager_liveness.py:", "test_resource_manager_workers.py:"

DISPATCHER = (
    Item("DispatcherTest", "testJobSubmission", "A valid submission is stored, acknowledged, and started on a shard.", (
        "tests/transcripts/submission.txt",
        f"{DC}submit.py:test_a_stored_submission_is_announced_then_starts_at_its_shard_and_is_acknowledged",
    )),
    Item("DispatcherTest, DispatcherResourceCleanupTest and JobMasterServiceLeadershipRunnerTest",
         "testJobSuspensionWhenDispatcherIsTerminated, testLocalCleanupWhenJobNotFinished, testShutDownSignalsJobAsNotFinished",
         "Jobs of a cluster that is shut down are SUSPENDED, kept in etcd, and go on later.", (
             "test_job_master_suspension.py:test_what_runs_is_canceled_and_runs_again_later",
             "test_shutting.py:test_a_cluster_that_is_shut_down_runs_nothing_and_its_jobs_go_on_later",
             "tests/transcripts/shutdown.txt",
         )),
    Item("DispatcherTest", "testDuplicateJobSubmissionWithGloballyTerminatedButDirtyJob",
         "An id whose end is dirty is the same job, and nothing runs; another graph is refused.", (
             f"{DC}submit.py:test_an_ended_job_that_only_etcd_knows_is_cleaned_up",
             f"{D}test_an_id_is_not_accepted_anew_while_the_end_of_its_job_is_stored",
         )),
    Item("DispatcherTest", "testDuplicateJobSubmissionIsDetectedOnSimultaneousSubmission", "Of many at once exactly one is accepted.", (
        f"{D}test_of_many_submissions_of_one_id_exactly_one_is_accepted",
        "test_client_jobs.py:test_many_threads_submit_one_id_and_one_job_comes_of_it",
    )),
    Item("DispatcherTest", "testDuplicateJobSubmissionWithRunningJobId",
         "The same id and graph is the same job, in whatever state; another graph is refused.", (
             f"{DC}submit.py:test_the_same_submission_again_is_the_same_job_with_its_status",
             f"{DC}submit.py:test_another_graph_under_a_known_id_is_a_conflict",
         )),
    Item("DispatcherTest and SessionDispatcherLeaderProcessTest",
         "testOnRemovedJobGraphDoesNotCleanUpHAFiles, onRemovedExecutionPlan_terminatesRunningJob",
         "A job whose graph somebody deletes is canceled; in Flink it is stopped, and shown as nothing.", (
             f"{DC}changed_graphs.py:test_a_live_job_whose_key_somebody_deletes_is_canceled_once",
             f"{DC}changed_graphs.py:test_a_delete_of_what_ends_or_of_an_earlier_job_of_the_id_cancels_nothing",
         )),
    Item("SessionDispatcherLeaderProcessTest",
         "onAddedExecutionPlan_submitsRecoveredJob, _ifNotRunning_isBeingIgnored, "
         "_duplicateJobSubmissionDueToFalsePositive_willBeIgnored, _failingRecovery_propagatesTheFailure",
         "A graph that somebody puts there is accepted once, by who leads; a broken one is refused, and ends no process.", (
             f"{DC}changed_graphs.py:test_a_graph_that_somebody_else_has_put_there_is_accepted_by_an_acceptance_of_its_own_and_started",
             f"{DC}changed_graphs.py:test_what_is_known_or_being_stored_is_not_taken_for_somebody_elses",
             "test_graph_listener.py:test_who_leads_no_more_looks_no_more",
             "test_graph_listener.py:test_what_is_malformed_is_told_once_and_noted_until_it_is_gone",
         )),
    Item("DispatcherTest", "testNonBlockingJobSubmission", "A silent JobMaster holds up neither submissions nor statuses.", (
        f"{D}test_a_job_master_that_never_answers_holds_up_neither_submissions_nor_statuses",
        f"{DC}requests.py:test_a_job_of_a_silent_job_master_is_shown_all_the_same",
    )),
    Item("DispatcherTest", "testCancellationOfCanceledTerminalDoesNotThrowException, "
         "testCancellationOfNonCanceledTerminalJobFailsWithAppropriateException",
         "A repeated cancel is harmless; of a job that ended otherwise it is refused, with its status.", (
             f"{DC}requests.py:test_cancel_of_an_ended_job", "tests/transcripts/cancel.txt",
         )),
    Item("DispatcherTest", "testJobManagerRunnerInitializationFailureFailsJob", "A graph that cannot be handled fails its job alone.", (
        "test_job_master.py:test_a_job_that_no_build_can_read_fails_and_others_start",
        "test_parked.py:test_a_job_whose_handling_ends_processes_fails_and_takes_down_nothing_else",
    )),
    Item("DispatcherTest", "testFatalErrorIfRecoveredJobsCannotBeStarted",
         "The same of a recovered job; in Flink it ends the process, again and again.", (
             f"{D}test_one_stored_job_that_cannot_be_read_holds_up_no_other",
             f"{DC}end.py:test_a_stored_graph_that_this_build_cannot_read_stops_nobody",
         )),
    Item("DispatcherTest", "testThatDirtilyFinishedJobsNotBeingRetriggered, testJobCleanupWithoutRecoveredJobGraph",
         "Graph and result are one key, so there is never both; what is dirty is cleaned up and not run.", (
             f"{D}test_a_dirty_end_without_a_graph_is_cleaned_up_and_starts_nothing",
         )),
    Item("DispatcherTest", "testJobResourceRequirementsAreGuardedAgainstConcurrentModification",
         "Two changes are two records, taken in their order; none waits for another, and the last one counts.", (
             f"{DC}requirements.py:test_what_was_asked_for_adds_up_and_back_again_is_a_change_as_any_other",
             "test_job_master_rescaling.py:test_asked_again_while_attempts_end_the_last_one_counts_and_its_numbers_add_up",
         )),
    Item("DispatcherTest", "testInvalidResourceRequirementsUpdate", "What cannot be is refused, with all that is wrong.", (
        f"{DC}requirements.py:test_what_cannot_be_is_refused_with_the_reason",
        f"{DC}requirements.py:test_no_job_has_more_subtasks_than_there_may_be",
        "tests/transcripts/rescaled.txt",
    )),
    Item("DispatcherTest", "testJobStatusIsShownDuringTermination", "A job's status is served while its end is stored and cleaned up.", (
        f"{D}test_the_status_of_a_job_is_served_while_its_end_is_stored_and_while_it_is_cleaned_up",
    )),
    Item("DispatcherTest", "testRequestMultipleJobDetails_returnsRunningOverSuspendedJob, _returnsFinishedOverSuspendedJob",
         "A job is listed once at every moment, live over ended.", (
             f"{D}test_a_job_is_listed_once_at_every_moment_of_its_life",
             f"{DC}listing.py:test_what_the_state_has_counts_more_than_what_etcd_had",
         )),
    Item("DispatcherTest", "testCacheJobExecutionResult, testThrowExceptionIfJobExecutionResultNotFound, "
         "testRetrieveJobResultAfterSubmissionOfFailedJob",
         "An ended job is answered for, also by a new leader; an unknown one is not found.", (
             f"{DC}requests.py:test_an_ended_job_is_answered_from_what_is_remembered",
             f"{DC}requests.py:test_an_unknown_job_is_not_found",
             f"{DC}end.py:test_a_failed_job_says_why",
             f"{DC}questions.py:test_a_failed_job_that_is_not_remembered_says_why",
             "test_jobs.py:test_an_ended_job_is_answered_for_after_the_dispatcher_was_killed",
         )),
    Item("DispatcherTest", "testOnlyRecoveredJobsAreRetainedInTheBlobServer",
         "What a job uses stays as long as the job; what nobody owns goes.", (
             "test_housekeeping.py:test_exchange_data_and_modules_that_nobody_owns_go",
             "test_housekeeping.py:test_what_a_live_job_wrote_long_ago_stays",
         )),
    Item("DispatcherResourceCleanupTest", "testGlobalCleanupWhenJobFinished, testGlobalCleanupWhenJobCanceled",
         "What a job left is deleted, whatever its end; then a tombstone stays.", (
             f"{D}test_the_end_of_a_job_is_cleaned_up_whatever_it_is",
             f"{DC}ports.py:test_cleaning_deletes_leavings_then_leaves_a_tombstone",
         )),
    Item("DispatcherResourceCleanupTest", "testGlobalCleanupWhenJobSubmissionFails", "A submission that is refused leaves nothing.", (
        f"{D}test_a_submission_that_is_refused_leaves_nothing", f"{DC}ports.py:test_modules_that_were_copied_in_vain_go",
    )),
    Item("DispatcherResourceCleanupTest", "testJobSubmissionUnderSameJobId",
         "An id is one job for ever, so a submission need not wait for the end of another one.", (
             f"{D}test_an_id_is_not_accepted_anew_while_the_end_of_its_job_is_stored", "tests/transcripts/same_id.txt",
         )),
    Item("DispatcherResourceCleanupTest", "testDuplicateJobSubmissionDoesNotDeleteJobMetaData",
         "A repeat finds what is stored, and changes nothing.", (
             f"{DC}ports.py:test_a_put_that_is_performed_again_is_ours",
             f"{DC}ports.py:test_a_batch_that_meets_a_known_id_is_split_and_answers_what_stands",
         )),
    Item("DispatcherResourceCleanupTest", "testFatalErrorIfJobCannotBeMarkedDirtyInJobResultStore, "
         "testErrorHandlingIfJobCannotBeMarkedAsCleanInJobResultStore",
         "Neither is fatal: both are tried until they are known.", (
             "test_stores.py:test_while_the_store_is_away_nothing_is_taken_for_stored",
             f"{DC}ports.py:test_an_ending_whose_answer_was_lost_stands", "test_failpoints.py:test_every_job_ends_once",
         )),
    Item("DispatcherCleanupITCase", "testCleanupThroughRetries, testCleanupNotCancellable, testCleanupAfterLeadershipChange",
         "A clean-up is tried again, cannot be canceled, and the next leader goes on with it.", (
             f"{D}test_a_clean_up_cannot_be_canceled", "test_failpoints.py:test_every_job_ends_once",
             f"{DC}end.py:test_recovery_starts_accepted_jobs_cleans_up_ended_ones_and_knows_the_rest",
         )),
)  # fmt: skip

LEADERSHIP = (
    Item("SessionDispatcherLeaderProcessTest", "testRecoveryWithMultipleExecutionPlansAndOneMatchingDirtyJobResult, "
         "testRecoveryWithoutExecutionPlanButDirtyJobResult", "Of each stored job what it needs is done: run, or cleaned up.", (
             f"{D}test_a_dirty_end_without_a_graph_is_cleaned_up_and_starts_nothing",
             f"{DC}end.py:test_recovery_goes_on_page_by_page",
         )),
    Item("SessionDispatcherLeaderProcessTest", "closeAsync_duringJobRecovery_preventsDispatcherServiceCreation, "
         "closeAsync_stopsServicesAndDispatcher, start_afterClose_doesNotHaveAnEffect",
         "Recovery goes on under the next leader; after the end of a term nothing more is sent.", (
             f"{DC}ports.py:test_recovery_goes_on_under_another_leader",
             "test_io_sending.py:test_what_waits_at_the_end_of_a_term_is_not_sent_any_more",
         )),
    Item("SessionDispatcherLeaderProcessTest", "confirmLeaderSessionFuture_completesAfterDispatcherServiceHasBeenStarted",
         "A new leader sends after it has folded its own election [R14].", (
             f"{EL}test_a_leader_speaks_once_its_election_is_in_the_log_and_not_before",
         )),
    Item("DefaultDispatcherRunnerTest", "grantLeadership_withExistingLeader_waitsForTerminationOfFirstLeader",
         "A term of a process has ended before its next one begins; another process's is fenced.", (
             f"{EL}test_a_term_has_ended_before_the_next_one_of_the_same_process_begins",
             "test_failpoints.py:test_a_write_that_slept_is_refused_for_its_epoch_alone",
         )),
    Item("DefaultDispatcherRunnerTest", "grantLeadership_validLeader_confirmsLeaderSession, _oldLeader_doesNotConfirmLeaderSession",
         "An election counts when it is read back, and not behind a later one.", (
             f"{EL}test_a_leader_speaks_once_its_election_is_in_the_log_and_not_before",
             f"{EL}test_an_election_that_comes_behind_a_later_one_makes_no_leader",
         )),
    Item("DefaultDispatcherRunnerTest", "revokeLeadership_withExistingLeader_stopsLeaderProcess",
         "A lost key or a higher epoch ends the term; the process follows.", (
             f"{EL}test_a_leader_whose_key_is_lost_does_nothing_more",
             "test_replica_election.py:"
             "test_a_leader_steps_down_when_its_key_is_anothers_or_gone_and_when_a_higher_epoch_is_folded",
         )),
    Item("DefaultLeaderElectionServiceTest", "testDelayedGrantCallAfterContenderRegistration",
         "Who comes late learns who leads: it watches first, then reads.", (
             f"{EL}test_who_comes_late_to_an_election_learns_who_leads",
             "test_shell.py:test_a_read_that_is_older_than_what_the_watch_told",
         )),
    Item("DefaultLeaderElectionServiceTest", "testOldConfirmLeaderInformationWhileHavingNewLeadership",
         "An election that comes late is void; exactly the silent epoch is preempted, no other.", (
             f"{EL}test_an_election_that_comes_behind_a_later_one_makes_no_leader",
             "test_replica_election.py:test_silence_between_two_own_probes_preempts_exactly_the_silent_epoch",
         )),
    Item("DefaultLeaderElectionServiceTest", "testHasLeadershipAsyncWithLeadershipLostButNoRevokeEventProcessed",
         "Who does not know yet that it lost is refused by etcd.", (
             f"{EL}test_an_elected_record_without_its_key_makes_nobody_a_leader",
             f"{DC}ports.py:test_who_leads_no_more_changes_nothing_and_knows_nothing",
         )),
    Item("JobMasterServiceLeadershipRunnerTest", "testInitialJobStatusIsInitializing",
         "A new job is INITIALIZING until its JobMaster answers.", (
             f"{D}test_a_job_is_initializing_until_its_job_master_has_it",
         )),
    Item("JobMasterServiceLeadershipRunnerTest", "testCancellationChangesJobStatusToCancelling",
         "A job is CANCELLING from the accepted cancel on.", (
             f"{DC}questions.py:test_a_job_is_cancelling_as_soon_as_its_cancel_is_accepted",
         )),
    Item("JobMasterServiceLeadershipRunnerTest", "testJobStatusCancellingIsClearedOnLeadershipLoss",
         "An accepted cancel survives every change of leaders.", (
             f"{D}test_an_accepted_cancel_survives_the_death_of_the_job_master",
             f"{DC}requests.py:test_cancel_of_a_job_that_is_being_stored_follows_its_start",
         )),
    Item("JobMasterServiceLeadershipRunnerTest", "testJobMasterGatewayIsInvalidatedOnLeadershipChanges",
         "A message to another life is dropped [R7].", (
             "test_replica.py:"
             "test_what_was_said_to_another_generation_changes_nothing_but_makes_its_sender_hear_of_this_one",
         )),
    Item("JobMasterServiceLeadershipRunnerTest", "testSkippingOfEnqueuedLeadershipOperations",
         "After the end of a term nothing is sent or done for what is folded.", (
             f"{EL}test_a_leader_whose_key_is_lost_does_nothing_more",
         )),
    Item("JobMasterServiceLeadershipRunnerTest", "an end that was observed before leadership was revoked (FLINK-39704)",
         "The next leader announces an end that is folded, once, and does not run the job again.", (
             "test_job_master.py:test_an_end_that_was_observed_counts_for_the_next_leader",
             f"{D}test_an_end_that_was_reported_twice_is_announced_once",
             f"{EL}test_a_new_leader_sends_what_the_one_before_had_folded_and_nobody_received",
             "tests/transcripts/job_master_killed.txt",
         )),
)  # fmt: skip

RESOURCES = (
    Item("ResourceManagerTest", "testDisconnectJobManagerWithTerminalStatusShouldRemoveJob, testDisconnectJobManagerClearsRequirements",
         "A job that wants and holds nothing is forgotten.", (
             f"{RM}test_a_job_that_has_ended_is_forgotten_and_its_slot_is_free",
             f"{OF_RM}test_who_wants_nothing_leaves_the_queue_without_a_word",
         )),
    Item("ResourceManagerTest", "testDisconnectJobManagerWithNonTerminalStatusShouldNotRemoveJob",
         "What a job holds stays its own while its JobMaster is away.", (
             f"{RM}test_what_a_job_holds_stays_while_its_job_master_is_away",
             f"{OF_RM}test_a_reborn_shard_is_forgotten_until_it_declares_and_what_its_jobs_hold_stays",
         )),
    Item("ResourceManagerTest", "testDisconnectTaskManagerInResourceManager", "Every shard is notified, once.", (
        f"{RM}test_each_job_master_is_notified_once_when_a_task_manager_leaves",
        f"{LIVE}test_a_silent_task_manager_is_lost_once_and_its_jobs_wait_or_move",
    )),
    Item("ResourceManagerTaskExecutorTest", "testDelayedRegisterTaskExecutor", "An older incarnation is not taken.", (
        f"{RM}test_an_older_registration_that_comes_late_is_not_taken",
        f"{LIVE}test_a_newer_incarnation_replaces_the_older_and_its_slots",
    )),
    Item("ResourceManagerTest", "a wrong token, a bad address", "What is addressed to another life is dropped.", (
        "test_replica.py:test_what_was_said_to_another_generation_changes_nothing_but_makes_its_sender_hear_of_this_one",
    )),
    Item("HeartbeatManagerTest", "the threshold; testHeartbeatManagerResetsFailedRpcCountOnSuccessfulRpc",
         "Each heartbeat gives the whole time again; then one is lost.", (f"{RM}test_one_that_beats_just_in_time_is_never_lost",)),
    Item("HeartbeatManagerTest", "testTargetUnmonitoring", "Who has left is not missed.", (
        f"{RM}test_one_that_has_left_is_not_missed_any_more",
    )),
    Item("FineGrainedSlotManagerTest", "testTaskManagerRegistration, testTaskManagerUnregistration",
         "Slots count from the registration to the loss of their TaskManager.", (
             f"{RM}test_slots_are_counted_from_the_registration_to_the_loss_of_their_task_manager",
         )),
    Item("FineGrainedSlotManagerTest", "testTaskManagerRegistrationDeductPendingTaskManager",
         "A worker that registers is awaited no more.", (f"{RM}test_a_worker_that_registers_is_awaited_no_more",)),
    Item("FineGrainedSlotManagerTest", "testSlotAllocationForPendingTaskManagerWillBeRespected",
         "A new slot is for whoever is first in the queue.", (
             f"{RM}test_a_job_that_a_worker_was_started_for_gets_its_slot_before_those_behind_it",
         )),
    Item("FineGrainedSlotManagerTest", "testReceivingUnknownSlotReport", "What an unknown TaskManager reports has no effect.", (
        f"{RM}test_what_an_unknown_task_manager_reports_has_no_effect",
    )),
    Item("FineGrainedSlotManagerTest", "testRequestNewResourcesAccordingToStrategyResult, testRequirementCheckOnlyTriggeredOnce",
         "What the requests between two ticks lack is started once.", (
             f"{RM}test_requests_between_two_ticks_start_what_they_need_once",
             f"{WORK}test_as_many_are_started_as_the_waiting_jobs_need_and_no_more_than_may_be",
             f"{PROFILES}test_none_is_started_for_a_job_that_its_slots_would_not_satisfy",
         )),
    Item("FineGrainedSlotManagerTest", "testNotificationAboutNotEnoughResources",
         "A job that no slot can come for waits, and its reason names the limit.", (
             f"{RM}test_a_job_is_told_why_no_slot_comes",
             f"{RM}test_a_job_is_told_which_part_no_slot_has",
             f"{WORK}test_each_limit_holds_and_is_named",
         )),
    Item("FineGrainedSlotManagerTest", "testGracePeriodForNotificationAboutNotEnoughResources",
         "A job that wants what the cluster cannot have fails after a time, if one is set.", (
             "test_resource_manager_not_enough.py:test_a_job_that_wants_what_there_is_not_fails_after_the_time_that_is_set",
             "test_resource_manager_not_enough.py:test_who_could_be_served_meanwhile_has_its_time_anew",
             "test_rare_messages.py:test_a_job_that_no_slot_is_large_enough_for_fails_after_a_while",
         )),
    Item("FineGrainedSlotManagerTest", "testMaxTotalResourceCpuExceeded, testMaxTotalResourceMemoryExceeded",
         "Each limit holds, and is named.", (f"{WORK}test_each_limit_holds_and_is_named",)),
    Item("FineGrainedSlotManagerTest", "testReclaimInactiveSlotsOnClearRequirements",
         "A slot that its job wants no more goes to the next one once it is given back, and not before.", (
             f"{RM}test_a_slot_whose_job_wants_it_no_more_goes_to_the_next_one_once_it_is_given_back",
         )),
    Item("FineGrainedSlotManagerTest", "testClearResourceRequirementsWithPendingTaskManager",
         "A worker that comes when nobody needs it is stopped again.", (
             f"{RM}test_a_worker_that_comes_when_nobody_needs_it_any_more_is_stopped",
         )),
    Item("ActiveResourceManagerTest", "testStartNewWorkerFailedRequesting", "A worker that was not started is asked for again.", (
        f"{WORK}test_one_that_is_not_started_is_stopped_and_the_job_is_told_in_the_providers_words",
    )),
    Item("ActiveResourceManagerTest", "testWorkerTerminatedBeforeRegister", "One that ends before it registers is replaced.", (
        f"{WORK}test_one_whose_process_has_ended_is_found_in_the_list_that_is_asked_for_each_second_meanwhile",
    )),
    Item("ActiveResourceManagerTest", "testWorkerTerminatedAfterRegister, testWorkerTerminatedNoLongerRequired",
         "One that is lost is replaced if it is needed, else not.", (
             f"{RM}test_a_worker_that_is_lost_and_needed_is_replaced", f"{RM}test_a_worker_that_is_lost_and_not_needed_is_not_replaced",
         )),
    Item("ActiveResourceManagerTest", "testStartWorkerIntervalOnWorkerTerminationExceedFailureRate",
         "Failures are followed by ever longer pauses.", (f"{WORK}test_failures_are_followed_by_ever_longer_pauses",)),
    Item("ActiveResourceManagerTest", "testRegisterUnknownWorker", "A stranger with the id of a worker is turned away.", (
        f"{WORK}test_a_stranger_with_the_id_of_a_worker_is_turned_away",
    )),
    Item("ActiveResourceManagerTest", "testWorkerRegistrationTimeout", "One that does not register in time is replaced.", (
        f"{WORK}test_one_that_does_not_register_in_time_is_replaced",
    )),
    Item("ActiveResourceManagerTest", "testRecoverWorkerFromPreviousAttempt, testResourceManagerRecoveredAfterReconcileTimeout",
         "A reborn ResourceManager takes over what runs, and grants when all shards have declared, or were waited for.", (
             f"{WORK}test_a_new_life_takes_over_what_runs_within_the_limits",
             f"{OF_RM}test_a_reborn_resource_manager_takes_over_the_allocations_that_are_reported",
             "test_resource_manager_silent.py:test_a_reborn_resource_manager_grants_to_others_when_one_shard_stays_silent",
             "tests/transcripts/resource_manager_killed.txt",
         )),
)  # fmt: skip

WITHOUT = (
    Without("DispatcherTest", "testInvalidCallDuringInitialization", "not there yet: savepoints"),
    Without("DispatcherTest", "testPersistErrorHandling", "none: a change is a record of the Dispatcher's log first"),
    Without("DispatcherTest", "testRecoverJobFailsWhenJobNotFound, testRecoverJobSuccessfully, "
            "testRemainingSuspendedJobsCleanedWhenApplicationReachesTerminalState", "none: recovery is of all jobs, and by itself"),
    Without("DefaultDispatcherRunnerTest", "getShutDownFuture_newLeader_ignoresOldDispatcherLeaderProcessShutDownRequest, "
            "closeAsync_doesNotCompleteUncompletedShutDownFuture", "none: a term has no process of its own to shut down"),
    Without("DefaultLeaderElectionServiceTest", "testLazyDriverInstantiation, testErrorOnComponentIdReuse",
            "none: one kind of election, always on; names of scopes are fixed"),
)  # fmt: skip
