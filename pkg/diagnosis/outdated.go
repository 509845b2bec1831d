package diagnosis

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// outdated returns the situation of agents that should be replaced. Its steps explain how to
// replace them.
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
		if r.Wanted.Channel != "" {
			s.What += ", but should run " + r.Wanted.Version + " (channel " + r.Wanted.Channel + ")"
		} else {
			s.What += ", but must run " + r.Wanted.Version + " to get jobs"
		}
	} else {
		s.What += ", which is outdated"
	}
	s.What += ": " + strings.Join(agents, ", ") + "."
	if len(protocols) > 0 {
		s.Known = append(s.Known, fmt.Sprintf("Its agents use %s. The control plane uses protocol %s and may soon refuse older ones.", strings.Join(protocols, ", "), r.Speaks))
	}
	how, known := replaced(r)
	s.Known = append(s.Known, known)
	s.Next = []Step{byHand(how), showRunner(r.Name, "shows the versions of its agents")}
	return []Situation{s}
}

// older reports whether protocol version a is older than version b. Versions are numbers. If
// one of the versions is not known, older returns false.
func older(a, b string) bool {
	x, err := strconv.Atoi(a)
	y, also := strconv.Atoi(b)
	return err == nil && also == nil && x < y
}

// replaced returns how the owner of the machine replaces an agent of the runner's kind, and
// what the replacement does to running jobs. Fairlead itself does not replace agents.
func replaced(r Runner) (how, known string) {
	image, digest := "IMAGE@sha256:…", "sha256:…"
	version := "the wanted version"
	if r.Wanted != nil {
		version = r.Wanted.Version
		if r.Wanted.Image != "" {
			image = r.Wanted.Image
			_, digest, _ = strings.Cut(image, "@")
		}
	}
	goOn := "Replacing an agent ends no job: running jobs continue and report by themselves."
	switch r.Kind {
	case "aws-ecs":
		return fmt.Sprintf("Update the customer's stack with the parameter `RunnerImage=%s`. Keep the other parameters.", image),
			"Jobs in tasks of their own continue. With `Isolation` at `Process`, the jobs that have not ended after 80 s are interrupted, and their tools save their states."
	case "aws-eks", "azure-aks", "gcp-gke", "kubernetes":
		return fmt.Sprintf("Upgrade the chart's release: `helm upgrade RELEASE infra/charts/fairlead-runner --reuse-values --set image.digest=%s`.", digest), goOn
	case "docker":
		return fmt.Sprintf("Start the container again, with the same volume and the image %s.", image),
			"Jobs with their own containers continue: the new agent finds them. A job inside the agent's container is interrupted, and its tool saves its state."
	}
	return fmt.Sprintf("Replace the program with %s, and restart the agent: `install -m 755 fairlead-runner /usr/local/bin/ && systemctl restart fairlead-runner`.", version), goOn
}
