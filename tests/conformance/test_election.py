"""Election and terms of leaders, in the scenarios of Flink's tests. Each test names the one that it stands for.

A grant is a won campaign with its epoch, a confirmation the leader's own Elected record, read back; the session id is the epoch."""

from __future__ import annotations

import pytest

from millrace.core.election import View
from millrace.core.messages.records import Elected
from millrace.core.replica import Append, Campaign, Speak
from millrace.core.states import Role
from tests.core.of_replica import Log, heard, names


def test_a_leader_speaks_once_its_election_is_in_the_log_and_not_before() -> None:
    """DefaultDispatcherRunnerTest.grantLeadership_validLeader_confirmsLeaderSession;
    SessionDispatcherLeaderProcessTest.confirmLeaderSessionFuture_completesAfterDispatcherServiceHasBeenStarted."""
    log = Log()
    [append] = log.replicas[0].won(10)
    assert isinstance(append, Append) and not log.replicas[0].leads
    assert any(isinstance(each, Speak) for each in log.append(append.record)) and log.replicas[0].leads


def test_an_election_that_comes_behind_a_later_one_makes_no_leader() -> None:
    """DefaultDispatcherRunnerTest.grantLeadership_oldLeader_doesNotConfirmLeaderSession;
    DefaultLeaderElectionServiceTest.testOldConfirmLeaderInformationWhileHavingNewLeadership: the stale confirmation is void."""
    log = Log(2)
    [late] = log.replicas[0].won(10)
    log.elect(11, which=1)
    assert log.replicas[0].role is Role.FOLLOWING, "it has seen the later one"
    assert log.append(late.record) == []
    assert [replica.leads for replica in log.replicas] == [False, True]
    assert {replica.folded.epoch for replica in log.replicas} == {11}


def test_a_term_has_ended_before_the_next_one_of_the_same_process_begins() -> None:
    """DefaultDispatcherRunnerTest.grantLeadership_withExistingLeader_waitsForTerminationOfFirstLeader."""
    log = Log()
    log.elect(10)
    replica = log.replicas[0]
    assert replica.beat(log.stamp, View(11), caught_up=True) == []
    assert replica.election.role is Role.FOLLOWING, "its key is another one now"
    said = log.elect(11)
    assert replica.leads and {each.epoch for each in said if isinstance(each, Speak)} == {11}


@pytest.mark.parametrize("view", [View(0), View(12)], ids=["gone", "another's"])
def test_a_leader_whose_key_is_lost_does_nothing_more(view: View) -> None:
    """DefaultDispatcherRunnerTest.revokeLeadership_withExistingLeader_stopsLeaderProcess;
    JobMasterServiceLeadershipRunnerTest.testSkippingOfEnqueuedLeadershipOperations: what it folds later it sends nothing for."""
    log = Log()
    log.elect(10)
    log.append(heard(1, None))
    assert log.replicas[0].beat(log.stamp, view, caught_up=True) == []
    assert log.append(heard(2, 1)) == []
    assert "JobMasterStarted" in log.replicas[0].folded.state.names, "it folds on, as a standby"


def test_who_comes_late_to_an_election_learns_who_leads() -> None:
    """DefaultLeaderElectionServiceTest.testDelayedGrantCallAfterContenderRegistration."""
    log = Log()
    log.elect(10)
    late = log.replica("late")
    for offset, (stamp, record) in enumerate(log.records):
        late.record(offset, stamp, record, 0)
    assert (late.folded.epoch, late.folded.who, late.leads) == (10, "r0", False)
    assert not any(isinstance(each, Campaign) for each in late.beat(log.stamp, View(10), caught_up=True))


def test_a_new_leader_sends_what_the_one_before_had_folded_and_nobody_received() -> None:
    """JobMasterServiceLeadershipRunnerTest, FLINK-39704: a leader that is replaced between a fact and its announcement takes nothing with
    it. ZooKeeper's hiccup restarts all jobs there (FLINK-10052); here the next term goes on in the same words."""
    log = Log(2)
    log.elect(10)
    log.append(heard(1, None))
    log.append(heard(2, 1))
    before = [each.spoken.value for each in log.actions[0] if isinstance(each, Speak)]
    log.actions[1].clear()
    log.elect(11, which=1)
    again = [each.spoken.value for each in log.actions[1] if isinstance(each, Speak)]
    assert again[: len(before)] == before
    assert "Perform" in names(log.actions[1])


def test_an_elected_record_without_its_key_makes_nobody_a_leader() -> None:
    """DefaultLeaderElectionServiceTest.testHasLeadershipAsyncWithLeadershipLostButNoRevokeEventProcessed: whoever wrote it, this process
    has not won."""
    log = Log()
    log.append(Elected(generation=1, epoch=12, build="b1", who="r0"))
    assert not log.replicas[0].leads and log.replicas[0].epoch == 0
