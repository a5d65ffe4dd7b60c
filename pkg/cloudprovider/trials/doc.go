// Package trials remembers how nodes fared between launch and verification.
//
// A launched node is in trial until it is verified, fails or goes. From the
// outcomes the Book derives two things. Avoided offerings: a combination of
// NodeClass, instance type, zone and image whose nodes fail is set aside, for
// twice as long after each retry that fails too. Storms: when several nodes of a
// pool fail in the same way and no node launched since then has been verified,
// the fault is the pool's own (a bad image, a wrong driver), and only a few nodes
// may be in trial at once until one is verified.
//
// Outcomes are ordered by the time of launch, not of the verdict: nodes that fail
// do so at their deadline, long after their healthy sisters were verified. Five
// bad nodes among a hundred that were launched together are therefore no storm,
// and their offering is not set aside.
//
// The Book lives in memory. What must outlive the process is small: a storm, and the
// offerings whose nodes fail. The pool's status tells of both (package readiness
// writes and reads it), and after a restart they are taken over from there; verified
// nodes are told to the Book again.
package trials
