"""The rows of docs/calls.md: see `calls.py`. The names in the first column are those of Apache Flink's gateways."""

from __future__ import annotations

from millrace.core.messages import blocklist, client, jobs, processes, requirements, schedules, slots
from millrace.core.messages.records import Forked, Hello

from .calls import TOO_LARGE, Absent, Call

INTERNAL = "none: it restores what a new leader must know"
SUBMIT, MACHINE = "test_dispatcher_submit.py:", "test_dispatcher_requests.py:"
RM, JM, TM, ENDS = (
    "test_resource_manager_machine.py:", "test_job_master_machine.py:", "test_task_manager_machine.py:", "test_task_manager_ends.py:",
)  # fmt: skip
LIVENESS, WORKERS, DRAINING = (
    "test_resource_manager_liveness.py:", "test_resource_manager_workers.py:", "test_resource_manager_draining.py:",
)  # fmt: skip
ASKING, ANSWERING, INSPECTING = (
    "test_resource_manager_asking.py:", "test_task_manager_answering.py:", "test_task_manager_inspecting.py:",
)  # fmt: skip
SCHEDULES = "test_dispatcher_schedules.py:"
JOB, SLOTS, TASK_MANAGERS = "GET /api/v1/jobs/{job}", "GET /api/v1/slots", "GET /api/v1/taskmanagers"

DISPATCHER = (
    Call(
        "submitJob", (client.SubmitJob, client.JobAcceptedReply, client.JobRejected, client.RequestRefused),
        (
            f"{SUBMIT}test_a_stored_submission_is_announced_then_starts_at_its_shard_and_is_acknowledged",
            f"{SUBMIT}test_the_same_submission_again_is_the_same_job_with_its_status",
            f"{SUBMIT}test_an_invalid_submission_is_rejected_with_all_problems",
        ),
        "submit", "POST /api/v1/jobs",
    ),
    Call("listJobs", (client.ListJobs, client.JobsListed), (
        f"{MACHINE}test_list_is_newest_first", f"{MACHINE}test_list_gives_what_is_asked_for_by_name_state_and_time",
    ), "list", "GET /api/v1/jobs"),
    Call("getBlobServerPort", (client.DescribeBlobServer, client.BlobServerDescribed), (
        f"{MACHINE}test_where_blobs_are_put",
    ), "submit", "POST /api/v1/jobs"),
    Call("requestJob", (client.DescribeJob, client.JobDescribed), (
        f"{MACHINE}test_a_live_job_is_described_by_its_job_master", f"{MACHINE}test_an_ended_job_is_answered_from_what_is_remembered",
    ), "show", JOB),
    Call("requestJobStatus", (client.GetJobStatus, client.JobStatusAnswered), (
        f"{MACHINE}test_status_of_a_live_job_with_why_it_waits", f"{MACHINE}test_an_unknown_job_is_not_found",
    ), "events", "GET /jobs/{job}/status"),
    Call("requestJobResult", (client.AwaitJobResult, client.JobResult), (
        "test_dispatcher_end.py:test_a_stored_end_is_announced_answered_and_cleaned_up",
        f"{MACHINE}test_an_ended_job_is_answered_from_what_is_remembered",
    ), "submit, result", "GET /api/v1/jobs/{job}/result"),
    Call("requestMultipleJobDetails", (client.ListJobDetails, client.JobDetailsListed), (
        "test_dispatcher_listing.py:test_pages_are_newest_first_and_jobs_that_come_move_none",
        "test_dispatcher_listing.py:test_a_page_that_may_have_forgotten_jobs_is_merged_with_what_etcd_has",
        "test_dispatcher_listing.py:test_a_job_is_listed_with_its_archive_and_with_a_job_master_that_is_silent",
    ), "list", "GET /api/v1/jobs"),
    Call("requestClusterOverview", (client.GetClusterOverview, jobs.Query, client.ClusterOverview), (
        f"{MACHINE}test_questions_about_the_cluster_go_to_the_resource_manager", f"{RM}test_questions_are_answered",
    ), "status", "GET /api/v1/overview"),
    Call("cancelJob", (client.CancelJob, client.CancelAccepted, client.RequestRefused), (
        f"{MACHINE}test_cancel_of_a_live_job_goes_to_its_shard_once", f"{MACHINE}test_cancel_of_an_ended_job",
    ), "cancel", "POST /api/v1/jobs/{job}/cancel"),
    Call("requestJobResourceRequirements", (requirements.DescribeRequirements, requirements.JobRequirements), (
        "test_dispatcher_requirements.py:test_what_a_job_has_and_may_have",
        "test_jobgraph_rescale.py:test_what_may_be_set_is_what_the_rules_of_a_graph_allow",
    ), "rescale", "GET /api/v1/jobs/{job}/requirements", scenario="tests/transcripts/rescaled.txt"),
    Call("updateJobResourceRequirements", (requirements.UpdateRequirements, requirements.RequirementsUpdated), (
        "test_dispatcher_requirements.py:test_another_parallelism_is_noted_sent_to_the_job_master_and_answered",
        "test_dispatcher_requirements.py:test_what_cannot_be_is_refused_with_the_reason",
    ), "rescale", "PUT /api/v1/jobs/{job}/requirements", scenario="tests/transcripts/rescaled.txt"),
    Call("shutDownCluster", (client.ShutDownCluster, client.ClusterShutDown), (
        "test_dispatcher_closing.py:test_it_goes_step_by_step_and_is_answered_at_once_and_at_the_end",
        "test_dispatcher_closing.py:test_who_does_not_answer_is_waited_for_and_named",
    ), "shutdown", "POST /api/v1/shutdown"),
    Call("requestThreadDump, of the attempts of a job", (client.ReportNow, client.JobReported), (
        "test_dispatcher_questions.py:test_what_attempts_are_doing_is_asked_of_the_job_master_and_answered_without_it_if_it_is_dead",
        "test_job_master_inspection.py:test_attempts_are_asked_and_the_client_is_answered_when_all_have",
    ), "inspect", "GET /api/v1/jobs/{job}/report"),
    Call("none of the original: a schedule is set, paused, removed", (
        schedules.SetSchedule, schedules.PauseSchedule, schedules.RemoveSchedule, schedules.ScheduleDescribed, schedules.ScheduleRemoved,
    ), (
        f"{SCHEDULES}test_a_schedule_is_stored_and_then_answered", f"{SCHEDULES}test_a_schedule_is_paused_resumed_and_removed",
        f"{SCHEDULES}test_what_a_dispatcher_without_its_log_reads_again_changes_nothing",
    ), "schedule set, schedule pause, schedule resume, schedule remove", "PUT /api/v1/schedules/{schedule}"),
    Call("none of the original: schedules are listed, and shown with their runs", (
        schedules.ListSchedules, schedules.SchedulesListed, schedules.DescribeSchedule,
    ), (
        f"{SCHEDULES}test_schedules_are_listed_a_page_at_a_time", f"{SCHEDULES}test_a_schedule_is_shown_with_its_runs_newest_first",
    ), "schedule list, schedule show", "GET /api/v1/schedules/{schedule}"),
    Call("none of the original: a schedule is run by hand", (schedules.RunSchedule,), (
        f"{SCHEDULES}test_a_run_by_hand_is_submitted_in_the_clients_place",
    ), "schedule run", "POST /api/v1/schedules/{schedule}/run"),
    Call("the answers of JobMasters and of the ResourceManager to what it forwards", (jobs.QuestionAnswered,), (
        "test_dispatcher_questions.py:test_an_answer_shows_that_a_silent_part_is_back",
    ), "show", JOB),
    Call("jobReachedTerminalState, of the JobManagerRunner", (jobs.JobEnded, jobs.JobRetired), (
        "test_dispatcher_end.py:test_an_end_is_stored_with_its_archive_before_anybody_hears_of_it",
        "test_dispatcher_end.py:test_a_stored_end_is_announced_answered_and_cleaned_up",
    ), "show", JOB),
    Call("jobStatusChanges, of the JobManagerRunner", (jobs.JobMasterStarted, jobs.JobStatusChanged), (
        f"{MACHINE}test_status_of_a_live_job_with_why_it_waits",
        f"{MACHINE}test_a_job_that_a_new_life_of_its_shard_has_started_waits_only_if_that_one_says_so",
    ), "list", "GET /api/v1/jobs"),
    Call("requestThreadDump and logs of the JobManager: of each process of a service", (processes.AskProcess, processes.ProcessDescribed), (
        "test_io_inspection.py:test_a_process_answers_what_it_is_asked_and_what_all_are_asked",
        "test_client_processes.py:test_those_that_answer_in_time_are_listed_by_service_and_name",
    ), "services, describe, logs", "GET /api/v1/services"),
)  # fmt: skip

RESOURCE_MANAGER = (
    Call("registerJobManager", (jobs.JobMasterDeclared, jobs.DeclareAgain), (
        f"{RM}test_a_reborn_resource_manager_grants_only_when_every_shard_has_declared",
        "test_resource_manager_silent.py:test_a_shard_that_is_heard_again_is_granted_again_in_its_old_place",
    ), "status", "GET /api/v1/leaders"),
    Call("registerTaskExecutor", (slots.RegisterTaskManager, slots.TaskManagerRegistered), (
        f"{RM}test_registers_a_task_manager", f"{LIVENESS}test_a_newer_incarnation_replaces_the_older_and_its_slots",
        f"{WORKERS}test_a_stranger_with_the_id_of_a_worker_is_turned_away",
    ), "taskmanagers", TASK_MANAGERS),
    Call("sendSlotReport", (slots.SlotReport,), (
        f"{RM}test_a_report_older_than_the_grant_does_not_take_it_back", f"{TM}test_a_slot_is_reported_when_it_becomes_free",
    ), "slots", SLOTS),
    Call("heartbeatFromTaskManager", (slots.TaskManagerHeartbeat,), (
        f"{LIVENESS}test_a_silent_task_manager_is_lost_once_and_its_jobs_wait_or_move",
        f"{TM}test_heartbeats_carry_the_slots_when_they_changed_and_now_and_then",
    ), "taskmanagers", TASK_MANAGERS),
    Call("heartbeatFromJobManager", (jobs.JobMasterHeartbeat, jobs.ReconcileSlots), (
        "test_resource_manager_reconciling.py:test_a_slot_that_the_shard_does_not_hold_is_named_after_ten_seconds_and_then_once_in_ten",
        "test_resource_manager_silent.py:test_a_shard_that_sends_nothing_is_granted_nothing_and_leaves_the_queue_before_a_slot_is_wasted_on_it",
        "test_job_master_heartbeats.py:test_a_shard_with_jobs_sends_what_it_holds_every_two_seconds",
    ), "queue, slots", SLOTS),
    Call("disconnectTaskManager", (slots.DisconnectTaskManager, jobs.TaskManagerLost), (
        f"{LIVENESS}test_a_task_manager_that_leaves_in_order_is_lost_at_once",
        f"{JM}test_a_lost_task_manager_moves_its_attempts_without_counting_a_failure",
    ), "taskmanagers", TASK_MANAGERS),
    Call("disconnectJobManager", (jobs.RequestSlots,), (
        f"{RM}test_who_wants_nothing_leaves_the_queue_without_a_word",
        f"{RM}test_a_reborn_shard_is_forgotten_until_it_declares_and_what_its_jobs_hold_stays",
    ), "slots", SLOTS),
    Call("requestSlot", (jobs.RequestSlots, slots.AllocateSlot, slots.AllocateSlots, jobs.JobQueued), (
        f"{RM}test_a_request_is_granted_in_the_record_that_brings_it",
        f"{RM}test_a_waiting_job_is_told_why_and_its_place_and_that_it_waits_no_more",
    ), "show", JOB),
    Call("cancelSlotRequest", (jobs.RequestSlots,), (
        f"{RM}test_a_job_that_wants_less_keeps_what_it_has_and_is_told_nothing",
    ), "show", JOB),
    Call("notifySlotAvailable", (slots.SlotFreed,), (
        f"{RM}test_a_freed_slot_goes_to_the_next_in_the_queue", f"{RM}test_freed_allocations_that_are_not_known_change_nothing",
    ), "slots", SLOTS),
    Call("deregisterApplication", (client.DeregisterCluster, jobs.Query, client.ClusterDeregistered), (
        f"{MACHINE}test_a_cluster_is_deregistered_once_however_often_the_request_is_read",
        f"{DRAINING}test_a_cluster_that_is_deregistered_stops_its_workers_and_starts_none_until_that_is_undone",
    ), "deregister", "POST /api/v1/deregister"),
    Call(
        "notifyNewBlockedNodes",
        (
            blocklist.BlockHost, blocklist.UnblockHost, blocklist.ListBlockedHosts, blocklist.AskBlocklist, blocklist.TaskManagersBlocked,
            blocklist.HostBlocked, blocklist.HostUnblocked, blocklist.BlockedHostsListed,
        ),
        (
            f"{MACHINE}test_the_blocklist_is_the_resource_managers_and_is_changed_once_however_often_a_request_is_read",
            "test_resource_manager_blocklist.py:test_a_host_is_blocked_at_once_and_its_client_is_answered_when_etcd_has_it",
            "test_job_master_blocking.py:test_an_evacuated_attempt_is_canceled_and_runs_elsewhere_and_nothing_is_spent",
        ),
        "block, unblock, blocked", "PUT /api/v1/blocklist/{host}",
    ),
    Call("requestTaskManagerInfo", (client.ListTaskManagers, jobs.Query, client.TaskManagersListed), (
        f"{MACHINE}test_questions_about_the_cluster_go_to_the_resource_manager", f"{RM}test_questions_are_answered",
    ), "taskmanagers", TASK_MANAGERS),
    Call("requestResourceOverview", (client.GetClusterOverview, jobs.Query, client.ClusterOverview), (
        f"{RM}test_questions_are_answered",
    ), "status", "GET /api/v1/overview"),
    Call(
        "requestTaskManagerDetailsInfo",
        (processes.DescribeTaskManager, jobs.AskTaskManager, slots.AnswerClient, slots.ClientAnswered, processes.TaskManagerDescribed),
        (
            f"{ASKING}test_a_question_goes_to_the_task_manager_and_the_dispatcher_learns_when_it_is_answered",
            f"{ASKING}test_a_silent_task_manager_is_answered_for_in_time_and_once",
            f"{ANSWERING}test_a_description_has_each_slot_with_what_is_in_it_and_its_jvm",
        ),
        "describe", "GET /api/v1/taskmanagers/{name}",
    ),
    Call("requestThreadDump, of a TaskManager", (processes.DumpThreads, jobs.AskTaskManager, processes.ThreadsDumped), (
        f"{INSPECTING}test_threads_are_those_of_the_process_of_the_jvm_and_of_a_running_attempt",
        f"{ANSWERING}test_what_is_found_is_published_as_it_is",
    ), "describe", "GET /api/v1/taskmanagers/{name}/thread-dump"),
    Call("requestTaskManagerFileUpload", (processes.UploadLog, jobs.AskTaskManager, processes.LogUploaded), (
        f"{INSPECTING}test_logs_are_its_own_and_those_of_its_slots", f"{INSPECTING}test_nothing_else_can_be_read",
        f"{ANSWERING}test_what_is_found_is_published_as_it_is",
    ), "logs", "GET /api/v1/taskmanagers/{name}/logs/{log}"),
    Call("requestTaskManagerLogList", (processes.ListLogs, jobs.AskTaskManager, processes.LogsListed), (
        f"{INSPECTING}test_logs_are_its_own_and_those_of_its_slots", f"{ANSWERING}test_what_is_found_is_published_as_it_is",
    ), "logs", "GET /api/v1/taskmanagers/{name}/logs"),
    Call("the settings of a TaskManager", (processes.ListSettings, jobs.AskTaskManager, processes.SettingsListed), (
        "test_io_inspection.py:test_settings_are_those_that_the_process_runs_with",
        f"{ANSWERING}test_what_is_found_is_published_as_it_is",
    ), "settings", "GET /api/v1/taskmanagers/{name}/settings"),
    Call("what the original has by one process: who is lost, known to a new leader", (jobs.TaskManagersParted,), (
        "test_resource_manager_parted.py:test_one_that_has_registered_is_released_when_a_shard_tells_of_its_loss",
    ), "replay show", INTERNAL),
    Call("notifyAllocationTimeout: nobody used a slot in time", (slots.SlotUnused, jobs.DeclareAgain), (
        "test_resource_manager_silent.py:test_a_slot_that_a_silent_shard_did_not_use_goes_to_others_and_not_to_it_again",
    ), "slots", SLOTS),
)  # fmt: skip

SLOT_MANAGER = (
    Call("getNumberRegisteredSlots", tests=(f"{RM}test_questions_are_answered",), cli="status", rest="GET /api/v1/overview",
         done_by=("resource_manager/core/answers.py:_overview",), scenario="tests/transcripts/questions.txt"),
    Call("getNumberRegisteredSlotsOf", tests=(f"{RM}test_questions_are_answered",), cli="taskmanagers", rest=TASK_MANAGERS,
         done_by=("resource_manager/core/answers.py:_listed",), scenario="tests/transcripts/questions.txt"),
    Call("getNumberFreeSlots", tests=(f"{RM}test_questions_are_answered",), cli="status", rest="GET /api/v1/overview",
         done_by=("resource_manager/core/answers.py:_overview",), scenario="tests/transcripts/questions.txt"),
    Call("getNumberFreeSlotsOf", tests=(f"{RM}test_questions_are_answered",), cli="taskmanagers", rest=TASK_MANAGERS,
         done_by=("resource_manager/core/answers.py:_listed",), scenario="tests/transcripts/questions.txt"),
    Call("getNumberPendingTaskManagerSlots", tests=(f"{WORKERS}test_as_many_are_started_as_the_waiting_jobs_need_and_no_more_than_may_be",),
         cli="status", rest="GET /api/v1/overview",
         done_by=("resource_manager/core/workers.py:pending", "resource_manager/core/scaling.py:missing"),
         scenario="tests/transcripts/workers.txt"),
    Call("getNumberPendingSlotRequests", tests=(f"{RM}test_questions_are_answered",), cli="status", rest="GET /api/v1/overview",
         done_by=("resource_manager/core/answers.py:_overview",), scenario="tests/transcripts/questions.txt"),
    Call("registerSlotRequest", tests=(f"{RM}test_priority_goes_first_then_who_waits_longest_then_the_smaller_id",), cli="show", rest=JOB,
         done_by=("resource_manager/core/requests.py:on_request_slots", "resource_manager/core/queue.py:update"),
         scenario="tests/transcripts/queue.txt"),
    Call("unregisterSlotRequest", tests=(f"{RM}test_who_wants_nothing_leaves_the_queue_without_a_word",), cli="show", rest=JOB,
         done_by=("resource_manager/core/queue.py:remove",), scenario="tests/transcripts/cancel.txt"),
    Call("registerTaskManager", tests=(f"{RM}test_registers_a_task_manager",
                                       f"{RM}test_a_task_manager_that_registers_again_is_taken_as_it_is"),
         cli="taskmanagers", rest=TASK_MANAGERS, done_by=("resource_manager/core/slot_manager.py:register",),
         scenario="tests/transcripts/workers.txt"),
    Call("unregisterTaskManager", tests=(f"{LIVENESS}test_a_silent_task_manager_is_lost_once_and_its_jobs_wait_or_move",),
         cli="taskmanagers", rest=TASK_MANAGERS, done_by=("resource_manager/core/slot_manager.py:unregister",),
         scenario="tests/transcripts/task_manager_lost.txt"),
    Call("reportSlotStatus", tests=(f"{RM}test_a_report_older_than_the_grant_does_not_take_it_back",
                                    f"{RM}test_a_reborn_resource_manager_takes_over_the_allocations_that_are_reported"),
         cli="slots", rest=SLOTS, done_by=("resource_manager/core/slot_manager.py:report",),
         scenario="tests/transcripts/resource_manager_killed.txt"),
    Call("freeSlot", tests=(f"{RM}test_a_freed_slot_goes_to_the_next_in_the_queue",), cli="slots", rest=SLOTS,
         done_by=("resource_manager/core/slot_manager.py:on_slot_freed",), scenario="tests/transcripts/submission.txt"),
    Call("setFailUnfulfillableRequest", tests=(
        "test_resource_manager_not_enough.py:test_a_job_that_wants_what_there_is_not_fails_after_the_time_that_is_set",
        "test_resource_manager_not_enough.py:test_without_the_setting_it_waits",
    ), cli="show", rest=JOB, done_by=("resource_manager/core/queue.py:_give_up",), scenario=TOO_LARGE),
    Call("checkTaskManagerTimeouts, of idle ones", tests=(f"{DRAINING}test_one_that_is_idle_is_asked_and_stopped_when_it_agrees",
                                                          f"{DRAINING}test_a_slot_that_is_granted_meanwhile_keeps_it"),
         cli="taskmanagers", rest=TASK_MANAGERS, done_by=("resource_manager/core/providing.py:look_after",),
         scenario="tests/transcripts/workers.txt"),
    Call("checkSlotRequestTimeouts", tests=(f"{JM}test_the_queue_time_out_fails_a_job_that_got_no_slot",), cli="show", rest=JOB,
         done_by=("job_master/core/scheduling.py:act_on_timers",), scenario="tests/transcripts/time_outs.txt"),
)  # fmt: skip

JOB_MASTER = (
    Call("start, of the JobManagerRunner", (jobs.StartJob, jobs.JobMasterStarted), (
        f"{JM}test_start_job_asks_for_slots_first", f"{JM}test_start_job_of_a_known_job_answers_with_its_state",
    ), "show", JOB),
    Call("cancel", (jobs.CancelStartedJob,), (
        f"{JM}test_cancel_at_any_moment", f"{JM}test_finished_in_the_midst_of_a_cancel_is_canceled",
    ), "cancel", "POST /api/v1/jobs/{job}/cancel"),
    Call("updateJobResourceRequirements", (jobs.RescaleStartedJob,), (
        "test_job_master_rescaling.py:test_what_runs_is_canceled_and_begins_again_beside_what_stays_the_same",
        "test_job_master_rescaling.py:test_the_same_numbers_change_nothing_and_no_request_is_taken_twice",
    ), "rescale", "PUT /api/v1/jobs/{job}/requirements", scenario="tests/transcripts/rescaled.txt"),
    Call("suspend", (jobs.SuspendJobs, jobs.JobsSuspended, jobs.ResumeJobs), (
        "test_job_master_suspension.py:test_what_runs_is_canceled_and_runs_again_later",
        "test_job_master_suspension.py:test_asked_again_it_answers_again_and_a_job_that_comes_then_is_suspended",
    ), "shutdown", "POST /api/v1/shutdown"),
    Call("close, of the JobManagerRunner", (jobs.JobRetired,), (
        f"{JM}test_retired_while_running_frees_everything", f"{JM}test_retired_of_another_acceptance_is_of_another_job",
    ), "show", JOB),
    Call("requestJob", (jobs.DescribeStartedJob, client.JobDescribed), (f"{JM}test_describe_answers_from_the_state",), "show", JOB),
    Call("requestThreadDump, of the attempts of a job", (jobs.ReportStartedJob, client.JobReported), (
        "test_job_master_inspection.py:test_attempts_are_asked_and_the_client_is_answered_when_all_have",
        "test_job_master_inspection.py:test_a_task_manager_that_is_silent_is_named_in_time",
    ), "inspect", "GET /api/v1/jobs/{job}/report"),
    Call("offerSlots", (slots.OfferSlots,), (
        f"{JM}test_an_offer_is_deployed_at_once", f"{JM}test_an_offer_that_nobody_needs_is_given_back",
    ), "show", JOB),
    Call("failSlot", (slots.FailSlot,), (
        f"{JM}test_too_many_moves_fail_the_job", f"{TM}test_a_slot_that_breaks_fails_its_attempt_and_its_allocation",
    ), "show", JOB),
    Call("updateTaskExecutionState", (slots.TaskStateChanged,), (
        f"{JM}test_running_then_finished_ends_the_job_and_frees_the_slot", f"{JM}test_a_late_word_of_an_old_attempt_changes_nothing",
    ), "show", JOB),
    Call("heartbeatFromTaskManager: accumulators", (slots.ProgressReported,), (
        "test_job_master_inspection.py:test_progress_is_an_event_and_is_shown_while_the_attempt_runs",
    ), "show", JOB),
    Call("disconnectTaskManager", (jobs.TaskManagerLost,), (
        f"{JM}test_a_lost_task_manager_moves_its_attempts_without_counting_a_failure",
        f"{JM}test_a_lost_earlier_incarnation_leaves_the_slots_of_the_later_one",
    ), "show", JOB),
    Call("notifyNotEnoughResourcesAvailable: why a job waits", (jobs.JobQueued,), (
        f"{JM}test_a_job_that_waits_says_why_and_where_it_stands",
    ), "show", JOB),
    Call("notifyNotEnoughResourcesAvailable: it fails", (jobs.NotEnoughResources,), (
        "test_job_master_queue.py:test_a_job_fails_that_wants_what_the_cluster_cannot_have",
        "test_resource_manager_not_enough.py:test_a_job_that_wants_what_there_is_not_fails_after_the_time_that_is_set",
    ), "show", JOB),
    Call("what attempts answer", (slots.AttemptAnswered,), (
        "test_job_master_inspection.py:test_attempts_are_asked_and_the_client_is_answered_when_all_have",
    ), "inspect", "GET /api/v1/jobs/{job}/report"),
    Call("registerTaskManager, and all other connections", (Hello,), (
        "test_replica.py:test_a_peer_that_was_not_heard_is_told_nothing_but_hello_and_is_declared_to_when_it_is",
    ), "replay show", INTERNAL),
    Call("what the original has by fencing tokens: who has lost its log", (Forked,), (
        "test_replica.py:test_a_fork_is_answered_and_the_answer_makes_the_peer_raise_its_own",
    ), "replay show", INTERNAL),
)  # fmt: skip

TASK_MANAGER = (
    Call("requestSlot", (slots.AllocateSlot, slots.AllocateSlots, slots.OfferSlots), (
        f"{TM}test_an_allocated_slot_is_offered_to_its_shard_at_once",
        f"{TM}test_slots_that_cannot_be_given_go_back_as_what_they_are",
    ), "slots", SLOTS),
    Call("submitTask", (slots.DeployTasks, slots.TaskStateChanged), (
        f"{TM}test_an_attempt_is_launched_runs_and_finishes", f"{TM}test_a_deployment_that_cannot_be_fails_and_may_run_elsewhere",
    ), "show", JOB),
    Call("cancelTask", (slots.CancelTasks,), (
        f"{ENDS}test_a_canceled_attempt_ends_canceled", f"{ENDS}test_an_unknown_attempt_is_over",
    ), "show", JOB),
    Call("freeSlot", (slots.FreeSlots, slots.SlotFreed), (
        f"{ENDS}test_an_idle_slot_is_free_at_once", f"{ENDS}test_an_attempt_in_a_freed_slot_is_killed_and_nobody_is_told",
    ), "slots", SLOTS),
    Call("freeInactiveSlots: its job has had no JobMaster for a time-out", (slots.FreeUnused,), (
        f"{ENDS}test_a_slot_whose_job_master_is_away_for_too_long_is_freed_but_not_one_in_which_an_attempt_lives",
        "test_resource_manager_silent.py:test_a_silent_shard_is_given_up_after_the_time_out_and_what_it_holds_unused_is_freed",
    ), "slots", SLOTS),
    Call("requestThreadInfoSamples", (slots.OrderAttempts, slots.AttemptAnswered), (
        "test_task_manager_running.py:test_an_order_goes_to_the_slot_of_a_running_attempt_and_its_answer_to_who_asked",
        "test_task_manager_running.py:test_an_attempt_that_does_not_run_is_answered_for",
    ), "inspect", "GET /api/v1/jobs/{job}/report"),
    Call("disconnectResourceManager: it was declared lost, or is not wanted", (slots.ReleaseTaskManager,), (
        f"{ENDS}test_a_task_manager_that_was_declared_lost_ends",
    ), "taskmanagers", TASK_MANAGERS),
    Call("canBeReleased", (slots.DrainTaskManager, slots.DrainAnswered), (
        f"{ENDS}test_one_that_is_asked_whether_it_may_be_stopped_agrees_if_nobody_holds_a_slot_of_it",
        f"{DRAINING}test_one_that_refuses_is_asked_again_when_it_was_idle_for_as_long_once_more",
    ), "taskmanagers", TASK_MANAGERS),
    Call("heartbeatFromResourceManager: how often it beats", (slots.TaskManagerRegistered,), (
        f"{RM}test_heartbeats_of_many_stay_below_the_limit",
    ), "taskmanagers", TASK_MANAGERS),
    Call("requestFileUploadByType, requestLogList, requestThreadDump", (slots.AnswerClient, slots.ClientAnswered), (
        f"{ANSWERING}test_a_question_is_looked_up_and_nothing_is_kept_of_it",
        f"{INSPECTING}test_what_a_storage_refuses_is_answered_without_its_address",
    ), "describe, logs", "GET /api/v1/taskmanagers/{name}/logs"),
)  # fmt: skip

CALLS = {
    "Dispatcher": DISPATCHER, "ResourceManager": RESOURCE_MANAGER, "SlotManager": SLOT_MANAGER, "JobMaster": JOB_MASTER,
    "TaskManager": TASK_MANAGER,
}  # fmt: skip

_NO_CHECKPOINTS = "not there yet: checkpoints and savepoints"
_NO_METRICS = "none: the web service asks processes by Kafka (`web/flink/fetcher.py:MetricFetcher`)"
ABSENT = {
    "Dispatcher": (
        Absent("triggerSavepoint", "TriggerSavepoint", _NO_CHECKPOINTS),
        Absent("stopWithSavepoint", "StopWithSavepoint", _NO_CHECKPOINTS),
        Absent("disposeSavepoint", "DisposeSavepoint", _NO_CHECKPOINTS),
        Absent("requestOperatorBackPressureStats", "GetBackPressure", "not there yet: a subtask reads what others have published, whole"),
        Absent("requestMetricQueryServiceAddresses", "ListMetricEndpoints", _NO_METRICS),
        Absent("requestTaskManagerMetricQueryServiceAddresses", "ListTaskManagerMetricEndpoints", _NO_METRICS),
    ),
    "ResourceManager": (
        Absent("requestTaskManagerMetricQueryServiceAddresses", "ListTaskManagerMetricEndpoints", _NO_METRICS),
        Absent("registerJobManager, by that name", "RegisterJobMaster",
               "none: a shard is there when it is heard, and `JobMasterDeclared` says what it holds and wants"),
        Absent("disconnectJobManager, by that name", "DisconnectJobMaster",
               "none: a job that wants nothing is forgotten (`RequestSlots`); a shard that is silent keeps its slots for a while"),
        Absent("requestResourceOverview, by that name", "GetResourceOverview", "none: `GetClusterOverview` has the slots, too"),
        Absent("requestTaskManagerFileUpload, by that name", "UploadTaskManagerFile", "none: `UploadLog` names a log by its id"),
    ),
    "SlotManager": (),
    "JobMaster": (
        Absent("triggerCheckpoint", "TriggerCheckpoint", _NO_CHECKPOINTS),
        Absent("acknowledgeCheckpoint", "AcknowledgeCheckpoint", _NO_CHECKPOINTS),
        Absent("declineCheckpoint", "DeclineCheckpoint", _NO_CHECKPOINTS),
        Absent("an answer to its registration", "JobMasterRegistered", "none: `Hello` of the ResourceManager is one"),
        Absent("a refusal of an offered slot", "SlotRefused", "none: a slot that is not wanted is given back by `FreeSlots`"),
        Absent("suspend, of one job", "SuspendJob", "none: a cluster that is shut down suspends all jobs of a shard (`SuspendJobs`)"),
    ),
    "TaskManager": (
        Absent("triggerCheckpoint", "TriggerTaskCheckpoint", _NO_CHECKPOINTS),
        Absent("offerSlots: which are accepted", "SlotsAccepted", "none: an accepted slot is one that a task is deployed on"),
        Absent("offerSlots: which are not", "SlotsRejected", "none: `FreeSlots` gives a slot back"),
        Absent("a rejection of its registration", "TaskManagerRejected", "none: `ReleaseTaskManager` ends one that is not welcome"),
        Absent("requestFileUploadByType, by that name", "UploadFile", "none: `AnswerClient` carries this question like the others"),
    ),
}  # fmt: skip
WANTED = {
    "Dispatcher": """
        submitJob listJobs getBlobServerPort requestJob requestJobStatus requestJobResult requestMultipleJobDetails requestClusterOverview
        cancelJob triggerSavepoint stopWithSavepoint disposeSavepoint requestOperatorBackPressureStats requestMetricQueryServiceAddresses
        requestTaskManagerMetricQueryServiceAddresses shutDownCluster
    """,
    "ResourceManager": """
        registerJobManager registerTaskExecutor sendSlotReport heartbeatFromTaskManager heartbeatFromJobManager disconnectTaskManager
        disconnectJobManager requestSlot cancelSlotRequest notifySlotAvailable deregisterApplication requestTaskManagerInfo
        requestResourceOverview requestTaskManagerMetricQueryServiceAddresses requestTaskManagerFileUpload
    """,
    "SlotManager": """
        getNumberRegisteredSlots getNumberRegisteredSlotsOf getNumberFreeSlots getNumberFreeSlotsOf getNumberPendingTaskManagerSlots
        getNumberPendingSlotRequests registerSlotRequest unregisterSlotRequest registerTaskManager unregisterTaskManager reportSlotStatus
        freeSlot setFailUnfulfillableRequest checkTaskManagerTimeouts checkSlotRequestTimeouts
    """,
    "JobMaster": """
        start cancel close suspend requestJob offerSlots failSlot updateTaskExecutionState disconnectTaskManager registerTaskManager
        notifyNotEnoughResourcesAvailable updateJobResourceRequirements triggerCheckpoint acknowledgeCheckpoint declineCheckpoint
    """,
    "TaskManager": """
        requestSlot offerSlots submitTask cancelTask freeSlot triggerCheckpoint disconnectResourceManager canBeReleased
        requestThreadInfoSamples requestFileUploadByType
    """,
}
"""The calls that the original has: each has a row, or a reason. Rows of other names are of our own."""
NAMES = """
    AcknowledgeCheckpoint AllocateSlot AwaitJobResult CancelJob CancelTasks DeclineCheckpoint DeployTasks DeregisterCluster
    DescribeBlobServer DescribeJob DescribeTaskManager DisconnectJobMaster DisconnectTaskManager DisposeSavepoint FailSlot Forked FreeSlots
    GetBackPressure GetClusterOverview GetJobStatus GetResourceOverview Hello JobEnded JobMasterHeartbeat JobMasterRegistered
    JobMasterStarted JobRejected JobRetired ListJobDetails ListJobs ListMetricEndpoints ListTaskManagerMetricEndpoints ListTaskManagers
    NotEnoughResources OfferSlots RegisterJobMaster RegisterTaskManager ReleaseTaskManager ReportNow RequestSlots ShutDownCluster SlotFreed
    SlotRefused SlotReport SlotsAccepted SlotsRejected StartJob StopWithSavepoint SubmitJob SuspendJob TaskManagerHeartbeat
    TaskManagerLost TaskManagerRegistered TaskManagerRejected TaskStateChanged TriggerCheckpoint TriggerSavepoint TriggerTaskCheckpoint
    UpdateRequirements UploadFile UploadTaskManagerFile
"""
"""What the calls of the original are as messages: each is one, or is absent for a reason."""
