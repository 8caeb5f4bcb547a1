------------------------------- MODULE Quorum -------------------------------
(* What both models share: nodes, attempts, majorities.                      *)
(*                                                                           *)
(* The network is the worst there can be. A request that was sent once may   *)
(* be executed by a node at any later time, any number of times, in any      *)
(* order, or never; so requests are not stored: that an attempt has got so   *)
(* far is what enables a node to execute them. Answers are stored where the  *)
(* client will count them, and may be read late, or never.                   *)

EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
  Nodes,      \* the configured nodes, whether they can be reached or not
  Attempts,   \* attempts to acquire, each with a token of its own, by whichever client
  Nobody,     \* the lock is free
  Mutation    \* which rule of the protocol is left out; "none" for the protocol as it is

IsMajority(S) == 2 * Cardinality(S) > Cardinality(Nodes)

Majorities == {S \in SUBSET Nodes : IsMajority(S)}

Max(S) == CHOOSE x \in S : \A y \in S : x >= y

Larger(x, y) == IF x > y THEN x ELSE y

=============================================================================
