------------------------------- MODULE commit -------------------------------
(***************************************************************************)
(* How a batch becomes a cut, and what may happen in between.               *)
(*                                                                          *)
(* A source's log is a row of transactions 1 .. LogLen. Runs read it and    *)
(* bring tables up to it by batches:                                        *)
(*                                                                          *)
(*   stage -> record -> act -> make durable -> cut -> cursor                *)
(*                                                                          *)
(* Runs are killed, lose their lease, and meet the remains of others. The   *)
(* power fails. A person restores a part of the lake. Tables fail and catch *)
(* up; loads are swapped in. Whatever happens, each table of the last cut   *)
(* holds each change up to the cut's place once (see Invariants).           *)
(*                                                                          *)
(* Below each action stand the functions that do it, as module::name below  *)
(* cdc_pipeline/; a test sees that they exist. docs/inside/model.md says    *)
(* what is left out.                                                        *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    Runs,          \* processes that may run the source
    Tables,        \* its tables; each keeps every change (a changelog)
    LogLen,        \* transactions in the log
    Batches,       \* batches at most
    Store,         \* "disk": flock, fsync, power cuts; "object": lease, durable puts
    Crashes, PowerCuts, Failures, Losses, Interventions, Loads,  \* how many at most
    Without        \* rules that are taken out, by name; {} in the real protocol

VARIABLES
    log,       \* of each table: its commits; the version is their number
    synced,    \* of each table: the commits that are on the disk
    records,   \* the batches that are recorded; batches/<n>.json
    cuts,      \* cuts/<n>.json
    dirty,     \* names in batches/ and cuts/ that are visible and not on the disk
    cursor,    \* batch and place
    trusted,   \* no restart of the machine, no failed sync since the boot file was written
    holder,    \* the run that holds the lock or the lease
    run,       \* the memory of each process
    side,      \* of each table: the side lake of its load
    used,      \* how often each kind of fault has happened
    exempt,    \* tables that a person changed, and that no run has looked at since
    replaced   \* a person set the lake back, and has not rebuilt the cursor yet

vars == <<log, synced, records, cuts, dirty, cursor, trusted, holder, run, side, used, exempt,
          replaced>>

Rule(name) == name \notin Without
NoRun == "none"
Places == 1 .. LogLen
Max(set) == CHOOSE x \in set : \A y \in set : y <= x
Min(set) == CHOOSE x \in set : \A y \in set : x <= y
OneTable == CHOOSE t \in Tables : TRUE

\* Each second transaction changes one table only, so that a batch need not have them all.
Changed(place) == IF place % 2 = 1 THEN Tables ELSE {OneTable}
Changes(t, low, high) == {place \in low + 1 .. high : t \in Changed(place)}

-----------------------------------------------------------------------------
(* Tables. Rows are counted by the transaction that made them.              *)

Whole(t, place) == [p \in Places |-> IF p \in Changes(t, 0, place) THEN 1 ELSE 0]
Plus(rows, places) ==
    [p \in Places |-> IF p \in places /\ rows[p] < 2 THEN rows[p] + 1 ELSE rows[p]]
RowsAt(t, version) == IF version = 0 THEN Whole(t, 0) ELSE log[t][version].rows
AppOf(commits) == IF commits = <<>> THEN 0 ELSE commits[Len(commits)].app
\* Delta's transaction id under the table's own application id; RESTORE keeps it.
IdOf(commits) ==
    LET own == {i \in 1 .. Len(commits) : commits[i].app = AppOf(commits)} IN
    Max({0} \cup {commits[i].id : i \in own})

Following == [at |-> -1, batch |-> 0]
FirstCut == [place |-> 0, version |-> [t \in Tables |-> 0], id |-> [t \in Tables |-> 0],
             app |-> [t \in Tables |-> 0], held |-> [t \in Tables |-> Following]]
CutAt(number) == IF number = 0 THEN FirstCut ELSE cuts[number]
LastCut == CutAt(Len(cuts))
IsHeld(t) == LastCut.held[t].at >= 0
\* Commits of batches that left the target behind, which the cut does not name.
LeftBehind(number, t) ==
    LET cut == CutAt(number) IN
    {i \in cut.version[t] + 1 .. Len(log[t]) : log[t][i].batch \in cut.held[t].batch .. number}
HasPending == Len(records) > Len(cuts)
Pending == records[Len(records)]

\* The batches whose commits a table may have after the version that the last cut names.
OwnBatches(t) ==
    (IF HasPending THEN {Len(records)} ELSE {})
    \cup (IF /\ IsHeld(t)
             /\ Len(log[t]) > LastCut.version[t]
          THEN {n \in LastCut.held[t].batch .. Len(cuts) : t \in records[n].targets}
          ELSE {})

\* The table differs from the last cut.
Fails(t) ==
    LET commits == log[t]  from == LastCut.version[t] IN
    /\ Rule("tables are compared with the cut")
    /\ ~(HasPending /\ Pending.kind = "snapshot" /\ t \in Pending.targets)
    /\ \/ AppOf(commits) # LastCut.app[t]
       \/ Len(commits) < from
       \/ \E i \in from + 1 .. Len(commits) : commits[i].batch \notin OwnBatches(t)
       \/ IdOf(commits) # LastCut.id[t] /\ IdOf(commits) \notin OwnBatches(t)

-----------------------------------------------------------------------------
(* Runs.                                                                    *)

NoRecord == [kind |-> "none", number |-> 0, targets |-> {}, low |-> 0, high |-> 0, place |-> 0,
             start |-> 0, held |-> [t \in Tables |-> Following], app |-> 0, version |-> 0,
             files |-> TRUE]
Idle == [pc |-> "idle", rec |-> NoRecord, done |-> [t \in Tables |-> 0], failed |-> {},
         resumed |-> FALSE, late |-> FALSE]

Holds(r) ==
    \/ holder = r
    \/ ~Rule("one run holds the lock")
    \/ run[r].late /\ ~Rule("the lease is looked at")
\* A run that has lost its lease after it looked may still do what it looked for.
MayAct(r) == Holds(r) \/ run[r].late
Undecided(r) == {t \in run[r].rec.targets \ run[r].failed : run[r].done[t] = 0}

\* What a run does next; one that has lost its lease stops at its next look at it.
Goes(r, pc) ==
    run' = [run EXCEPT ![r] = IF @.late /\ Rule("the lease is looked at") THEN Idle
                              ELSE [@ EXCEPT !.pc = pc]]
Stops(r) ==
    /\ run' = [run EXCEPT ![r] = Idle]
    /\ holder' = IF Holds(r) THEN NoRun ELSE holder

Use(kind, limit) == used[kind] < limit /\ used' = [used EXCEPT ![kind] = @ + 1]
NobodyRuns == \A r \in Runs : run[r].pc = "idle"

Init ==
    /\ log = [t \in Tables |-> <<>>]
    /\ synced = [t \in Tables |-> 0]
    /\ records = <<>> /\ cuts = <<>> /\ dirty = {}
    /\ cursor = [batch |-> 0, place |-> 0]
    /\ trusted = TRUE
    /\ holder = NoRun
    /\ run = [r \in Runs |-> Idle]
    /\ side = [t \in Tables |-> [place |-> -1, app |-> 0]]
    /\ used = [kind \in {"crash", "power", "failure", "loss", "person", "snapshot"} |-> 0]
    /\ exempt = {} /\ replaced = FALSE

-----------------------------------------------------------------------------
(* Lock and recovery.                                                       *)

\* The table without commits that no cut names and that a power cut may have torn.
SetBack(t) ==
    LET commits == log[t]
        from == LastCut.version[t]
        unsure == (IF HasPending /\ t \in Pending.targets THEN {Len(records)} ELSE {})
                  \cup (IF IsHeld(t) THEN LastCut.held[t].batch .. Len(cuts) ELSE {})
        torn == {i \in from + 1 .. Len(commits) : commits[i].batch \in unsure}
    IN IF torn = {} THEN commits ELSE SubSeq(commits, 1, Min(torn) - 1)

TakeLock(r) ==
    \* sink/lake_sink.py::Sink.lock  lake/storage/lock.py::writer_lock
    \* lake/storage/lease.py::held_lease  sink/durable/power_cut.py::undo_unsynced
    /\ run[r].pc = "idle"
    /\ holder = NoRun \/ ~Rule("one run holds the lock")
    /\ holder' = r
    /\ run' = [run EXCEPT ![r].pc = "recover"]
    /\ dirty' = IF Rule("names are made durable under the lock") THEN {} ELSE dirty
    /\ IF ~trusted /\ Rule("torn commits are undone")
       THEN /\ log' = [t \in Tables |-> SetBack(t)]
            /\ synced' = [t \in Tables |-> Min({synced[t], Len(SetBack(t))})]
       ELSE UNCHANGED <<log, synced>>
    /\ trusted' = TRUE
    /\ UNCHANGED <<records, cuts, cursor, side, used, exempt, replaced>>

\* Staged files that no record names go; those of a batch that waits stay.
WithoutStaged(r) ==
    [q \in Runs |-> IF q # r /\ run[q].pc = "put" THEN [run[q] EXCEPT !.rec.files = FALSE]
                    ELSE run[q]]

IsBehind == cursor.batch < Len(cuts) \/ cursor.place < LastCut.place
Reconciled == IF IsBehind THEN [batch |-> Len(cuts), place |-> LastCut.place] ELSE cursor

Recover(r) ==
    \* run/recovery.py::recover  run/plan/reconcile.py::reconcile
    \* run/capture/suspension.py::resume  sink/lake_sink.py::Sink.discard_unrecorded
    \* sink/delta/table_checks.py::failing_targets  run/admin_batch.py::AdminBatch.suspend
    /\ run[r].pc = "recover" /\ Holds(r)
    /\ LET failing == {t \in Tables : Fails(t)}
           new == {t \in failing : ~IsHeld(t)}
           number == Len(cuts) + 1
       IN
       IF cursor.batch > Len(cuts) /\ Rule("a cursor that is ahead stops")
       THEN /\ Stops(r)
            /\ UNCHANGED <<cursor, exempt>>
       ELSE IF HasPending
       THEN /\ run' = [run EXCEPT ![r] = [Idle EXCEPT !.pc = "apply", !.rec = Pending,
                                          !.failed = failing \cap Pending.targets,
                                          !.resumed = TRUE]]
            /\ UNCHANGED <<cursor, holder, exempt>>
       ELSE IF new # {}
       THEN /\ number <= Batches
            /\ run' = [WithoutStaged(r) EXCEPT ![r] = [Idle EXCEPT !.pc = "put", !.rec =
                  [NoRecord EXCEPT !.kind = "suspend", !.number = number,
                   !.place = Reconciled.place,
                   !.held = [t \in Tables |-> IF t \in new
                                THEN [at |-> Reconciled.place, batch |-> number]
                                ELSE LastCut.held[t]]]]]
            /\ cursor' = Reconciled
            /\ UNCHANGED <<holder, exempt>>
       ELSE /\ run' = [WithoutStaged(r) EXCEPT ![r] = [Idle EXCEPT !.pc = "plan"]]
            /\ cursor' = Reconciled
            /\ exempt' = {}  \* the run builds on what the tables are
            /\ UNCHANGED holder
    /\ UNCHANGED <<log, synced, records, cuts, dirty, trusted, side, used, replaced>>

Release(r) ==
    \* run/capture/capture.py::capture
    /\ run[r].pc = "plan" /\ Holds(r)
    /\ Stops(r)
    /\ UNCHANGED <<log, synced, records, cuts, dirty, cursor, trusted, side, used, exempt,
                   replaced>>

-----------------------------------------------------------------------------
(* Stage. What is staged and not recorded is in the memory of the run: the  *)
(* next run removes its files.                                              *)

Stages(r, rec) ==
    /\ Len(cuts) < Batches
    /\ run' = [run EXCEPT ![r] =
                  [Idle EXCEPT !.pc = "put", !.rec = [rec EXCEPT !.number = Len(cuts) + 1]]]
    /\ UNCHANGED cursor

StageBatch(r) ==
    \* sink/lake_sink.py::Sink.begin  sink/staging/staging.py::StagedBatch.add
    \* run/capture/commit.py::Committer.commit  run/capture/commit.py::Committer._extent
    /\ run[r].pc = "plan" /\ Holds(r)
    /\ \E high \in cursor.place + 1 .. LogLen :
       LET targets == {t \in Tables : ~IsHeld(t) /\ Changes(t, cursor.place, high) # {}} IN
       IF targets = {}
       THEN /\ cursor' = [cursor EXCEPT !.place = high]  \* nothing changes: no batch
            /\ UNCHANGED run
       ELSE Stages(r, [NoRecord EXCEPT !.kind = "batch", !.targets = targets,
                       !.low = cursor.place, !.high = high, !.place = high,
                       !.start = cursor.place, !.held = LastCut.held])
    /\ UNCHANGED <<log, synced, records, cuts, dirty, trusted, holder, side, used, exempt,
                   replaced>>

StageTakeBack(r, t) ==
    \* run/capture/catch_up.py::CatchUp._take_back  sink/apply/roll_back_uncut.py::roll_back_uncut
    /\ run[r].pc = "plan" /\ Holds(r)
    /\ IsHeld(t) /\ ~Fails(t) /\ LeftBehind(Len(cuts), t) # {}
    /\ Rule("what a batch left behind is taken back")
    /\ Stages(r, [NoRecord EXCEPT !.kind = "restore", !.targets = {t}, !.place = cursor.place,
                  !.version = LastCut.version[t], !.held = LastCut.held])
    /\ UNCHANGED <<log, synced, records, cuts, dirty, trusted, holder, side, used, exempt,
                   replaced>>

StageCatchUp(r, t) ==
    \* run/capture/catch_up.py::CatchUp.run  sink/delta/table_checks.py::check_target
    /\ run[r].pc = "plan" /\ Holds(r)
    /\ IsHeld(t) /\ ~Fails(t)
    /\ Rule("what a batch left behind is taken back") => LeftBehind(Len(cuts), t) = {}
    /\ LET held == LastCut.held[t]  after(h) == [LastCut.held EXCEPT ![t] = h] IN
       IF held.at = cursor.place
       THEN Stages(r, [NoRecord EXCEPT !.kind = "catch_up", !.place = cursor.place,
                       !.held = after(Following)])
       ELSE \E high \in held.at + 1 .. cursor.place :
            Stages(r, [NoRecord EXCEPT !.kind = "catch_up",
                       !.targets = IF Changes(t, held.at, high) = {} THEN {} ELSE {t},
                       !.low = held.at, !.high = high, !.place = cursor.place,
                       !.start = held.at,
                       !.held = after(IF high = cursor.place THEN Following
                                      ELSE [held EXCEPT !.at = high])])
    /\ UNCHANGED <<log, synced, records, cuts, dirty, trusted, holder, side, used, exempt,
                   replaced>>

StageSwap(r, t) ==
    \* operations/snapshot/finish.py::Finish.run  operations/snapshot/swap.py::swap
    \* sink/staging/staging.py::StagedBatch.replace
    /\ run[r].pc = "plan" /\ Holds(r)
    /\ side[t].place >= 0 /\ LastCut.app[t] # side[t].app
    /\ Rule("a snapshot is swapped in at its own place") => side[t].place = cursor.place
    /\ Stages(r, [NoRecord EXCEPT !.kind = "snapshot", !.targets = {t}, !.high = side[t].place,
                  !.place = cursor.place, !.app = side[t].app,
                  !.held = [LastCut.held EXCEPT ![t] = Following]])
    /\ UNCHANGED <<log, synced, records, cuts, dirty, trusted, holder, side, used, exempt,
                   replaced>>

StageRepair(r, t) ==
    \* operations/verify/external_writes.py::put_back
    \* sink/apply/external_writes.py::find_external_write
    /\ run[r].pc = "plan" /\ Holds(r) /\ Fails(t)
    /\ AppOf(log[t]) = LastCut.app[t] /\ Len(log[t]) > LastCut.version[t]
    /\ \E i \in LastCut.version[t] + 1 .. Len(log[t]) : log[t][i].batch = 0
    /\ Stages(r, [NoRecord EXCEPT !.kind = "restore", !.targets = {t}, !.place = cursor.place,
                  !.version = LastCut.version[t], !.held = LastCut.held])
    /\ UNCHANGED <<log, synced, records, cuts, dirty, trusted, holder, side, used, exempt,
                   replaced>>

-----------------------------------------------------------------------------
(* Record.                                                                  *)

PutRecord(r) ==
    \* sink/staging/staging.py::StagedBatch.record  sink/staging/staging.py::StagedBatch.put
    \* lake/storage/storage.py::Storage.put_if_absent
    /\ run[r].pc = "put" /\ MayAct(r)
    /\ LET rec == run[r].rec  isThere == Len(records) >= rec.number IN
       IF isThere /\ Rule("a record is put if absent")
       THEN /\ Stops(r)
            /\ UNCHANGED <<records, dirty>>
       ELSE /\ records' = IF isThere THEN [records EXCEPT ![rec.number] = rec]
                          ELSE Append(records, rec)
            /\ dirty' = IF Store = "disk" THEN dirty \cup {<<"record", rec.number>>} ELSE dirty
            /\ Goes(r, IF Store = "disk" THEN "named" ELSE "apply")
            /\ UNCHANGED holder
    /\ UNCHANGED <<log, synced, cuts, cursor, trusted, side, used, exempt, replaced>>

SyncRecord(r) ==
    \* lake/storage/storage.py::Storage.make_durable
    /\ run[r].pc = "named"
    /\ dirty' = dirty \ {<<"record", run[r].rec.number>>}
    /\ Goes(r, "apply")
    /\ UNCHANGED <<log, synced, records, cuts, cursor, trusted, holder, side, used, exempt,
                   replaced>>

-----------------------------------------------------------------------------
(* Act.                                                                     *)

\* The batch is in the table already, so that nothing is done.
IsThere(rec, t) ==
    IF rec.kind = "snapshot" THEN AppOf(log[t]) = rec.app /\ IdOf(log[t]) >= rec.number
    ELSE IF rec.kind = "restore"
    THEN /\ Len(log[t]) > rec.version
         /\ log[t][Len(log[t])].batch = rec.number
         /\ log[t][Len(log[t])].to = rec.version
    ELSE IdOf(log[t]) >= rec.number /\ Rule("a batch has its transaction id")

\* The target's table is another one, or has batches that come after this one.
IsOther(rec, t) ==
    /\ rec.kind # "snapshot"
    /\ \/ AppOf(log[t]) # CutAt(rec.number - 1).app[t]
       \/ /\ Rule("a later transaction id is refused")
          /\ \/ IdOf(log[t]) > rec.number
             \/ IdOf(log[t]) = rec.number /\ rec.kind = "restore"  \* which has no id of its own
       \/ /\ rec.kind = "catch_up" /\ ~IsThere(rec, t)
          /\ Rule("what a batch left behind is taken back")
          /\ Rule("what a batch left behind is looked for again")
          /\ LeftBehind(rec.number - 1, t) # {}

\* Another program has written to the table after the batch.
IsChangedSince(t) ==
    /\ Rule("a finished table is as its batch left it")
    /\ log[t] # <<>> /\ log[t][Len(log[t])].batch = 0

RowsAfter(rec, t) ==
    LET rows == RowsAt(t, Len(log[t]))  places == Changes(t, rec.low, rec.high) IN
    CASE rec.kind = "snapshot" -> Whole(t, rec.high)
      [] rec.kind = "restore" -> RowsAt(t, rec.version)
      [] OTHER -> Plus(rows, places)

Apply(r, t) ==
    \* sink/apply/merge.py::applied_log sink/apply/merge.py::apply_target
    \* sink/delta/plain_commit.py::PlainCommit.commit  sink/delta/commit.py::run_once
    \* sink/replace/replace.py::adopt  sink/apply/external_writes.py::restore
    \* lake/staged_file.py::verify
    /\ run[r].pc = "apply" /\ MayAct(r)
    /\ t \in Undecided(r)
    /\ LET rec == run[r].rec IN
       IF \/ IsOther(rec, t)
          \/ ~rec.files /\ ~IsThere(rec, t)
          \/ IsThere(rec, t) /\ IsChangedSince(t)
       THEN /\ run' = [run EXCEPT ![r].failed = @ \cup {t}]
            /\ UNCHANGED log
       ELSE IF IsThere(rec, t)
       THEN /\ run' = [run EXCEPT ![r].done[t] = Len(log[t])]
            /\ UNCHANGED log
       ELSE /\ log' = [log EXCEPT ![t] = Append(@,
                  [batch |-> rec.number, to |-> IF rec.kind = "restore" THEN rec.version ELSE -1,
                   id |-> IF rec.kind = "restore" THEN 0 ELSE rec.number,
                   app |-> IF rec.kind = "snapshot" THEN rec.app ELSE AppOf(@),
                   rows |-> RowsAfter(rec, t), whole |-> TRUE])]
            /\ run' = [run EXCEPT ![r].done[t] = Len(log[t]) + 1]
    /\ UNCHANGED <<synced, records, cuts, dirty, cursor, trusted, holder, side, used, exempt,
                   replaced>>

FailTarget(r, t) ==
    \* sink/delta_sink.py::_DeltaTables.register  sink/lake_sink.py::Sink.finish
    \* Anything may fail for a table, before its commit and after it. What a snapshot has put in place
    \* is not given up.
    /\ run[r].pc = "apply" /\ Holds(r)
    /\ t \in run[r].rec.targets \ run[r].failed
    /\ run[r].rec.kind = "snapshot" => run[r].done[t] = 0
    /\ Use("failure", Failures)
    /\ run' = [run EXCEPT ![r].failed = @ \cup {t}]
    /\ UNCHANGED <<log, synced, records, cuts, dirty, cursor, trusted, holder, side, exempt,
                   replaced>>

MakeDurable(r) ==
    \* sink/delta_sink.py::_DeltaTables.make_durable  sink/durable/durability.py::make_durable
    \* Failed targets are synced too: a later cut may build on what they have.
    /\ run[r].pc = "apply" /\ Holds(r) /\ Undecided(r) = {}
    /\ synced' = [t \in Tables |->
                     IF t \in run[r].rec.targets /\ Rule("commits are durable before the cut")
                     THEN Len(log[t]) ELSE synced[t]]
    /\ Goes(r, IF Rule("the cursor comes after the cut") THEN "cut" ELSE "cursor")
    /\ UNCHANGED <<log, records, cuts, dirty, cursor, trusted, holder, side, used, exempt,
                   replaced>>

FailSync(r, t) ==
    \* sink/durable/durability.py::make_durable  sink/durable/power_cut.py::distrust
    \* The disk refuses a table's files: the table is left behind, its commits are undone.
    /\ Store = "disk"
    /\ run[r].pc = "apply" /\ Holds(r) /\ Undecided(r) = {}
    /\ t \in run[r].rec.targets \ run[r].failed
    /\ Use("failure", Failures)
    /\ synced' = [u \in Tables |->
                     IF u \in run[r].rec.targets \ {t} THEN Len(log[u]) ELSE synced[u]]
    /\ run' = [run EXCEPT ![r].failed = @ \cup {t}, ![r].pc = "cut"]
    /\ trusted' = FALSE
    /\ UNCHANGED <<log, records, cuts, dirty, cursor, holder, side, exempt, replaced>>

-----------------------------------------------------------------------------
(* Cut and cursor.                                                          *)

NextCut(rec, done, failed) ==
    LET before == CutAt(rec.number - 1)  has(t) == t \in rec.targets \ failed IN
    [place |-> rec.place,
     version |-> [t \in Tables |-> IF has(t) THEN done[t] ELSE before.version[t]],
     id |-> [t \in Tables |-> IF has(t) THEN IdOf(SubSeq(log[t], 1, done[t])) ELSE before.id[t]],
     app |-> [t \in Tables |-> IF has(t) /\ rec.kind = "snapshot" THEN rec.app ELSE before.app[t]],
     held |-> [t \in Tables |->
                  IF t \notin failed THEN rec.held[t]
                  ELSE IF rec.kind \in {"snapshot", "restore"} \/ before.held[t].at >= 0
                  THEN before.held[t]
                  ELSE [at |-> rec.start, batch |-> rec.number]]]

PutCut(r) ==
    \* sink/next_cut.py::next_cut  lake/table_facts.py::put_cut
    \* Nothing looks at the lease between the last look and the cursor.
    /\ run[r].pc = "cut" /\ MayAct(r)
    /\ LET rec == run[r].rec IN
       IF Len(cuts) >= rec.number
       THEN UNCHANGED <<cuts, dirty>>
       ELSE /\ cuts' = Append(cuts, NextCut(rec, run[r].done, run[r].failed))
            /\ dirty' = IF Store = "disk" THEN dirty \cup {<<"cut", rec.number>>} ELSE dirty
    /\ run' = [run EXCEPT ![r].pc = IF ~Rule("the cursor comes after the cut") THEN "recover"
                                    ELSE IF Store = "disk" THEN "cut named" ELSE "cursor"]
    /\ UNCHANGED <<log, synced, records, cursor, trusted, holder, side, used, exempt, replaced>>

SyncCut(r) ==
    \* lake/storage/storage.py::Storage.make_durable
    /\ run[r].pc = "cut named"
    /\ dirty' = dirty \ {<<"cut", run[r].rec.number>>}
    /\ run' = [run EXCEPT ![r].pc = "cursor"]
    /\ UNCHANGED <<log, synced, records, cuts, cursor, trusted, holder, side, used, exempt,
                   replaced>>

WriteCursor(r) ==
    \* run/publish.py::Publisher.publish  run/publish.py::Publisher.move_to_cut
    \* sink/cursor_table.py::DeltaCursorStore.write  position/cursor.py::CursorGuard.check_write
    \* Then the ack, and sink/lake_sink.py::Sink.cleanup: neither is needed by any rule here.
    /\ run[r].pc = "cursor" /\ MayAct(r)
    /\ LET number == run[r].rec.number IN
       IF cursor.batch > number
       THEN /\ Stops(r)
            /\ UNCHANGED cursor
       ELSE /\ cursor' = [batch |-> number,
                          place |-> IF number <= Len(cuts) THEN cuts[number].place
                                    ELSE run[r].rec.place]
            /\ Goes(r, IF ~Rule("the cursor comes after the cut") THEN "cut"
                       ELSE IF run[r].resumed THEN "recover" ELSE "plan")
            /\ UNCHANGED holder
    /\ UNCHANGED <<log, synced, records, cuts, dirty, trusted, side, used, exempt, replaced>>

-----------------------------------------------------------------------------
(* Loads. A side lake is an ordinary lake; what counts is its place.        *)

BeginLoad(t) ==
    \* operations/snapshot/snapshot.py::take_snapshot  operations/snapshot/chunks.py::SnapshotChunks
    /\ side[t].place < 0
    /\ Use("snapshot", Loads)
    /\ \E place \in cursor.place .. LogLen :
       side' = [side EXCEPT ![t] = [place |-> place, app |-> used["snapshot"] + 1]]
    /\ UNCHANGED <<log, synced, records, cuts, dirty, cursor, trusted, holder, run, exempt,
                   replaced>>

CaptureSide(t) ==
    \* operations/snapshot/side.py::SnapshotLake.capture_to
    /\ side[t].place >= 0 /\ side[t].place < cursor.place
    /\ side' = [side EXCEPT ![t].place = cursor.place]
    /\ UNCHANGED <<log, synced, records, cuts, dirty, cursor, trusted, holder, run, used, exempt,
                   replaced>>

-----------------------------------------------------------------------------
(* Faults.                                                                  *)

Crash(r) ==
    \* fault_points.py::reach
    /\ run[r].pc # "idle"
    /\ Use("crash", Crashes)
    /\ Stops(r)
    /\ UNCHANGED <<log, synced, records, cuts, dirty, cursor, trusted, side, exempt, replaced>>

PowerCut ==
    \* The disk keeps what was synced, and any part of the rest: fewer commits, torn ones. A torn
    \* commit of a batch looks whole. Those of other programs are theirs to sync.
    /\ Store = "disk"
    /\ Use("power", PowerCuts)
    /\ run' = [r \in Runs |-> Idle]
    /\ holder' = NoRun
    /\ trusted' = FALSE
    /\ \E kept \in [Tables -> 0 .. Max({Len(log[t]) : t \in Tables})], torn \in BOOLEAN :
       /\ \A t \in Tables : kept[t] \in synced[t] .. Len(log[t])
       /\ log' = [t \in Tables |-> [i \in 1 .. kept[t] |->
                     IF i > synced[t] /\ log[t][i].batch > 0 /\ torn
                     THEN [log[t][i] EXCEPT !.whole = FALSE] ELSE log[t][i]]]
    /\ \E lost \in SUBSET dirty :
       /\ records' = IF <<"record", Len(records)>> \in lost
                     THEN SubSeq(records, 1, Len(records) - 1) ELSE records
       /\ cuts' = IF <<"cut", Len(cuts)>> \in lost THEN SubSeq(cuts, 1, Len(cuts) - 1) ELSE cuts
    /\ dirty' = {}
    /\ UNCHANGED <<synced, cursor, side, exempt, replaced>>

LoseLease(r) ==
    \* lake/storage/lease.py::held_lease
    \* The run is paused, and its lease expires; what it has looked for it may still do.
    /\ Store = "object" /\ Holds(r)
    /\ Use("loss", Losses)
    /\ holder' = NoRun
    /\ run' = [run EXCEPT ![r].late = TRUE]
    /\ UNCHANGED <<log, synced, records, cuts, dirty, cursor, trusted, side, exempt, replaced>>

SeeLoss(r) ==
    \* sink/lake_sink.py::Sink.begin
    /\ run[r].late
    /\ run' = [run EXCEPT ![r] = Idle]
    /\ UNCHANGED <<log, synced, records, cuts, dirty, cursor, trusted, holder, side, used, exempt,
                   replaced>>

-----------------------------------------------------------------------------
(* A person, while nothing runs.                                            *)

Intervenes == NobodyRuns /\ Use("person", Interventions)

RestoreState ==
    \* The folder _cdc comes from a backup, the tables stay as they are. The backup may hold the
    \* record of a batch that was at work, without its staged files. It holds no load under way.
    /\ Intervenes
    /\ \E number \in 0 .. Len(cuts) - 1, extra \in {0, 1} :
       /\ cuts' = SubSeq(cuts, 1, number)
       /\ records' = [i \in 1 .. number + extra |->
                         IF i > number THEN [records[i] EXCEPT !.files = FALSE] ELSE records[i]]
       /\ replaced' = (replaced \/ cursor.batch > number)
    /\ dirty' = {}
    /\ exempt' = Tables
    /\ side' = [t \in Tables |-> [place |-> -1, app |-> 0]]
    /\ UNCHANGED <<log, synced, cursor, trusted, holder, run>>

RestoreLake ==
    \* State and tables come from one backup, of a lake that nobody had touched.
    /\ Intervenes /\ used["person"] = 0
    /\ \E number \in 0 .. Len(cuts) - 1 :
       /\ cuts' = SubSeq(cuts, 1, number)
       /\ records' = SubSeq(records, 1, number)
       /\ log' = [t \in Tables |-> SubSeq(log[t], 1, CutAt(number).version[t])]
       /\ synced' = [t \in Tables |-> CutAt(number).version[t]]
       /\ replaced' = (replaced \/ cursor.batch > number)
    /\ dirty' = {}
    /\ UNCHANGED <<cursor, trusted, holder, run, side, exempt>>

RestoreTable ==
    \* One table comes from a backup.
    /\ Intervenes
    /\ \E t \in Tables : \E version \in 0 .. Len(log[t]) - 1 :
       /\ log' = [log EXCEPT ![t] = SubSeq(@, 1, version)]
       /\ synced' = [synced EXCEPT ![t] = version]
       /\ exempt' = exempt \cup {t}
    /\ UNCHANGED <<records, cuts, dirty, cursor, trusted, holder, run, side, replaced>>

RestoreCommand ==
    \* RESTORE TABLE ... TO VERSION AS OF: a commit of another program, which keeps transaction ids.
    /\ Intervenes
    /\ \E t \in Tables : \E version \in 0 .. Len(log[t]) :
       /\ log' = [log EXCEPT ![t] = Append(@, [batch |-> 0, to |-> -1, id |-> 0, app |-> AppOf(@),
                                               rows |-> RowsAt(t, version), whole |-> TRUE])]
       /\ exempt' = exempt \cup {t}
    /\ UNCHANGED <<synced, records, cuts, dirty, cursor, trusted, holder, run, side, replaced>>

LoseCursor ==
    \* orchestration/cursor_store.py::DagsterCursorStore.read
    /\ Intervenes
    /\ cursor' = [batch |-> 0, place |-> 0]
    /\ replaced' = FALSE
    /\ UNCHANGED <<log, synced, records, cuts, dirty, trusted, holder, run, side, exempt>>

RebuildCursor ==
    \* operations/cursor/cursor_change.py::apply_rebuild
    /\ NobodyRuns /\ replaced /\ ~HasPending
    /\ cursor' = [batch |-> Len(cuts), place |-> LastCut.place]
    /\ replaced' = FALSE
    /\ dirty' = {}  \* under the lock
    /\ UNCHANGED <<log, synced, records, cuts, trusted, holder, run, side, used, exempt>>

-----------------------------------------------------------------------------

Works(r) ==
    \/ TakeLock(r) \/ Recover(r) \/ StageBatch(r) \/ PutRecord(r) \/ SyncRecord(r)
    \/ MakeDurable(r) \/ PutCut(r) \/ SyncCut(r) \/ WriteCursor(r)
    \/ \E t \in Tables : StageTakeBack(r, t) \/ StageCatchUp(r, t) \/ StageSwap(r, t) \/ Apply(r, t)

Next ==
    \/ \E r \in Runs : Works(r) \/ Release(r) \/ Crash(r) \/ LoseLease(r) \/ SeeLoss(r)
    \/ \E r \in Runs, t \in Tables : StageRepair(r, t) \/ FailTarget(r, t) \/ FailSync(r, t)
    \/ \E t \in Tables : BeginLoad(t) \/ CaptureSide(t)
    \/ PowerCut
    \/ RestoreState \/ RestoreLake \/ RestoreTable \/ RestoreCommand \/ LoseCursor \/ RebuildCursor

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* Invariants, of the last cut and the tables that follow the source in it. *)

Shown == {t \in Tables : ~IsHeld(t) /\ t \notin exempt}
IsReadable(t) == LastCut.version[t] <= Len(log[t])
Named(t) == RowsAt(t, LastCut.version[t])

\* Each change up to the cut is in the tables of the cut ...
NoLostChange ==
    \A t \in Shown : IsReadable(t) => \A p \in Changes(t, 0, LastCut.place) : Named(t)[p] >= 1

\* ... and no change is there twice.
NoneTwice == \A t \in Shown : IsReadable(t) => \A p \in Places : Named(t)[p] <= 1

\* What a cut names is there, whole, of the table that it means, and nothing of it is later.
CutAtomic ==
    \A t \in Shown :
        /\ IsReadable(t)
        /\ \A i \in 1 .. LastCut.version[t] : log[t][i].whole
        /\ LastCut.app[t] = AppOf(SubSeq(log[t], 1, LastCut.version[t]))
        /\ \A p \in LastCut.place + 1 .. LogLen : Named(t)[p] = 0

\* A cursor names no batch whose cut a power cut could take away.
CursorNeverAhead ==
    LET durable == {n \in 1 .. Len(cuts) : <<"cut", n>> \notin dirty} IN
    replaced \/ cursor.batch <= Cardinality(durable)

\* A lock holds.
OneWriter == \A r, q \in Runs : r # q /\ run[r].pc # "idle" /\ run[q].pc # "idle" =>
                 run[r].late \/ run[q].late

-----------------------------------------------------------------------------
(* Progress, once faults have ended: the log is in the tables, and the      *)
(* cursor says so.                                                          *)

Fair ==
    /\ \A r \in Runs :
        /\ WF_vars(TakeLock(r)) /\ WF_vars(Recover(r)) /\ WF_vars(PutRecord(r))
        /\ WF_vars(SyncRecord(r)) /\ WF_vars(MakeDurable(r)) /\ WF_vars(PutCut(r))
        /\ WF_vars(SyncCut(r)) /\ WF_vars(WriteCursor(r))
        /\ SF_vars(StageBatch(r))
        /\ \A t \in Tables : /\ WF_vars(Apply(r, t))
                             /\ SF_vars(StageTakeBack(r, t)) /\ SF_vars(StageCatchUp(r, t))

FairSpec == Spec /\ Fair
Arrived == cursor.place = LogLen /\ cursor.batch = Len(cuts) /\ \A t \in Tables : ~IsHeld(t)
Progress == <>[]Arrived
=============================================================================
