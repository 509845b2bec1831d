package sim

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/runner/plugin"
)

// This file has the model of a sandbox with a runner in it: a component of the app is the chart that deploys the runner's agent.
// As long as an object of the chart exists, the cluster runs the agent.

// chartType is the type of the component that deploys the runner in the sandbox.
const chartType = "helm"

// sandboxRunner is the part of app.yaml about the runner in the sandbox. The agent enrols with a token, so no token of the trust
// is used.
const sandboxRunner = `  runner:
    deployed_by: %s
    configuration:
      runner_configuration: {type: local}
      state_storage_configuration: {type: http}
    trust: {issuer: "https://cluster.example.com", claims: {sub: "system:serviceaccount:fairlead:agent"}}
`

// typeOf returns the type of a component.
func (s scenario) typeOf(name string) string {
	if name == s.agent {
		return chartType
	}
	return "terraform"
}

// inSandbox reports whether the jobs of a part, a component or an action, run on the runner in the sandbox. The component that
// creates the sandbox and the one that deploys the runner cannot, nor can the actions around them: the runner does not exist before
// them, or without them.
func (s scenario) inSandbox(part string) bool {
	if k, ok := s.hook(part); ok {
		part = k.component
	}
	return s.agent != "" && part != s.ground && part != s.agent
}

// runnerOf returns the name of the runner on which all jobs of the install's part run, or all builds; "" if the job is neither.
func (w *world) runnerOf(operation, install, part string) string {
	if operation == string(job.OpBuild) {
		return buildRunner
	}
	i := slices.IndexFunc(w.plan.installs, func(in installPlan) bool { return in.name == install })
	switch {
	case i < 0 || part == "":
		return ""
	case w.plan.inSandbox(part):
		return install + "-" + w.plan.agent
	}
	return w.plan.installs[i].runner
}

// inCluster reports whether the objects of the component are in the sandbox's cluster, which shows them to each tool.
func (w *world) inCluster(component string) bool { return component != "" && component == w.plan.agent }

// cluster has what a cluster stores of a chart besides its objects.
type cluster struct {
	w      *world
	key    string // install and component
	serial int    // the release's revision
	holder *process
}

func (w *world) cluster(key string) *cluster {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.clusters[key] == nil {
		w.clusters[key] = &cluster{w: w, key: key}
	}
	return w.clusters[key]
}

// state returns the objects as the state of the tool: a tool that reads them from the cluster has no state of its own.
func (c *cluster) state() state {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	st := state{Version: 4, Serial: c.serial, Lineage: c.key, Resources: map[string]object{}}
	for name, t := range c.w.cloud[c.key] {
		st.Resources[name] = object{name, t.attr}
	}
	return st
}

// objects is the storage of a tool that reads the objects of a cluster.
type objects struct {
	r  *run
	of *cluster
}

func (o *objects) lock() error {
	o.r.p.cross(o.r.p.w.place(o.r.p.name, "lock"), time.Millisecond, 20*time.Millisecond)
	if h := o.of.holder; h != nil && h.alive() {
		return plugin.Errorf("state-locked", "%s changes the release; wait for it", h.name)
	}
	o.of.holder = o.r.p
	return nil
}

func (o *objects) read() (state, error) {
	o.r.p.cross(o.r.p.w.place(o.r.p.name, "list"), time.Millisecond, 20*time.Millisecond)
	return o.of.state(), nil
}

func (o *objects) write(st state) error {
	o.r.p.cross(o.r.p.w.place(o.r.p.name, "save"), time.Millisecond, 20*time.Millisecond)
	o.of.serial = st.Serial
	return nil
}

func (o *objects) unlock() error {
	o.of.holder = nil
	return nil
}

// pod is the agent in an install's sandbox.
type pod struct {
	name    string
	replica int // number of hosts so far
	host    *host
	wanted  bool // an object of the chart exists
}

// podsFollow starts or ends the agent in the install's sandbox after a change of the component that deploys it.
func (w *world) podsFollow(install, component string) {
	if !w.inCluster(component) {
		return
	}
	w.mu.Lock()
	p := w.pods[install]
	if p == nil {
		p = &pod{name: install + "-" + component}
		w.pods[install] = p
	}
	was := p.wanted
	p.wanted = len(w.cloud[install+"/"+component]) > 0
	starts, host := p.wanted && !was, p.host
	if !p.wanted {
		p.host = nil
	}
	w.mu.Unlock()
	switch {
	case starts:
		go w.startPod(p)
	case !p.wanted && host != nil:
		go host.vanish()
	}
}

// startPod starts the agent on a new machine of the cluster, as long as its chart is deployed.
func (w *world) startPod(p *pod) {
	w.mu.Lock()
	p.replica++
	name := fmt.Sprintf("%s-host%d", p.name, p.replica)
	w.mu.Unlock()
	admin := w.newPerson(name+" admin", installPlan{})
	defer admin.p.kill()
	var e wire.Enrolment
	if err := admin.until("enrol", func(ctx context.Context) (err error) { e, err = admin.c.CreateEnrolment(ctx, p.name); return err }); err != nil {
		if !w.over() {
			w.violate("simulator", "enrol %s: %v", name, err)
		}
		return
	}
	w.mu.Lock()
	stays := p.wanted && p.host == nil
	w.mu.Unlock()
	if !stays {
		return
	}
	w.must("create a disk", os.MkdirAll(filepath.Join(w.opt.Dir, name), 0o700))
	h := w.newHost(name, runnerPlan{name: p.name, storage: "http", hosts: 1, capacity: 2, in: strings.TrimSuffix(p.name, "-"+w.plan.agent)}, e.Token)
	w.mu.Lock()
	p.host = h
	stays = p.wanted
	w.mu.Unlock()
	if !stays {
		h.vanish()
	}
}

// repairPods replaces the machines of agents in sandboxes that are gone.
func (w *world) repairPods() {
	w.mu.Lock()
	var lost []*pod
	for _, install := range slices.Sorted(maps.Keys(w.pods)) {
		if p := w.pods[install]; p.wanted && p.host != nil && p.host.gone {
			p.host = nil
			lost = append(lost, p)
		}
	}
	w.mu.Unlock()
	for _, p := range lost {
		w.startPod(p)
	}
}

// runnersNow returns the runners that exist, also those in sandboxes.
func (w *world) runnersNow() []runnerPlan {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := slices.Clone(w.plan.runners)
	for _, install := range slices.Sorted(maps.Keys(w.pods)) {
		all = append(all, runnerPlan{name: w.pods[install].name, in: install})
	}
	return all
}
