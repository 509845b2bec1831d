package diagnosis

import (
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
)

// OfRunner returns the situations of a runner.
func OfRunner(r Runner) []Situation {
	var until time.Time
	if r.Waiting > 0 {
		until = r.Oldest.Add(job.QueueTimeout)
	}
	out := waiting(r, until)
	if len(out) == 0 || out[0].Kind != RunnerPinned {
		out = append(out, outdated(r)...)
	}
	return append(out, Mixed(r)...)
}

// Mixed returns the situation of jobs of several installs that share a machine and a user.
func Mixed(r Runner) []Situation {
	if r.Beside == "" || !r.Several {
		return nil
	}
	s := Situation{Kind: RunnerMixed, What: fmt.Sprintf("Runner %s runs jobs of several installs as processes of one user.", r.Name)}
	if r.Beside == "none" {
		s.Known = []string{"They are not isolated: modules of one install can read the states of the others, and the runner's key."}
	} else {
		s.Known = []string{"Landlock keeps them from each other's files and processes. They still share what all programs of that user can reach: the network, the machine's cloud identity, and sockets such as Docker's."}
	}
	s.Next = []Step{byHand("Give each install its own runner, or each job its own container with a runner of kind docker or kubernetes."), showRunner(r.Name, "shows how its jobs are isolated")}
	return []Situation{s}
}

// waiting returns the situation of a runner that starts no more jobs, or nil if the runner can
// start jobs. The parameter until is the time when the oldest queued job fails, or zero.
func waiting(r Runner, until time.Time) []Situation {
	var online, running, capacity int
	var drains, refused []string
	var seen Agent
	for _, a := range r.Agents {
		if a.Seen.After(seen.Seen) {
			seen = a
		}
		if !a.Online {
			continue
		}
		online++
		switch {
		case a.Draining:
			drains = append(drains, a.Name)
		case !a.Mode.TakesJobs():
			drains = append(drains, a.Name+" (set by the customer)")
		case r.Refuses(a):
			refused = append(refused, a.Name)
		default:
			running, capacity = running+a.Running, capacity+a.Capacity
		}
	}
	var s Situation
	switch {
	case !r.Mode.TakesJobs():
		s = Situation{Kind: RunnerOff, What: fmt.Sprintf("Runner %s is %s: it starts no jobs%s.", r.Name, r.Mode, waitingJobs(r))}
		s.Next = []Step{enable(r.Name), showRunner(r.Name, "shows its running jobs")}
		if r.Customer != nil {
			s.Known = append(s.Known, fmt.Sprintf("The customer has set it to %s as well. It stays so after the vendor enables it.", customerMode(*r.Customer)))
		}
	case r.Customer != nil:
		s = Situation{Kind: RunnerHeld, What: fmt.Sprintf("The customer has set runner %s to %s: it starts no jobs%s.", r.Name, customerMode(*r.Customer), waitingJobs(r))}
		s.Next = []Step{showRunner(r.Name, "shows the mode of each agent and the running jobs"), byHand(askCustomer)}
	case online == 0 && len(r.Agents) == 0:
		ever := "was online in the last day"
		if r.New {
			ever = "was ever online"
		}
		s = Situation{Kind: RunnerSilent, What: fmt.Sprintf("No agent of runner %s %s%s.", r.Name, ever, waitingJobs(r))}
		s.Next = []Step{enrol(r.Name), byHand("Start an agent with it: `fairlead-runner agent`.")}
	case online == 0:
		s = Situation{Kind: RunnerSilent, What: fmt.Sprintf("No agent of runner %s was seen since %s%s.", r.Name, at(seen.Seen), waitingJobs(r))}
		s.Known = append(s.Known, fmt.Sprintf("The last one was %s. Its jobs are marked lost when their leases expire.", seen.Name))
		s.Next = []Step{showRunner(r.Name, "shows its agents"),
			byHand("Start the agent again on its host with its data folder: it continues its jobs and needs no new token."), enrol(r.Name), checkRunner(r.Name)}
	case len(drains) == online:
		s = Situation{Kind: RunnerDrains, What: fmt.Sprintf("Every agent of runner %s drains (%s): running jobs finish, and no new jobs start%s.", r.Name, strings.Join(drains, ", "), waitingJobs(r))}
		s.Next = []Step{showRunner(r.Name, "shows their running jobs"), byHand("Start the agent again after it has ended, or start another agent."), enrol(r.Name)}
	case len(drains)+len(refused) == online:
		s = outdated(r)[0]
		s.Kind, s.What = RunnerPinned, fmt.Sprintf("Runner %s pins version %s, and no agent runs it: it gets no jobs%s. %s", r.Name, r.Wanted.Version, waitingJobs(r), s.What)
	case running >= capacity && r.Waiting > 0:
		s = Situation{Kind: RunnerFull, What: fmt.Sprintf("All slots of runner %s are in use (%d of %d)%s.", r.Name, running, capacity, waitingJobs(r))}
		s.Next = []Step{showRunner(r.Name, "shows its running jobs"), byHand("They start when slots become free. Another agent, or a higher `concurrency`, starts them sooner."), enrol(r.Name)}
	default:
		return nil
	}
	if r.Waiting > 0 {
		s.Known = append(s.Known, fmt.Sprintf("The jobs stay queued. A job that no agent claims by %s fails with %s.", at(until), fairlead.ReasonQueueTimeout))
	}
	return []Situation{s}
}

// untaken returns the same as waiting, and also the situation of a deleted runner. For a
// deleted runner, the parameter giveUp is the step that ends the wait.
func untaken(r Runner, until time.Time, giveUp Step) []Situation {
	if !r.Gone {
		return waiting(r, until)
	}
	return []Situation{{Kind: RunnerGone, What: fmt.Sprintf("Runner %s was deleted: its jobs cannot run.", r.Name),
		Known: []string{fmt.Sprintf("Its queued jobs fail with %s at %s.", fairlead.ReasonQueueTimeout, at(until))}, Next: []Step{giveUp}}}
}

// askCustomer is the advice for a vendor whose customer has set a mode.
const askCustomer = "Ask the customer: only the customer can enable it, with `fairlead-runner agent enable` on the agent's machine, with the agent's setting `FAIRLEAD_MODE`, or in a customer's stack with the parameter `RunnerState`."

// customerMode returns the mode that a customer has set, as part of a sentence.
func customerMode(m fairlead.CustomerMode) string {
	out := string(m.Mode)
	if !m.Since.IsZero() {
		out += " since " + at(m.Since)
	}
	if m.Reason != "" {
		out += fmt.Sprintf(" (%q)", m.Reason)
	}
	return out
}

func waitingJobs(r Runner) string {
	switch {
	case r.Waiting == 0:
		return ""
	case r.More:
		return fmt.Sprintf("; %d jobs wait, or more", r.Waiting)
	case r.Waiting == 1:
		return "; 1 job waits"
	}
	return fmt.Sprintf("; %d jobs wait", r.Waiting)
}
