package sim

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/control"
)

const (
	// settleFor is the longest time from the end of the faults until all deployments and
	// jobs have ended. It covers the no-output timeout of a tool that hangs, twice the
	// tool's grace period, and the retries of later jobs. Only the no-output timeout ends
	// a job that hangs: no person cancels the job, and the timeout of a plan is longer.
	settleFor = 25 * time.Minute
	// simulatedToken has the form of an API token.
	simulatedToken = "fla_simulated-simulated-simulated-simulated-sim"
	// healFor is the longest time that a deployment takes after the end of the faults.
	healFor = 10 * time.Minute
)

// Run runs the simulation once. The caller calls Run in a new synctest bubble. The bubble ends
// when Run returns.
func Run(o Options) Result {
	w := newWorld(o)
	w.apiToken = simulatedToken
	w.quiet = true // no faults occur until the setup is complete
	w.startServer()
	go w.keepServers()
	persons := w.setUp()
	if len(w.violations) == 0 {
		w.mu.Lock()
		w.quiet = false
		w.mu.Unlock()
		w.live(persons)
	}
	w.tearDown(persons)
	return w.result()
}

// publish builds what the version of the app needs, and publishes it.
func (h *person) publish(version int) error {
	app, problems := appspec.Parse("app.yaml", []byte(h.w.plan.config(version)))
	if problems != nil {
		return fmt.Errorf("the simulated app: %v", problems)
	}
	config, err := app.Canonical()
	if err != nil {
		return err
	}
	in := wire.PublishVersionRequest{Config: config, Artifacts: map[string]string{}}
	for i, c := range app.Parts() {
		if c.Name != h.w.plan.built {
			in.Artifacts[c.Name] = fmt.Sprintf("sha256:%064x", i+1)
		}
	}
	if h.w.plan.built != "" {
		if in.Builds, err = h.build(app.Name, config); err != nil {
			return err
		}
	}
	return h.until("publish", func(ctx context.Context) error { _, err := h.c.PublishVersion(ctx, app.Name, in); return err })
}

// made returns the request that creates the runner.
func (r runnerPlan) made() control.NewRunner {
	if r.builds {
		return control.NewRunner{Name: r.name, File: control.RunnerFile{Set: []string{"runner_configuration.type=local", "runner_configuration.builds=true", "state_storage_configuration.type=" + r.storage}}}
	}
	if r.stack {
		return control.NewRunner{Name: r.name, File: control.RunnerFile{Set: []string{"runner_configuration.type=aws-ecs", "state_storage_configuration.type=" + r.storage}}}
	}
	return control.NewRunner{Name: r.name, Storage: r.storage}
}

// setUp creates the objects that exist before the first fault, and returns the persons.
func (w *world) setUp() []*person {
	admin := w.newPerson("admin", installPlan{})
	srv := w.pick("setup")
	ctx := context.WithValue(context.Background(), siteKey{}, site{name: "setup"})
	w.must("register the API token", srv.control.RegisterToken(ctx, org, "admin", w.apiToken))
	for _, r := range w.plan.runners {
		w.must("create a runner", srv.control.EnsureRunner(ctx, org, r.made()))
	}
	for _, r := range w.plan.runners {
		if r.builds {
			w.addHosts(admin, r)
		}
	}
	w.must("publish", admin.publish(1))
	var persons []*person
	for _, in := range w.plan.installs {
		w.must("create an install", admin.until("install", func(ctx context.Context) error {
			_, err := admin.c.CreateInstall(ctx, wire.CreateInstallRequest{Name: in.name, App: "app", Runner: in.runner})
			return err
		}))
		persons = append(persons, w.newPerson(in.name, in))
		if in.second {
			w.seconds = append(w.seconds, w.newPerson(in.name+" second", in))
		}
	}
	for _, r := range w.plan.runners {
		if !r.builds {
			w.addHosts(admin, r)
		}
	}
	return persons
}

func (w *world) addHosts(admin *person, r runnerPlan) {
	for i := range r.hosts {
		w.addHost(admin, fmt.Sprintf("%s-host%d", r.name, i+1), r)
	}
}

func (w *world) addHost(admin *person, name string, r runnerPlan) {
	var e wire.Enrolment
	w.must("enrol", admin.until("enrol", func(ctx context.Context) (err error) { e, err = admin.c.CreateEnrolment(ctx, r.name); return err }))
	w.must("create a disk", os.MkdirAll(filepath.Join(w.opt.Dir, name), 0o700))
	w.newHost(name, r, e.Token)
}

// live is the main part of the run: persons act and faults occur. After the end of the faults,
// all deployments and jobs must end.
func (w *world) live(persons []*person) {
	working := make(chan struct{})
	left := len(persons)
	for _, h := range persons {
		go h.watch()
		go func() {
			h.work()
			w.mu.Lock()
			defer w.mu.Unlock()
			if left--; left == 0 {
				close(working)
			}
		}()
	}
	for _, h := range w.seconds {
		go h.watch()
	}
	began := w.since()
	moments := slices.Clone(w.plan.moments)
	slices.SortFunc(moments, func(a, b moment) int { return int(a.at - b.at) })
	for _, m := range moments {
		w.nap(began + m.at - w.since())
		if !w.happens(m.name) {
			continue
		}
		if w.needsBusyHost(m) {
			go w.strikeBusyHost(m)
			continue
		}
		w.strike(m, w.anyHost(m))
	}
	w.nap(began + w.plan.until - w.since())
	w.calm()
	w.repair(persons)
	w.repairPods()
	calmed := w.since()
	open := func() bool {
		if !isClosed(working) {
			return true
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, d := range w.deployments {
			if !d.State.Final() {
				return true
			}
		}
		for _, j := range w.jobs {
			if !j.State.Final() {
				return true
			}
		}
		return false
	}
	for open() {
		w.checkQueued()
		w.checkSchedules()
		if w.since()-calmed > settleFor {
			w.violate("deployments-end", "%s after the last fault: %s", settleFor, w.stuck())
			return
		}
		w.nap(time.Second)
	}
	w.mu.Lock()
	w.stats.Settled = w.since() - calmed
	w.mu.Unlock()
	for _, h := range persons {
		w.heal(h)
	}
	w.windDown(persons)
	w.accounts()
}

// heal deploys an install until a deployment succeeds, at most four times. A success shows that
// nothing blocks the install.
func (w *world) heal(h *person) {
	for range 4 {
		id, refusal := h.tryDeploy(wire.CreateDeploymentRequest{Kind: "deploy", AutoApprove: true, Refresh: true})
		if refusal != nil {
			w.violate("installs-heal", "%s: %v", h.plan.name, refusal)
			return
		}
		began := w.since()
		var d wire.Deployment
		for {
			if err := h.until("heal", func(ctx context.Context) (err error) { d, err = h.c.GetDeployment(ctx, id); return err }); err != nil {
				w.violate("installs-heal", "%s: %v", h.plan.name, err)
				return
			}
			if d.Done() {
				break
			}
			w.checkQueued()
			w.checkSchedules()
			if w.since()-began > healFor {
				w.violate("installs-heal", "%s: %s", h.plan.name, w.stuck())
				return
			}
			w.nap(time.Second)
		}
		if d.State == "succeeded" {
			return
		}
		w.note("%s did not heal: %s", h.plan.name, d.Message)
	}
	w.mu.Lock()
	var why []string
	for _, d := range w.deployments {
		if d.InstallName == h.plan.name {
			for _, n := range d.Nodes {
				if n.Message != "" {
					why = append(why, fmt.Sprintf("%s %s %s", n.Component, n.Reason, n.Message))
				}
			}
		}
	}
	w.mu.Unlock()
	w.violate("installs-heal", "%s cannot be deployed any more: %s", h.plan.name, strings.Join(why[max(0, len(why)-3):], "; "))
}

// repair ends the faults that still have an effect: the outage, wrong clocks, pauses, cut
// networks and hosts without power. It replaces the hosts that are gone.
func (w *world) repair(persons []*person) {
	w.setOutage(false)
	w.mu.Lock()
	w.clock = 0
	hosts := slices.Clone(w.hosts)
	w.mu.Unlock()
	woken := time.Duration(0)
	for _, h := range hosts {
		for _, p := range h.processes() {
			woken += time.Microsecond
			p.wake(woken)
		}
		h.mu.Lock()
		h.cut, h.skew = open, 0
		gone := h.gone
		h.down = false
		h.mu.Unlock()
		if gone && h.runner.in == "" {
			w.addHost(persons[0], h.name+"-heir", h.runner)
		}
	}
}

// windDown ends the people, whose reads of large answers leave parts until the second collection,
// and waits for messages that are in transit.
func (w *world) windDown(persons []*person) {
	for _, h := range slices.Concat(persons, w.seconds) {
		h.p.kill()
	}
	w.nap(max(2*collectEvery+time.Minute, w.plan.timing.end()-w.since())) // delayed and hidden wake-ups are delivered in this time; no queued job is left for them
}

// tearDown ends all processes.
func (w *world) tearDown(persons []*person) {
	w.mu.Lock()
	servers := slices.Clone(w.servers)
	w.mu.Unlock()
	close(w.ended)
	for _, h := range w.hosts {
		h.powerOff()
	}
	for _, s := range servers {
		s.p.kill()
	}
	for _, h := range slices.Concat(persons, w.seconds) {
		h.p.kill()
	}
}

func (w *world) anyHost(m moment) *host {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hosts[w.intn("host of "+m.name, len(w.hosts))]
}

// needsBusyHost reports whether the fault waits for a host that runs a step. Most of the
// time, no host runs a step, and without a step the fault has little effect.
func (w *world) needsBusyHost(m moment) bool {
	switch m.kind {
	case "step-killed", "step-paused", "tool-killed":
		return true
	case "host-paused", "host-cut", "host-rebooted", "agent-killed":
		return w.unit("stalks "+m.name) < 0.6
	}
	return false
}

// strikeBusyHost waits until a host runs a step, and executes the fault on this host. It gives
// up after 100 tries.
func (w *world) strikeBusyHost(m moment) {
	for range 100 {
		w.nap(w.between(w.place("stalk "+m.name), 100*time.Millisecond, time.Second))
		if w.over() || w.isQuiet() {
			return
		}
		w.mu.Lock()
		hosts := slices.Clone(w.hosts)
		w.mu.Unlock()
		for _, h := range hosts {
			steps, tools := h.living()
			if len(tools) > 0 || len(steps) > 0 && m.kind != "tool-killed" {
				w.strike(m, h)
				return
			}
		}
	}
}

// strike executes a timed fault, on the host h if the fault concerns a host.
func (w *world) strike(m moment, h *host) {
	steps, tools := h.living()
	long := w.between("length of "+m.name, time.Second, 3*time.Minute)
	hit := true
	switch m.kind {
	case "server-killed":
		hit = w.onServer(m, func(s *server) { s.p.kill() })
	case "server-restarted":
		hit = w.onServer(m, func(s *server) { go s.shutdown() })
	case "server-upgraded":
		// The new server answers before the old one has ended.
		hit = w.onServer(m, func(s *server) {
			w.startServer()
			go func() {
				w.nap(w.between("overlap of "+m.name, time.Second, time.Minute))
				s.shutdown()
			}()
		})
	case "power-lost":
		hit = w.onServer(m, func(*server) { w.powerFails(m.name) })
	case "outage":
		w.setOutage(true)
		time.AfterFunc(long, func() { w.setOutage(false) })
	case "server-clock-jumps":
		w.mu.Lock()
		w.clock = time.Duration((w.unit("jump of "+m.name) - 0.5) * float64(4*time.Minute))
		w.mu.Unlock()
	case "sweep-stops":
		w.mu.Lock()
		w.sweepsAt = w.since() + w.between("minutes of "+m.name, time.Minute, 4*time.Minute)
		w.mu.Unlock()
	case "agent-killed":
		hit = h.agentNow() != nil
		h.killAgent()
	case "agent-paused":
		if p := h.agentNow(); p != nil {
			p.pause(long)
		} else {
			hit = false
		}
	case "agent-drained":
		hit = h.agentNow() != nil
		h.signalAgent()
	case "agent-replaced":
		hit = h.agentNow() != nil
		h.signalAgent()
		h.signalAgent()
	case "step-killed":
		if hit = len(steps) > 0; hit {
			steps[w.intn("step of "+m.name, len(steps))].p.kill()
		}
	case "step-paused":
		if hit = len(steps) > 0; hit {
			s := steps[w.intn("step of "+m.name, len(steps))]
			s.p.pause(long)
			if w.unit("with tool "+m.name) < 0.5 {
				for i, t := range s.tools {
					t.pause(long + time.Duration(i+1)*time.Microsecond)
				}
			}
		}
	case "tool-killed":
		if hit = len(tools) > 0; hit {
			tools[w.intn("tool of "+m.name, len(tools))].kill()
		}
	case "host-rebooted":
		h.setDown(true)
		h.powerOff()
		time.AfterFunc(long, func() { h.setDown(false) })
	case "host-paused":
		for i, p := range h.processes() {
			p.pause(long + time.Duration(i)*time.Microsecond) // so that no two processes wake at the same moment
		}
	case "host-gone":
		if hit = h.runner.storage != "local"; hit { // otherwise the state is lost with the host
			h.vanish()
		}
	case "host-cut":
		c := refusing
		if w.unit("cut of "+m.name) < 0.7 {
			c = swallowing
		}
		h.setCut(c)
		time.AfterFunc(long, func() { h.setCut(open) })
	case "host-clock-jumps":
		h.mu.Lock()
		h.skew = time.Duration((w.unit("jump of "+m.name) - 0.5) * float64(4*time.Minute))
		h.mu.Unlock()
	}
	if hit {
		w.count(m.kind)
	}
}

func (w *world) onServer(m moment, do func(*server)) bool {
	s := w.pick(m.name)
	if s != nil {
		do(s)
	}
	return s != nil
}

// powerFails ends all servers and drops the data that is not durable yet.
func (w *world) powerFails(name string) {
	w.mu.Lock()
	all := slices.Clone(w.servers)
	w.mu.Unlock()
	for _, s := range all {
		s.p.kill()
	}
	w.losePower(w.unit("share of " + name))
}

// sweepStops reports whether no sweep runs now, as when the timer of the sweep fails.
func (w *world) sweepStops() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.quiet && w.since() < w.sweepsAt
}

func (w *world) setOutage(on bool) {
	w.one.Lock()
	defer w.one.Unlock()
	w.outage = on
}

func (h *host) setDown(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.down = on
}
