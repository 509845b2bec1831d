package diagnosis

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
)

// OfRunner returns what is to be said of a runner.
func OfRunner(r Runner) []Situation {
	var until time.Time
	if r.Waiting > 0 {
		until = r.Oldest.Add(job.QueueTimeout)
	}
	return slices.Concat(waiting(r, until), outdated(r), Mixed(r))
}

// Mixed says that the jobs of several installs share a machine and a user.
func Mixed(r Runner) []Situation {
	if r.Beside == "" || !r.Several {
		return nil
	}
	s := Situation{Kind: RunnerMixed, What: fmt.Sprintf("Runner %s runs the jobs of several installs beside its agent, as one user.", r.Name)}
	if r.Beside == "none" {
		s.Known = []string{"Nothing keeps them apart: what one install's modules start can read the states of the others, and the runner's key."}
	} else {
		s.Known = []string{"Landlock keeps them from each other's files and processes, and not from what all of that user's programs may reach: the network, the machine's own identity in its cloud, sockets such as Docker's."}
	}
	s.Next = []Step{byHand("Give each install a runner of its own, or each job a container: a runner of kind docker or kubernetes does."), showRunner(r.Name, "shows what keeps its jobs apart")}
	return []Situation{s}
}

// waiting says why jobs of the runner are not taken; nothing, if they are.
// until is when the first of them is given up, or zero.
func waiting(r Runner, until time.Time) []Situation {
	var online, running, capacity int
	var drains []string
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
			drains = append(drains, a.Name+" by its customer")
		default:
			running, capacity = running+a.Running, capacity+a.Capacity
		}
	}
	var s Situation
	switch {
	case !r.Mode.TakesJobs():
		s = Situation{Kind: RunnerOff, What: fmt.Sprintf("Runner %s is %s: it begins nothing%s.", r.Name, r.Mode, waitingJobs(r))}
		s.Next = []Step{enable(r.Name), showRunner(r.Name, "shows what it still runs")}
		if r.Customer != nil {
			s.Known = append(s.Known, fmt.Sprintf("By its customer it is %s as well, and stays so when its vendor enables it.", customerMode(*r.Customer)))
		}
	case r.Customer != nil:
		s = Situation{Kind: RunnerHeld, What: fmt.Sprintf("Runner %s is %s by its customer: it begins nothing%s.", r.Name, customerMode(*r.Customer), waitingJobs(r))}
		s.Next = []Step{showRunner(r.Name, "shows the mode of each agent, and what still runs"), byHand(askCustomer)}
	case online == 0 && len(r.Agents) == 0:
		ever := "has been heard of in the last day"
		if r.New {
			ever = "has ever been heard of"
		}
		s = Situation{Kind: RunnerSilent, What: fmt.Sprintf("No agent of runner %s %s%s.", r.Name, ever, waitingJobs(r))}
		s.Next = []Step{enrol(r.Name), byHand("Start an agent with it: `fairlead-runner agent`.")}
	case online == 0:
		s = Situation{Kind: RunnerSilent, What: fmt.Sprintf("No agent of runner %s has been heard of since %s%s.", r.Name, at(seen.Seen), waitingJobs(r))}
		s.Known = append(s.Known, fmt.Sprintf("The last one was %s. What it was doing is given up when its leases end, and told by the jobs.", seen.Name))
		s.Next = []Step{showRunner(r.Name, "shows its agents"),
			byHand("Start the agent again on its host and its data folder: it goes on where it was, and needs no new token."), enrol(r.Name), checkRunner(r.Name)}
	case len(drains) == online:
		s = Situation{Kind: RunnerDrains, What: fmt.Sprintf("Every agent of runner %s drains (%s): it ends what it runs and takes nothing new%s.", r.Name, strings.Join(drains, ", "), waitingJobs(r))}
		s.Next = []Step{showRunner(r.Name, "shows what they still run"), byHand("Start the agent again once it has ended, or another one beside it."), enrol(r.Name)}
	case running >= capacity && r.Waiting > 0:
		s = Situation{Kind: RunnerFull, What: fmt.Sprintf("Runner %s runs as many jobs as it can (%d of %d)%s.", r.Name, running, capacity, waitingJobs(r))}
		s.Next = []Step{showRunner(r.Name, "shows what it runs"), byHand("They are taken one after the other. An agent more, or one with a greater `concurrency`, takes them sooner."), enrol(r.Name)}
	default:
		return nil
	}
	if r.Waiting > 0 {
		s.Known = append(s.Known, fmt.Sprintf("They wait, and nothing is lost. One that nobody has taken by %s fails with %s.", at(until), fairlead.ReasonQueueTimeout))
	}
	return []Situation{s}
}

// untaken is waiting for a runner that may have been deleted. giveUp is what ends
// the wait then.
func untaken(r Runner, until time.Time, giveUp Step) []Situation {
	if !r.Gone {
		return waiting(r, until)
	}
	return []Situation{{Kind: RunnerGone, What: fmt.Sprintf("Runner %s was deleted: nobody takes its jobs.", r.Name),
		Known: []string{fmt.Sprintf("What waits for it fails with %s at %s.", fairlead.ReasonQueueTimeout, at(until))}, Next: []Step{giveUp}}}
}

// askCustomer is what a vendor can do about the mode that a customer has set.
const askCustomer = "Ask the customer: only they can let it go on, with `fairlead-runner agent enable` where the agent runs, or by changing how it is started (`FAIRLEAD_MODE`)."

// customerMode renders the mode that a customer has set within a sentence.
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
