package diagnosis

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// outdated says which agents should be replaced, and how that is done where they
// are.
func outdated(r Runner) []Situation {
	var agents, versions, protocols []string
	for _, a := range r.Agents {
		old := older(a.Protocol, r.Speaks)
		if !a.Online || !a.Outdated && !old {
			continue
		}
		agents = append(agents, a.Name)
		if !slices.Contains(versions, a.Version) {
			versions = append(versions, a.Version)
		}
		if old && !slices.Contains(protocols, "protocol "+a.Protocol) {
			protocols = append(protocols, "protocol "+a.Protocol)
		}
	}
	if len(agents) == 0 {
		return nil
	}
	s := Situation{Kind: RunnerOld, What: fmt.Sprintf("Runner %s runs %s", r.Name, strings.Join(versions, ", "))}
	if r.Wanted != nil {
		s.What += ", and is to run " + r.Wanted.Version
		if r.Wanted.Channel != "" {
			s.What += " (channel " + r.Wanted.Channel + ")"
		}
	} else {
		s.What += ", which is outdated"
	}
	s.What += ": " + strings.Join(agents, ", ") + "."
	if len(protocols) > 0 {
		s.Known = append(s.Known, fmt.Sprintf("It speaks %s; the control plane speaks protocol %s, and may soon refuse what is older.", strings.Join(protocols, ", "), r.Speaks))
	}
	how, known := replaced(r)
	s.Known = append(s.Known, known)
	s.Next = []Step{byHand(how), showRunner(r.Name, "shows what its agents run")}
	return []Situation{s}
}

// older compares two versions of the protocol, which are numbers. One that is
// not known is older than none.
func older(a, b string) bool {
	x, err := strconv.Atoi(a)
	y, also := strconv.Atoi(b)
	return err == nil && also == nil && x < y
}

// replaced says how an agent of the runner's kind is replaced, and what that
// does to jobs. Whoever owns the machine does it: nothing is replaced from here.
func replaced(r Runner) (how, known string) {
	image, digest := "IMAGE@sha256:…", "sha256:…"
	version := "the version that is wanted"
	if r.Wanted != nil {
		version = r.Wanted.Version
		if r.Wanted.Image != "" {
			image = r.Wanted.Image
			_, digest, _ = strings.Cut(image, "@")
		}
	}
	goOn := "Replacing an agent ends no job: those that run go on, and report by themselves."
	switch r.Kind {
	case "aws-ecs":
		return fmt.Sprintf("Update the customer's stack with its parameter `RunnerImage=%s`, and the others as they are.", image),
			"A task that is replaced interrupts a job of its own that has not ended after 20 s, and its tool saves its state. What runs in tasks of its own goes on."
	case "aws-eks", "azure-aks", "gcp-gke", "kubernetes":
		return fmt.Sprintf("Upgrade the chart's release: `helm upgrade RELEASE infra/charts/fairlead-runner --reuse-values --set image.digest=%s`.", digest), goOn
	case "docker":
		return fmt.Sprintf("Start the container anew, on the same volume, with the image %s.", image),
			"Replacing an agent ends no job that has a container of its own: the next one finds it. One beside the agent, in its container, is interrupted, and its tool saves its state."
	}
	return fmt.Sprintf("Put the program of %s in the place of the old one, and start the agent again: `install -m 755 fairlead-runner /usr/local/bin/ && systemctl restart fairlead-runner`.", version), goOn
}
