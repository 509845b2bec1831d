package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// person is a user who works with one install. A person uses only the API.
type person struct {
	w    *world
	p    *process
	c    *client.Client
	plan installPlan

	mu      sync.Mutex
	version int
	tabs    map[string]string // by deployment and component: digest of the first plan that the person saw
}

func (w *world) newPerson(name string, plan installPlan) *person {
	p := w.spawn(name)
	c, err := client.New("https://control.example", w.apiToken, client.Options{
		HTTP: &http.Client{Transport: &link{p: p, fast: time.Millisecond, slow: 50 * time.Millisecond}}, UserAgent: "sim", Random: p.random})
	w.must("create a client", err)
	return &person{w: w, p: p, c: c, plan: plan, version: 1, tabs: map[string]string{}}
}

// until repeats a person's request until the request succeeds, the control plane refuses it
// permanently, or the run ends.
func (h *person) until(what string, do func(context.Context) error) error {
	for try := 1; ; try++ {
		ctx, cancel := context.WithTimeout(h.p.ctx, 2*time.Minute)
		err := do(ctx)
		cancel()
		if err == nil || h.w.over() {
			return err
		}
		if e, ok := errors.AsType[*client.Error](err); ok && e.Status < 500 && e.Status != http.StatusRequestTimeout && e.Status != http.StatusTooManyRequests {
			h.w.note("%s: %s: %v", h.p.name, what, err)
			return err
		}
		if try > 400 {
			h.w.violate("the-api-answers", "%s gets no answer: %v", what, err)
			return err
		}
		h.w.nap(h.w.between(h.w.place(h.p.name, "tries again"), time.Second, 5*time.Second))
	}
}

// work executes the actions of the scenario, one after the other.
func (h *person) work() {
	for _, a := range h.plan.actions {
		h.w.nap(a.wait)
		if h.w.over() {
			return
		}
		if h.w.only != nil && !h.w.only[a.name] {
			continue
		}
		h.w.mu.Lock()
		h.w.happened = append(h.w.happened, a.name)
		h.w.mu.Unlock()
		h.w.note("*** %s", a.name)
		h.act(a.do)
	}
}

func (h *person) act(do string) {
	place := h.w.place(h.p.name, do)
	refresh := h.w.unit("refresh "+place) < 0.7
	expires := int64(0)
	if h.w.unit("expires "+place) < 0.3 { // the person may read the plan later than that
		expires = 60
	}
	switch do {
	case "deploy":
		h.deploy(wire.CreateDeploymentRequest{Kind: "deploy", Refresh: refresh, PlansExpire: expires})
	case "deploy-auto":
		h.deploy(wire.CreateDeploymentRequest{Kind: "deploy", Refresh: refresh, PlansExpire: expires, AutoApprove: true})
	case "deploy-twice": // two requests at almost the same moment, as from two persons
		var other sync.WaitGroup
		other.Go(func() {
			h.w.nap(h.w.between("offset "+place, 50*time.Microsecond, 50*time.Millisecond))
			h.deploy(wire.CreateDeploymentRequest{Kind: "deploy", Refresh: refresh, PlansExpire: expires, AutoApprove: true})
		})
		h.deploy(wire.CreateDeploymentRequest{Kind: "deploy", Refresh: refresh, PlansExpire: expires, AutoApprove: true})
		other.Wait()
	case "plan-only":
		h.deploy(wire.CreateDeploymentRequest{Kind: "deploy", Refresh: refresh, PlansExpire: expires, PlanOnly: true})
	case "teardown":
		h.deploy(wire.CreateDeploymentRequest{Kind: "teardown", AutoApprove: true})
	case "deploy-and-cancel":
		id := h.deploy(wire.CreateDeploymentRequest{Kind: "deploy", Refresh: refresh, PlansExpire: expires, AutoApprove: true})
		h.w.nap(h.w.between("patience "+place, 10*time.Millisecond, time.Minute))
		h.cancel(id)
	case "deploy-and-retry":
		h.retry(h.deploy(wire.CreateDeploymentRequest{Kind: "deploy", Refresh: refresh, PlansExpire: expires, AutoApprove: true}))
	case "deploy-and-cancel-and-retry":
		id := h.deploy(wire.CreateDeploymentRequest{Kind: "deploy", Refresh: refresh, PlansExpire: expires, AutoApprove: true})
		h.w.nap(h.w.between("patience "+place, 100*time.Millisecond, time.Minute))
		h.cancel(id)
		h.retry(id)
	case "update-and-deploy":
		h.update(1 + h.w.intn("size "+place, 9))
		h.deploy(wire.CreateDeploymentRequest{Kind: "deploy", Refresh: refresh, PlansExpire: expires, AutoApprove: h.w.unit("auto "+place) < 0.6})
	case "new-version":
		h.version++
		if h.publish(h.version) != nil {
			h.version-- // its artifact was not built
		}
		h.deploy(wire.CreateDeploymentRequest{Kind: "deploy", Refresh: refresh, PlansExpire: expires, AutoApprove: true})
	case "run-action":
		h.accept("run an action", 0, func(ctx context.Context) (wire.Deployment, error) {
			ask := "never"
			if h.w.unit("ask "+place) < 0.3 {
				ask = "always"
			}
			name := actionName
			if h.w.plan.timing.set() && h.w.unit("scheduled "+place) < 0.5 {
				name = scheduledName
			}
			return h.c.RunAction(ctx, h.plan.name, name, wire.RunActionRequest{Ask: ask})
		})
	case "check-runner":
		h.until("check", func(ctx context.Context) error { _, err := h.c.CheckRunner(ctx, h.plan.runner); return err })
	}
}

func (h *person) update(size int) {
	for range 200 { // an install with an active deployment refuses updates
		err := h.until("update", func(ctx context.Context) error {
			_, err := h.c.UpdateInstall(ctx, h.plan.name, wire.UpdateInstallRequest{Inputs: map[string]json.RawMessage{"size": json.RawMessage(fmt.Sprint(size))}})
			return err
		})
		if err == nil || !client.HasStatus(err, http.StatusConflict) || h.w.over() {
			return
		}
		h.w.nap(h.w.between(h.w.place(h.p.name, "waits"), 5*time.Second, 15*time.Second))
	}
}

// deploy creates a deployment. It returns its ID, or "" if the control plane refuses it.
func (h *person) deploy(in wire.CreateDeploymentRequest) string {
	id, _ := h.tryDeploy(in) // until has noted the refusal
	return id
}

func (h *person) tryDeploy(in wire.CreateDeploymentRequest) (id string, refusal error) {
	return h.accept("deploy", in.PlansExpire, func(ctx context.Context) (wire.Deployment, error) { return h.c.CreateDeployment(ctx, h.plan.name, in) })
}

// accept makes a deployment whose plans expire after so many seconds; 0: the default. It returns its ID, or the control plane's
// refusal.
func (h *person) accept(what string, expires int64, request func(context.Context) (wire.Deployment, error)) (id string, refusal error) {
	var d wire.Deployment
	err := h.until(what, func(ctx context.Context) (err error) { d, err = request(ctx); return err })
	if err != nil {
		return "", err
	}
	h.w.mu.Lock()
	h.w.stats.Deployments++
	h.w.expires[fairlead.DeploymentID(d.ID)] = time.Duration(expires) * time.Second
	h.w.mu.Unlock()
	h.w.note("%s has deployment %s", h.p.name, d.ID)
	h.w.accepted(d.ID)
	return d.ID, nil
}

// retry waits until the deployment ends. If the deployment did not succeed, it retries the
// deployment, at most twice.
func (h *person) retry(id string) {
	for range 2 {
		for wait := true; wait; {
			if id == "" || h.w.over() {
				return
			}
			var d wire.Deployment
			if h.until("look", func(ctx context.Context) (err error) { d, err = h.c.GetDeployment(ctx, id); return err }) != nil || d.State == "succeeded" {
				return
			}
			if wait = !d.Done(); wait {
				h.w.nap(h.w.between(h.w.place(h.p.name, "waits"), time.Second, 10*time.Second))
			}
		}
		var next wire.Deployment
		if h.until("retry", func(ctx context.Context) (err error) { next, err = h.c.RetryDeployment(ctx, id); return err }) != nil {
			return // a newer deployment of the install exists
		}
		h.w.mu.Lock()
		h.w.expires[fairlead.DeploymentID(next.ID)] = h.w.expires[fairlead.DeploymentID(id)]
		h.w.mu.Unlock()
		h.w.note("%s retries with deployment %s", h.p.name, next.ID)
		h.w.accepted(next.ID)
		id = next.ID
	}
}

func (h *person) cancel(id string) {
	if id == "" {
		return
	}
	h.until("cancel", func(ctx context.Context) error { _, err := h.c.CancelDeployment(ctx, id); return err })
}

// look reads the install's deployments. If plans of a deployment wait, look approves the plans
// or cancels the deployment. It returns the IDs of the active deployments, the oldest first.
func (h *person) look() (open []string) {
	var page wire.Page[wire.Deployment]
	err := h.until("list", func(ctx context.Context) (err error) {
		page, err = h.c.ListDeployments(ctx, client.DeploymentFilter{Install: h.plan.name}, client.ListOptions{})
		return err
	})
	if err != nil {
		return []string{"unknown"}
	}
	for _, d := range page.Items {
		if d.Done() {
			continue
		}
		open = append(open, d.ID)
		h.attend(d.ID)
	}
	slices.Reverse(open)
	return open
}

func (h *person) attend(id string) {
	var d wire.Deployment
	if h.until("look", func(ctx context.Context) (err error) { d, err = h.c.GetDeployment(ctx, id); return err }) != nil {
		return
	}
	plans := map[string]string{}
	for _, c := range d.Components {
		if c.State == "awaiting-approval" {
			plans[c.Name] = c.Plan
			h.oldTab(id, c.Name, c.Plan)
		}
	}
	if len(plans) > 0 {
		place := h.w.place(h.p.name, "decides")
		if h.w.unit(place) < 0.1 && !h.w.isQuiet() {
			h.cancel(id)
			return
		}
		if h.w.unit("thinks "+place) < 0.3 { // the plan may be replaced before the person approves it
			h.w.nap(h.w.between("thought "+place, time.Second, 90*time.Second))
		}
		for c, digest := range plans {
			h.w.approves(id, c, digest)
		}
		h.until("approve", func(ctx context.Context) error {
			_, err := h.c.ApproveDeployment(ctx, id, wire.ApproveRequest{Plans: plans})
			return err
		})
	}
}

// oldTab mostly approves an old plan, which the person saw before it was replaced. A real
// person does this on an outdated page. The control plane must refuse this approval.
func (h *person) oldTab(id, component, digest string) {
	place := h.w.place(h.p.name, "finds an old page")
	h.mu.Lock()
	old := h.tabs[id+component]
	if old == "" {
		h.tabs[id+component] = digest
	}
	h.mu.Unlock()
	if old == "" || old == digest || h.w.unit(place) < 0.1 {
		return
	}
	h.until("approve what was replaced", func(ctx context.Context) error {
		_, err := h.c.ApproveDeployment(ctx, id, wire.ApproveRequest{Plans: map[string]string{component: old}})
		return err
	})
}

func (w *world) isQuiet() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.quiet
}

// watch calls look at intervals until the run ends.
func (h *person) watch() {
	for !h.w.over() {
		h.w.nap(h.w.between(h.w.place(h.p.name, "looks"), 5*time.Second, 40*time.Second))
		if h.w.over() {
			return
		}
		h.look()
	}
}
