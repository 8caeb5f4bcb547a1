------------------------------- MODULE Leases -------------------------------
(* Is there at most one valid lease, while clocks differ within bounds and   *)
(* nodes crash and come back without memory, or with an old one?             *)
(*                                                                           *)
(* Time is counted in ticks, and always as what is left of it: so the model  *)
(* is finite without a last tick. Ticks are the client's. A node's clock may *)
(* differ by Drift over a ttl: a lock is kept there for at least TTL - Drift *)
(* ticks, and then vanishes at any moment, or never.                         *)
(*                                                                           *)
(* Wider than the code, so that more is shown than is needed:                *)
(*  - the confirm round is left out: all it can do to a lease is delay or    *)
(*    refuse it (its own question is asked in Fences);                       *)
(*  - once an extension succeeded, any node may be healed, not only those    *)
(*    that said absent; in quarantine the lock of whomever is replaced;      *)
(*  - quarantine begins with the crash, not when a client sees it.           *)

EXTENDS Quorum

CONSTANTS
  TTL,         \* for how long nodes are asked to keep a lock; max_ttl, too
  Allowance,   \* how much of it a client does not rely on
  Drift,       \* how much a node's clock really differs
  Disks        \* nodes that may come back with an old memory; all may come back without any

ASSUME Mutation \in {"none", "no quarantine", "votes in quarantine", "trusting restored locks",
                     "trusting old markers", "clock read after the answers"}
ASSUME Disks \subseteq Nodes /\ Allowance < TTL /\ Drift <= TTL

Valid == TTL - Allowance
Kept == TTL - Drift
Quarantine == IF Mutation = "no quarantine" THEN 0 ELSE TTL - Drift

VARIABLES
  lock,     \* node -> whose token it names
  kept,     \* node -> ticks for which it is certain to do so
  closed,   \* node -> ticks of quarantine left
  disk,     \* node -> what is on its disk: the lock of some earlier moment
  state,    \* attempt -> idle, asked, held, over
  left,     \* attempt -> ticks of validity left, counted from before it asked
  votes,    \* attempt -> nodes that said yes in the current round
  round,    \* attempt -> what `left` will be if the extension under way succeeds; 0: there is none
  heals     \* attempts that may have sent a healing

vars == <<lock, kept, closed, disk, state, left, votes, round, heals>>
nodes == <<lock, kept, closed, disk>>
clients == <<state, left, votes, round, heals>>

Init ==
  /\ lock = [n \in Nodes |-> Nobody]
  /\ kept = [n \in Nodes |-> 0]
  /\ closed = [n \in Nodes |-> 0]
  /\ disk = [n \in Nodes |-> Nobody]
  /\ state = [a \in Attempts |-> "idle"]
  /\ left = [a \in Attempts |-> 0]
  /\ votes = [a \in Attempts |-> {}]
  /\ round = [a \in Attempts |-> 0]
  /\ heals = {}

-----------------------------------------------------------------------------
(* The client: redlock.py, renewal.py, validity.py *)

Ask(a) ==
  /\ state[a] = "idle"
  /\ state' = [state EXCEPT ![a] = "asked"]
  /\ left' = [left EXCEPT ![a] = Valid]
  /\ UNCHANGED <<nodes, votes, round, heals>>

(* Too late if nothing is left: Tick has ended the attempt then. *)
Win(a) ==
  /\ state[a] = "asked"
  /\ IsMajority(votes[a])
  /\ state' = [state EXCEPT ![a] = "held"]
  /\ left' = IF Mutation = "clock read after the answers" THEN [left EXCEPT ![a] = Valid] ELSE left
  /\ votes' = [votes EXCEPT ![a] = {}]
  /\ UNCHANGED <<nodes, round, heals>>

End(a) ==
  /\ state' = [state EXCEPT ![a] = "over"]
  /\ left' = [left EXCEPT ![a] = 0]
  /\ votes' = [votes EXCEPT ![a] = {}]
  /\ round' = [round EXCEPT ![a] = 0]
  /\ UNCHANGED <<nodes, heals>>

GiveUp(a) == state[a] = "asked" /\ End(a)

Release(a) == state[a] = "held" /\ End(a)

(* The holder or its keeper; a round that came to nothing is followed by another. *)
BeginExtension(a) ==
  /\ state[a] = "held"
  /\ round' = [round EXCEPT ![a] = Valid]
  /\ votes' = [votes EXCEPT ![a] = {}]
  /\ UNCHANGED <<nodes, state, left, heals>>

EndExtension(a) ==
  /\ state[a] = "held"
  /\ round[a] > 0
  /\ IsMajority(votes[a])
  /\ left' = [left EXCEPT ![a] = round[a]]
  /\ round' = [round EXCEPT ![a] = 0]
  /\ votes' = [votes EXCEPT ![a] = {}]
  /\ heals' = heals \cup {a}
  /\ UNCHANGED <<nodes, state>>

-----------------------------------------------------------------------------
(* The nodes: acquire.lua, extend.lua, heal.lua, release.lua, standing.lua *)

(* A node that names the token already says yes again, and renews nothing. *)
Grant(n, a) ==
  /\ state[a] # "idle"
  /\ closed[n] = 0
  /\ lock[n] \in {Nobody, a}
  /\ lock' = [lock EXCEPT ![n] = a]
  /\ kept' = [kept EXCEPT ![n] = IF lock[n] = a THEN @ ELSE Kept]
  /\ votes' = IF state[a] = "asked" THEN [votes EXCEPT ![a] = @ \cup {n}] ELSE votes
  /\ UNCHANGED <<closed, disk, state, left, round, heals>>

MayVote(n) == closed[n] = 0 \/ Mutation \in {"votes in quarantine", "trusting restored locks"}

(* A node in quarantine renews what it has, but this is no vote. *)
Extend(n, a) ==
  /\ state[a] \in {"held", "over"}
  /\ lock[n] = a
  /\ kept' = [kept EXCEPT ![n] = Kept]
  /\ votes' = IF round[a] > 0 /\ MayVote(n) THEN [votes EXCEPT ![a] = @ \cup {n}] ELSE votes
  /\ UNCHANGED <<lock, closed, disk, state, left, round, heals>>

Heal(n, a) ==
  /\ a \in heals
  /\ Mutation # "trusting restored locks"   \* so that what is in quarantine can only come from a disk
  /\ lock[n] \in {Nobody, a} \/ closed[n] > 0
  /\ lock' = [lock EXCEPT ![n] = a]
  /\ kept' = [kept EXCEPT ![n] = Kept]
  /\ UNCHANGED <<closed, disk, clients>>

(* After a release, and after an attempt that failed; perhaps before the request that it undoes. *)
Delete(n, a) ==
  /\ state[a] = "over"
  /\ lock[n] = a
  /\ lock' = [lock EXCEPT ![n] = Nobody]
  /\ kept' = [kept EXCEPT ![n] = 0]
  /\ UNCHANGED <<closed, disk, clients>>

Expire(n) ==
  /\ lock[n] # Nobody
  /\ kept[n] = 0
  /\ lock' = [lock EXCEPT ![n] = Nobody]
  /\ UNCHANGED <<kept, closed, disk, clients>>

-----------------------------------------------------------------------------
(* What happens to nodes, and time: join.lua *)

(* An empty disk is what CrashEmpty is about. *)
Save(n) ==
  /\ n \in Disks
  /\ lock[n] # Nobody
  /\ disk' = [disk EXCEPT ![n] = lock[n]]
  /\ UNCHANGED <<lock, kept, closed, clients>>

CrashEmpty(n) ==
  /\ lock' = [lock EXCEPT ![n] = Nobody]
  /\ kept' = [kept EXCEPT ![n] = 0]
  /\ closed' = [closed EXCEPT ![n] = Quarantine]
  /\ UNCHANGED <<disk, clients>>

(* What the disk brings back may be of any age. For how long it stays is anybody's guess. *)
CrashOld(n) ==
  /\ n \in Disks
  /\ disk[n] # Nobody
  /\ lock' = [lock EXCEPT ![n] = disk[n]]
  /\ kept' = [kept EXCEPT ![n] = 0]
  /\ closed' = [closed EXCEPT ![n] = IF Mutation = "trusting old markers" THEN 0 ELSE Quarantine]
  /\ UNCHANGED <<disk, clients>>

Less(x) == IF x > 0 THEN x - 1 ELSE 0

Tick ==
  /\ kept' = [n \in Nodes |-> Less(kept[n])]
  /\ closed' = [n \in Nodes |-> Less(closed[n])]
  /\ left' = [a \in Attempts |-> Less(left[a])]
  /\ state' = [a \in Attempts |-> IF left[a] = 1 THEN "over" ELSE state[a]]
  /\ round' = [a \in Attempts |-> IF left[a] = 1 THEN 0 ELSE Less(round[a])]
  /\ votes' = [a \in Attempts |-> IF left[a] = 1 THEN {} ELSE votes[a]]
  /\ UNCHANGED <<lock, disk, heals>>

Next ==
  \/ \E a \in Attempts : Ask(a)
  \/ \E a \in Attempts : Win(a)
  \/ \E a \in Attempts : GiveUp(a)
  \/ \E a \in Attempts : Release(a)
  \/ \E a \in Attempts : BeginExtension(a)
  \/ \E a \in Attempts : EndExtension(a)
  \/ \E a \in Attempts, n \in Nodes : Grant(n, a)
  \/ \E a \in Attempts, n \in Nodes : Extend(n, a)
  \/ \E a \in Attempts, n \in Nodes : Heal(n, a)
  \/ \E a \in Attempts, n \in Nodes : Delete(n, a)
  \/ \E n \in Nodes : Expire(n)
  \/ \E n \in Nodes : Save(n)
  \/ \E n \in Nodes : CrashEmpty(n)
  \/ \E n \in Nodes : CrashOld(n)
  \/ Tick

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------

TypeOK ==
  /\ lock \in [Nodes -> Attempts \cup {Nobody}]
  /\ kept \in [Nodes -> 0..TTL]
  /\ closed \in [Nodes -> 0..TTL]
  /\ disk \in [Nodes -> Attempts \cup {Nobody}]
  /\ state \in [Attempts -> {"idle", "asked", "held", "over"}]
  /\ left \in [Attempts -> 0..Valid] /\ round \in [Attempts -> 0..Valid]
  /\ \A a \in Attempts : votes[a] \subseteq Nodes
  /\ \A a \in Attempts : (left[a] > 0) <=> (state[a] \in {"asked", "held"})
  /\ heals \subseteq Attempts

(* At most one lease is valid: held, and some of its time is left. *)
Exclusion == \A a, b \in Attempts : state[a] = "held" /\ state[b] = "held" => a = b

Symmetry == Permutations(Attempts) \cup Permutations(Disks) \cup Permutations(Nodes \ Disks)

=============================================================================
