"""Who sends which message to whom. A message between services is listed here, and nowhere else besides its class."""

from __future__ import annotations

from ..topics import CONTROL, DISPATCHER, JOB_MASTER, PROCESS, RESOURCE_MANAGER, TASK_MANAGER
from . import blocklist, client, jobs, processes, slots
from .base import Body

LINKS: dict[tuple[str, str], tuple[type[Body], ...]] = {
    (DISPATCHER, JOB_MASTER): (
        jobs.StartJob, jobs.CancelStartedJob, jobs.JobRetired, jobs.DescribeStartedJob, jobs.ReportStartedJob,
        jobs.SuspendJobs, jobs.ResumeJobs, jobs.RescaleStartedJob,
    ),
    (JOB_MASTER, DISPATCHER): (
        jobs.JobMasterStarted, jobs.JobStatusChanged, jobs.JobEnded, jobs.QuestionAnswered, jobs.JobsSuspended,
    ),
    (DISPATCHER, RESOURCE_MANAGER): (jobs.Query, jobs.AskTaskManager, blocklist.AskBlocklist),
    (RESOURCE_MANAGER, DISPATCHER): (jobs.QuestionAnswered,),
    (JOB_MASTER, RESOURCE_MANAGER): (jobs.RequestSlots, jobs.TaskManagersParted, jobs.JobMasterDeclared, jobs.JobMasterHeartbeat),
    (RESOURCE_MANAGER, JOB_MASTER): (
        jobs.JobQueued, jobs.NotEnoughResources, jobs.DeclareAgain, jobs.TaskManagerLost, jobs.ReconcileSlots,
        blocklist.TaskManagersBlocked,
    ),
    (TASK_MANAGER, RESOURCE_MANAGER): (
        slots.RegisterTaskManager, slots.SlotReport, slots.TaskManagerHeartbeat, slots.SlotFreed, slots.SlotUnused,
        slots.ClientAnswered, slots.DisconnectTaskManager, slots.DrainAnswered,
    ),
    (RESOURCE_MANAGER, TASK_MANAGER): (
        slots.TaskManagerRegistered, slots.AllocateSlot, slots.AllocateSlots, slots.ReleaseTaskManager, slots.DrainTaskManager,
        slots.AnswerClient,
        slots.FreeUnused,
    ),
    (TASK_MANAGER, JOB_MASTER): (slots.OfferSlots, slots.TaskStateChanged, slots.FailSlot, slots.ProgressReported, slots.AttemptAnswered),
    (JOB_MASTER, TASK_MANAGER): (slots.DeployTasks, slots.CancelTasks, slots.FreeSlots, slots.OrderAttempts),
}  # fmt: skip
"""(sender, receiver) -> messages. Besides, each scope sends Hello and Forked to any other."""
REPLY_SENDERS: dict[type[Body], tuple[str, ...]] = {
    client.RequestRefused: (*CONTROL, TASK_MANAGER, PROCESS),
    client.JobDescribed: (DISPATCHER, JOB_MASTER),
    client.JobReported: (DISPATCHER, JOB_MASTER),
    client.ClusterOverview: (DISPATCHER, RESOURCE_MANAGER),
    client.TaskManagersListed: (DISPATCHER, RESOURCE_MANAGER),
    client.ClusterDeregistered: (DISPATCHER, RESOURCE_MANAGER),
    blocklist.HostBlocked: (RESOURCE_MANAGER,),
    blocklist.HostUnblocked: (RESOURCE_MANAGER,),
    blocklist.BlockedHostsListed: (RESOURCE_MANAGER,),
    processes.TaskManagerDescribed: (TASK_MANAGER,),
    processes.ProcessDescribed: (PROCESS,),
    processes.ThreadsDumped: (TASK_MANAGER, PROCESS),
    processes.LogsListed: (TASK_MANAGER, PROCESS),
    processes.LogUploaded: (TASK_MANAGER, PROCESS),
    processes.SettingsListed: (TASK_MANAGER, PROCESS),
}
"""Replies to clients that not the Dispatcher alone sends: who is asked answers, and the Dispatcher where nobody does in time [R31]."""
BODIES: tuple[type[Body], ...] = tuple(dict.fromkeys(body for bodies in LINKS.values() for body in bodies))
