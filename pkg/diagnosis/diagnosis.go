// Package diagnosis explains why a deployment, job, install or runner needs a person: what
// happened, what is known about the cloud, and which actions a person can take. Its functions
// are pure: they take facts and a time, and return texts and actions.
//
// Facts may be incomplete. The texts do not mention facts that were not read.
package diagnosis

import (
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Kind is the kind of a situation. Programs may use it; texts may change.
type Kind string

// The kinds.
const (
	Queued        Kind = "queued"          // behind another deployment of its install
	NotGranted    Kind = "not-granted"     // the version needs more AWS actions than the customer's stack grants
	StatesApart   Kind = "states-apart"    // the customer's stack has another bucket than the one with the states
	Approval      Kind = "approval"        // plans wait for a person
	Lost          Kind = "lost"            // an apply or destroy was interrupted, and its progress is unknown
	Poison        Kind = "poison"          // each attempt of a job ended its step
	Failed        Kind = "failed"          // a job failed
	StateUnsaved  Kind = "state-unsaved"   // the tool could not save its state
	Stopped       Kind = "stopped"         // a job or a deployment was canceled
	Retrying      Kind = "retrying"        // a job waits before its next attempt
	Starting      Kind = "starting"        // a runner has claimed a job, and its step has not started yet
	Stopping      Kind = "stopping"        // a job was asked to stop and still runs
	StepSilent    Kind = "step-silent"     // a running step does not renew its lease
	RunnerSilent  Kind = "runner-silent"   // no agent of the runner is online
	RunnerDrains  Kind = "runner-draining" // the runner's agents accept no more jobs
	RunnerFull    Kind = "runner-full"     // the runner's agents have no free slot
	RunnerOff     Kind = "runner-off"      // the vendor's mode: the runner starts no jobs
	RunnerPinned  Kind = "runner-pinned"   // no agent runs the version that its configuration pins
	RunnerHeld    Kind = "runner-held"     // the customer's mode: no agent starts jobs
	RunnerOld     Kind = "runner-outdated" // the runner's agents do not run the wanted version
	RunnerMixed   Kind = "runner-mixed"    // jobs of several installs run beside one agent, as one user
	RunnerGone    Kind = "runner-gone"     // the runner was deleted, and its jobs cannot run
	Locked        Kind = "locked"          // a job holds the lock of a state
	LockLeft      Kind = "lock-left"       // a finished job left the lock of a state
	StateUnknown  Kind = "state-unknown"   // an apply or destroy did not report its end, and no job runs
	DeployedSince Kind = "deployed-since"  // a later deployment replaced the failed one
)

// Kinds lists every kind.
func Kinds() []Kind {
	return []Kind{Queued, NotGranted, StatesApart, Approval, Lost, Poison, Failed, StateUnsaved, Stopped, Retrying, Starting, Stopping, StepSilent,
		RunnerSilent, RunnerDrains, RunnerFull, RunnerOff, RunnerPinned, RunnerHeld, RunnerOld, RunnerMixed, RunnerGone, Locked, LockLeft, StateUnknown, DeployedSince}
}

// Situation is one condition that a person should know of, or must decide on.
type Situation struct {
	Kind      Kind
	Component string         // "": the situation is about the whole object
	Job       fairlead.JobID // may be empty
	What      string         // what happened; full sentences
	Known     []string       // what is known about the cloud; full sentences
	Next      []Step         // in the order in which a person takes them; empty: wait
	Ahead     *Ahead         // for a queued deployment: the deployment that it waits for; nil: not read

	untouched bool // for a failure: nothing was changed
}

// Step is something that a person can do.
type Step struct {
	Action fairlead.Action // without a verb: Effect describes manual work
	Effect string          // with a verb: what the action does, without a full stop; without a verb: the manual work, as a sentence that may name actions
}

// at returns a time as text within a sentence.
func at(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// sentence returns a text with exactly one full stop at its end.
func sentence(text string) string {
	text = strings.TrimRight(strings.TrimSpace(text), ".")
	if text == "" {
		return ""
	}
	return text + "."
}

// because returns a reason and a message as the end of a sentence.
func because(reason fairlead.Reason, message string) string {
	message = strings.TrimRight(strings.TrimSpace(message), ".")
	switch {
	case reason == "" && message == "":
		return "."
	case message == "":
		return " (" + string(reason) + ")."
	case reason == "":
		return ": " + message + "."
	}
	return " (" + string(reason) + "): " + message + "."
}

// count returns the number n with its noun: the parameter one for 1, and many otherwise.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}
