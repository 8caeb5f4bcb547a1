------------------------------- MODULE Fences -------------------------------
(* Are fences unique and ordered, whatever time does?                        *)
(*                                                                           *)
(* There is no clock in this model: a lock may vanish from a node at any     *)
(* moment (Gone), and a client may read an answer however late. Memory is    *)
(* kept: no node forgets a fence.                                            *)
(*                                                                           *)
(* Wider than the code, so that more is shown than is needed:                *)
(*  - a grant may carry any fence above the stored one. The code takes the   *)
(*    next one or a clamped wall clock (acquire.lua), which is one of them;  *)
(*  - whoever won may extend and heal at any time and on any node, also long *)
(*    after its lease was lost, and without a majority that justifies it.    *)

EXTENDS Quorum

CONSTANT MaxFence   \* bounds the model: a node at this fence grants nothing more

ASSUME Mutation \in {"none", "no confirm", "loose confirm", "fence not raised"}

VARIABLES
  lock,      \* node -> whose token it names
  fence,     \* node -> the fence it stores
  state,     \* attempt -> idle, asked, decided (on a fence, not yet confirmed), won
  floor,     \* attempt -> the highest fence that anybody had won when it began
  granted,   \* attempt -> grants that were sent to it, and may yet be heard: <<node, fence>>
  heard,     \* attempt -> node -> the fence granted, or confirmed since; 0: no grant was heard
  top        \* attempt -> the fence it decided on

vars == <<lock, fence, state, floor, granted, heard, top>>
nodes == <<lock, fence>>
clients == <<state, floor, granted, heard, top>>

Deaf == [n \in Nodes |-> 0]

Init ==
  /\ lock = [n \in Nodes |-> Nobody]
  /\ fence = [n \in Nodes |-> 0]
  /\ state = [a \in Attempts |-> "idle"]
  /\ floor = [a \in Attempts |-> 0]
  /\ granted = [a \in Attempts |-> {}]
  /\ heard = [a \in Attempts |-> Deaf]
  /\ top = [a \in Attempts |-> 0]

Winners == {a \in Attempts : state[a] = "won"}

-----------------------------------------------------------------------------
(* The client: redlock.py, fence.py *)

Ask(a) ==
  /\ state[a] = "idle"
  /\ state' = [state EXCEPT ![a] = "asked"]
  /\ floor' = [floor EXCEPT ![a] = Max({0} \cup {top[b] : b \in Winners})]
  /\ UNCHANGED <<nodes, granted, heard, top>>

(* The first grant of a node that is heard counts; a resent request may have brought others. *)
Decide(a) ==
  /\ state[a] = "asked"
  /\ \E S \in Majorities : \E g \in [S -> 1..MaxFence] :
       /\ \A n \in S : <<n, g[n]>> \in granted[a]
       /\ heard' = [heard EXCEPT ![a] = [n \in Nodes |-> IF n \in S THEN g[n] ELSE 0]]
       /\ top' = [top EXCEPT ![a] = Max({g[n] : n \in S})]
       /\ granted' = [granted EXCEPT ![a] = {s \in @ : s[1] \notin S /\ s[2] <= Max({g[n] : n \in S})}]
  /\ state' = [state EXCEPT ![a] = "decided"]
  /\ UNCHANGED <<nodes, floor>>

(* A grant that is heard later takes part: as confirmed, or as a further node to ask. One above is of no use. *)
HearLate(a, n) ==
  /\ state[a] = "decided"
  /\ heard[a][n] = 0
  /\ \E f \in 1..top[a] : /\ <<n, f>> \in granted[a]
                          /\ heard' = [heard EXCEPT ![a][n] = f]
  /\ granted' = [granted EXCEPT ![a] = {s \in @ : s[1] # n}]
  /\ UNCHANGED <<nodes, state, floor, top>>

Confirmed(a) == {n \in Nodes : heard[a][n] = top[a]}

(* In steady state all grants carry one fence, and this follows Decide at once. *)
Win(a) ==
  /\ state[a] = "decided"
  /\ Mutation = "no confirm" \/ IsMajority(Confirmed(a))
  /\ state' = [state EXCEPT ![a] = "won"]
  \* What it heard matters no more (a confirm that is still under way does what Extend does),
  \* nor does what it had to exceed, if it does.
  /\ granted' = [granted EXCEPT ![a] = {}]
  /\ heard' = [heard EXCEPT ![a] = Deaf]
  /\ floor' = [floor EXCEPT ![a] = IF top[a] > @ THEN 0 ELSE @]
  /\ UNCHANGED <<nodes, top>>

-----------------------------------------------------------------------------
(* The nodes: acquire.lua, confirm.lua, extend.lua, heal.lua, break.lua *)

Sent(a, n, f) == IF state[a] = "asked" \/ (state[a] = "decided" /\ heard[a][n] = 0 /\ f <= top[a])
                 THEN granted' = [granted EXCEPT ![a] = @ \cup {<<n, f>>}]
                 ELSE UNCHANGED granted

Grant(n, a) ==
  /\ state[a] # "idle"
  /\ lock[n] = Nobody
  /\ \E f \in (fence[n] + (IF Mutation = "fence not raised" THEN 0 ELSE 1))..MaxFence :
       /\ f > 0
       /\ lock' = [lock EXCEPT ![n] = a]
       /\ fence' = [fence EXCEPT ![n] = f]
       /\ Sent(a, n, f)
  /\ UNCHANGED <<state, floor, heard, top>>

(* The lock is the client's already: a resent request, or an answer that was lost. *)
GrantAgain(n, a) ==
  /\ lock[n] = a
  /\ Sent(a, n, fence[n])
  /\ UNCHANGED <<nodes, state, floor, heard, top>>

(* Only while the node names the token, and still has the fence that it granted. *)
Confirm(n, a) ==
  /\ state[a] = "decided"
  /\ heard[a][n] > 0 /\ heard[a][n] < top[a]
  /\ lock[n] = a
  /\ Mutation = "loose confirm" \/ fence[n] = heard[a][n]
  /\ fence' = [fence EXCEPT ![n] = Larger(@, top[a])]
  /\ heard' = [heard EXCEPT ![a][n] = top[a]]
  /\ UNCHANGED <<lock, state, floor, granted, top>>

Extend(n, a) ==
  /\ state[a] = "won"
  /\ lock[n] = a
  /\ fence' = [fence EXCEPT ![n] = Larger(@, top[a])]
  /\ UNCHANGED <<lock, clients>>

Heal(n, a) ==
  /\ state[a] = "won"
  /\ lock[n] = Nobody
  /\ lock' = [lock EXCEPT ![n] = a]
  /\ fence' = [fence EXCEPT ![n] = Larger(@, top[a])]
  /\ UNCHANGED clients

(* It expired, was released by its holder, undone after an attempt that failed, or deleted by hand. *)
Gone(n) ==
  /\ lock[n] # Nobody
  /\ lock' = [lock EXCEPT ![n] = Nobody]
  /\ UNCHANGED <<fence, clients>>

Break(n) ==
  /\ \E f \in (fence[n] + 1)..MaxFence : fence' = [fence EXCEPT ![n] = f]
  /\ lock' = [lock EXCEPT ![n] = Nobody]
  /\ UNCHANGED clients

Next ==
  \/ \E a \in Attempts : Ask(a)
  \/ \E a \in Attempts : Decide(a)
  \/ \E a \in Attempts : Win(a)
  \/ \E a \in Attempts, n \in Nodes : HearLate(a, n)
  \/ \E a \in Attempts, n \in Nodes : Grant(n, a)
  \/ \E a \in Attempts, n \in Nodes : GrantAgain(n, a)
  \/ \E a \in Attempts, n \in Nodes : Confirm(n, a)
  \/ \E a \in Attempts, n \in Nodes : Extend(n, a)
  \/ \E a \in Attempts, n \in Nodes : Heal(n, a)
  \/ \E n \in Nodes : Gone(n)
  \/ \E n \in Nodes : Break(n)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------

TypeOK ==
  /\ lock \in [Nodes -> Attempts \cup {Nobody}]
  /\ fence \in [Nodes -> 0..MaxFence]
  /\ state \in [Attempts -> {"idle", "asked", "decided", "won"}]
  /\ \A a \in Attempts : granted[a] \subseteq Nodes \X (1..MaxFence)
  /\ heard \in [Attempts -> [Nodes -> 0..MaxFence]]
  /\ top \in [Attempts -> 0..MaxFence] /\ floor \in [Attempts -> 0..MaxFence]

(* No two leases ever have the same fence. *)
Unique == \A a, b \in Winners : a # b => top[a] # top[b]

(* Whoever asks after somebody has won gets a higher fence. *)
Ordered == \A a \in Winners : top[a] > floor[a]

Symmetry == Permutations(Nodes) \cup Permutations(Attempts)

=============================================================================
