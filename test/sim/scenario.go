package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// kind is a kind of fault. The field rate is the mean probability that the fault occurs at one
// place, in a run that has the kind. A run has about half of the kinds. In a run, the
// probability of a kind is a third of its rate, its rate, or three times its rate. So some runs
// have only one of two faults that hide each other.
type kind struct {
	name string
	rate float64
}

// kinds are the faults that occur at a crossing.
var kinds = []kind{
	{"get-failed", 0.003}, {"query-failed", 0.003}, {"query-stale", 0.1},
	{"commit-not-stored", 0.01}, {"commit-stored", 0.01}, {"commit-conflict", 0.01},
	{"slow-disk", 0.004},
	{"server-dies-before-write", 0.003}, {"server-dies-after-write", 0.003},
	{"power-lost-at-write", 0.0005},
	{"send-failed", 0.05}, {"send-lost", 0.05}, {"send-repeated", 0.1}, {"send-delayed", 0.1},
	{"receive-failed", 0.01}, {"receive-lost", 0.02}, {"delete-failed", 0.05},
	{"log-failed", 0.01}, {"log-stored", 0.01},
	{"blob-failed", 0.02}, {"blob-stored", 0.02},
	{"request-lost", 0.01}, {"request-cut", 0.01}, {"request-repeated", 0.01}, {"request-delayed", 0.01},
	{"answer-lost", 0.01}, {"answer-cut", 0.005}, {"answer-delayed", 0.01}, {"request-refused-by-others", 0.01}, {"release-repeated", 0.2},
	{"agent-dies-before-request", 0.005}, {"agent-dies-after-request", 0.005},
	{"step-dies-before-request", 0.01}, {"step-dies-after-request", 0.01},
	{"launch-fails", 0.02}, {"step-dies-at-launch", 0.02},
	{"tool-dies", 0.01}, {"tool-fails", 0.01}, {"tool-hangs", 0.002}, {"tool-slow", 0.01},
	{"tool-ignores-interrupt", 0.2}, {"tool-forks", 0.1}, {"tool-floods", 0.02},
}

// timed are the faults that occur at a point in time, independent of the crossings. Here, rate
// is the mean number of faults of the kind in a run.
var timed = []kind{
	{"server-killed", 0.5}, {"server-restarted", 0.3}, {"server-upgraded", 0.4}, {"power-lost", 0.3}, {"outage", 0.3},
	{"server-clock-jumps", 0.4}, {"sweep-stops", 0.3},
	{"agent-killed", 0.5}, {"agent-paused", 0.4}, {"agent-drained", 0.4}, {"agent-replaced", 0.3},
	{"step-killed", 0.6}, {"step-paused", 0.6}, {"tool-killed", 0.3},
	{"host-rebooted", 0.3}, {"host-paused", 0.4}, {"host-gone", 0.2}, {"host-cut", 0.5}, {"host-clock-jumps", 0.3},
}

// FaultKinds returns the names of all kinds of faults.
func FaultKinds() []string {
	var names []string
	for _, list := range [][]kind{kinds, timed} {
		for _, k := range list {
			names = append(names, k.name)
		}
	}
	return names
}

// scenario is the plan of a run, which the seed determines before the run starts.
type scenario struct {
	rates    map[string]float64
	until    time.Duration // end of the faults
	app      []component
	ground   string // the component that creates the sandbox, on which all others stand; "": the app has none
	agent    string // the component that deploys a runner in the sandbox, which runs the jobs of all that come after it; "": no runner is there
	action   bool   // the app has an action, which persons run by hand
	built    string // the component whose source is in a repository, so that a build makes its artifact; "": the app has none
	hooks    []hook // actions that deployments run
	timing   timing // of the action that runs by itself; zero: the app has none
	runners  []runnerPlan
	installs []installPlan
	moments  []moment
	saves    time.Duration // how long an interrupted tool needs before it saves its state
	marks    *marks        // nil: the control plane lets renewals wait; else it works as on AWS, with these cancel markers
}

type component struct {
	name      string
	needs     []string
	resources int
}

type runnerPlan struct {
	name     string
	storage  string
	hosts    int
	capacity int
	stack    bool   // as in a customer's stack: of kind aws-ecs, and the agent's file is final
	builds   bool   // the runner builds apps
	in       string // the install in whose sandbox the runner is; "": a runner that exists before the installs
}

type installPlan struct {
	name    string
	runner  string
	actions []action
	second  bool // a second person also reacts to the install's waiting plans
}

// action is an action of a person on an install.
type action struct {
	name string
	do   string
	wait time.Duration // time between the previous action and this action
}

type moment struct {
	name string
	kind string
	at   time.Duration
}

// actionName is the name of the app's action.
const actionName = "report"

// personActions are the actions of persons. A repeated entry makes an action more frequent.
var personActions = []string{"deploy", "deploy", "deploy-auto", "deploy-auto", "deploy-auto", "deploy-and-cancel", "plan-only", "update-and-deploy",
	"update-and-deploy", "update-and-deploy", "teardown", "deploy-twice", "new-version", "check-runner", "deploy-and-retry",
	"deploy-and-cancel-and-retry"}

// draw returns the scenario of the seed.
func draw(w *world) scenario {
	s := scenario{rates: map[string]float64{}, until: w.between("until", time.Minute, 6*time.Minute)}
	for _, k := range kinds {
		switch factor := w.intn("swarm "+k.name, 6); factor {
		case 3, 4, 5:
			s.rates[k.name] = k.rate * []float64{1. / 3, 1, 3}[factor-3]
		}
	}
	for _, k := range timed {
		for i := range 3 {
			name := fmt.Sprintf("%s @ moment #%d", k.name, i+1)
			if w.unit(name) < k.rate/3 {
				s.moments = append(s.moments, moment{name, k.name, time.Duration(w.unit("at "+name) * float64(s.until))})
			}
		}
	}
	for i := range 1 + w.intn("components", 4) {
		c := component{name: fmt.Sprint("c", i+1), resources: 1 + w.intn(fmt.Sprint("resources ", i), 3)}
		for j := range i {
			if w.unit(fmt.Sprint("edge ", i, j)) < 0.45 {
				c.needs = append(c.needs, fmt.Sprint("c", j+1))
			}
		}
		s.app = append(s.app, c)
	}
	s.action = w.unit("action") < 0.5
	if len(s.app) > 1 && w.unit("sandbox") < 0.5 {
		s.ground = s.app[0].name // the only one that certainly needs no other
		if len(s.app) > 2 && w.unit("runner in the sandbox") < 0.5 {
			s.agent = s.app[1].name // it needs at most the sandbox
		}
	}
	s.hooks, s.timing = drawHooks(w, s.app), drawTiming(w, s.until)
	for i := range 1 + w.intn("runners", 2) {
		r := runnerPlan{name: fmt.Sprint("runner", i+1), storage: "http", hosts: 1 + w.intn(fmt.Sprint("hosts ", i), 2),
			capacity: 1 + w.intn(fmt.Sprint("capacity ", i), 3)}
		if w.unit(fmt.Sprint("storage ", i)) < 0.3 {
			r.storage, r.hosts = "local", 1 // the state is on one host's disk
		}
		s.runners = append(s.runners, r)
	}
	for i := range 1 + w.intn("installs", 3) {
		inst := installPlan{name: fmt.Sprint("i", i+1), runner: s.runners[w.intn(fmt.Sprint("runner of ", i), len(s.runners))].name}
		inst.second = w.unit("second person of "+inst.name) < 0.4
		for j := range 1 + w.intn(fmt.Sprint("actions ", i), 4) {
			name := fmt.Sprintf("%s action #%d", inst.name, j+1)
			do := personActions[w.intn("do "+name, len(personActions))]
			if j == 0 && do == "teardown" {
				do = "deploy-auto"
			}
			inst.actions = append(inst.actions, action{name: do + " @ " + name, do: do, wait: w.between("wait "+name, 100*time.Millisecond, s.until/4)})
		}
		if name := "run-action @ " + inst.name; s.action {
			inst.actions = append(inst.actions, action{name: name, do: "run-action", wait: w.between("wait "+name, 100*time.Millisecond, s.until/4)})
		}
		s.installs = append(s.installs, inst)
	}
	if w.unit("build") < 0.25 {
		s.built = s.app[len(s.app)-1].name
		s.runners = append(s.runners, runnerPlan{name: buildRunner, storage: "http", hosts: 1 + w.intn("hosts that build", 2), capacity: 2, builds: true})
	}
	return s
}

// standsOn returns the components that must exist as long as the component does: those that it needs, and the sandbox.
func (s scenario) standsOn(name string) (needs []string) {
	for _, c := range s.app {
		if c.name == name {
			needs = slices.Clone(c.needs)
		}
	}
	if s.ground != "" && s.ground != name && !slices.Contains(needs, s.ground) {
		needs = append(needs, s.ground)
	}
	if s.inSandbox(name) && !slices.Contains(needs, s.agent) {
		needs = append(needs, s.agent)
	}
	return needs
}

// config returns the app.yaml of a version. Versions differ in a variable of each component.
func (s scenario) config(version int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "fairlead: v1\nname: app\ninputs:\n  size: {type: number, default: 1}\n  secret: {type: string, sensitive: true, default: hush}\n")
	if s.ground != "" {
		fmt.Fprintf(&b, "sandbox:\n  kind: aws-ecs\n  created_by: %s\n", s.ground) // of a kind that fits each runner
	}
	if s.agent != "" {
		fmt.Fprintf(&b, sandboxRunner, s.agent)
	}
	fmt.Fprintf(&b, "components:\n")
	for _, c := range s.app {
		source := "./" + c.name
		if c.name == s.built {
			source = fmt.Sprintf("%s\n    git: {url: %s, ref: %q}", c.name, repository, commitOf(version))
		}
		fmt.Fprintf(&b, "  %s:\n    type: %s\n    source: %s\n    vars:\n      size: ${inputs.size}\n      secret: ${inputs.secret}\n      version: %d\n", c.name, s.typeOf(c.name), source, version)
		for _, n := range c.needs {
			fmt.Fprintf(&b, "      from_%s: ${components.%s.outputs.id}\n", n, n)
		}
	}
	if s.action || s.hooks != nil || s.timing.set() {
		fmt.Fprintf(&b, "actions:\n")
	}
	if s.action {
		fmt.Fprintf(&b, "  %s: {type: script, source: ./%s, vars: {size: \"${inputs.size}\"}}\n", actionName, actionName)
	}
	if s.timing.set() {
		fmt.Fprintf(&b, "  %s: {type: script, source: ./%s, vars: {size: \"${inputs.size}\"}, schedule: {cron: \"%s\", timezone: %s}}\n", scheduledName, scheduledName, s.timing.cron(), s.timing.zone)
	}
	for _, k := range s.hooks {
		fmt.Fprintf(&b, "  %s: {type: script, source: ./%s, vars: {size: \"${inputs.size}\"}, %s: [%s.%s]}\n", k.name, k.name, k.when, k.component, k.operation)
	}
	return b.String()
}
