// Package diagnosis says what a person has to know, and may do, when a
// deployment does not go on by itself: what happened, what is known about the
// cloud, and which actions go on. It is pure: facts and a time go in, words and
// actions come out.
//
// Facts may be incomplete. What was not looked at is not spoken of.
package diagnosis

import (
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Kind is what sort of situation it is. Programs may rely on it; words change.
type Kind string

// The kinds.
const (
	Queued        Kind = "queued"          // behind another deployment of its install
	Approval      Kind = "approval"        // plans wait for a person
	Lost          Kind = "lost"            // an apply or destroy was interrupted, and nobody knows how far it came
	Poison        Kind = "poison"          // each attempt of a job ended its step
	Failed        Kind = "failed"          // a job failed
	StateUnsaved  Kind = "state-unsaved"   // the tool could not save what it did
	Stopped       Kind = "stopped"         // a job or a deployment was canceled
	Retrying      Kind = "retrying"        // a job waits before its next attempt
	Stopping      Kind = "stopping"        // a job was asked to stop and has not yet
	StepSilent    Kind = "step-silent"     // a step at work has not been heard of
	RunnerSilent  Kind = "runner-silent"   // no agent of the runner is there
	RunnerDrains  Kind = "runner-draining" // its agents take no more jobs
	RunnerFull    Kind = "runner-full"     // its agents have no place left
	RunnerOff     Kind = "runner-off"      // by the mode that its vendor has set, the runner takes no jobs
	RunnerHeld    Kind = "runner-held"     // by the mode that its customer has set, none of its agents takes jobs
	RunnerOld     Kind = "runner-outdated" // its agents run another version than they should
	RunnerMixed   Kind = "runner-mixed"    // jobs of several installs run beside one agent, as one user
	RunnerGone    Kind = "runner-gone"     // the runner was deleted, and nobody takes its jobs
	Locked        Kind = "locked"          // a job holds the lock of a state
	LockLeft      Kind = "lock-left"       // a job that is over left the lock of a state
	StateUnknown  Kind = "state-unknown"   // nothing works on a component of which nobody knows what there is
	DeployedSince Kind = "deployed-since"  // another deployment has taken the place of one that failed
)

// Kinds lists every kind.
func Kinds() []Kind {
	return []Kind{Queued, Approval, Lost, Poison, Failed, StateUnsaved, Stopped, Retrying, Stopping, StepSilent,
		RunnerSilent, RunnerDrains, RunnerFull, RunnerOff, RunnerHeld, RunnerOld, RunnerMixed, RunnerGone, Locked, LockLeft, StateUnknown, DeployedSince}
}

// Situation is one thing to know, or to decide.
type Situation struct {
	Kind      Kind
	Component string         // that it is about; "": all of it
	Job       fairlead.JobID // that it is about; may be empty
	What      string         // what happened; full sentences
	Known     []string       // what is known, above all about the cloud; full sentences
	Next      []Step         // in the order in which a person would take them; empty: wait
	Ahead     *Ahead         // of a queued deployment: what it waits for; nil: not looked at

	untouched bool // of a failure: nothing was changed
}

// Step is something that a person can do.
type Step struct {
	Action fairlead.Action // without a verb: by hand, as Effect says
	Effect string          // what the action does, without a stop; or what to do by hand, as a sentence that may name actions
}

// at renders an instant within a sentence.
func at(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// sentence joins a cause, which ends as it likes, to a sentence of ours.
func sentence(text string) string {
	text = strings.TrimRight(strings.TrimSpace(text), ".")
	if text == "" {
		return ""
	}
	return text + "."
}

// because renders a reason and a message as the end of a sentence.
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

// count renders a number of things.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}
