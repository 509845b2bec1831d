//go:build linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

// Deployment is a deployment of an install.
type Deployment struct {
	ID string
	i  *Install
	w  *World
}

// Deploy starts a deployment that plans each component. Its plans wait for approval.
func (i *Install) Deploy(flags ...string) *Deployment {
	i.w.t.Helper()
	id := strings.TrimSpace(i.w.Must(append([]string{"install", "deploy", i.Name, "--detach", "--refresh"}, flags...)...))
	return &Deployment{ID: id, i: i, w: i.w}
}

// Approve approves the waiting plans.
func (d *Deployment) Approve() {
	d.w.t.Helper()
	d.w.Must("deployment", "approve", d.ID, "--detach")
}

// Now returns the current record of the deployment.
func (d *Deployment) Now() wire.Deployment {
	d.w.t.Helper()
	got, err := d.w.Client.GetDeployment(d.w.t.Context(), d.ID)
	if err != nil {
		d.w.t.Fatal(err)
	}
	return got
}

// Component returns the current record of the deployment's component.
func (d *Deployment) Component() wire.DeploymentComponent {
	d.w.t.Helper()
	now := d.Now()
	if len(now.Components) != 1 {
		d.w.t.Fatalf("the deployment has components %+v", now.Components)
	}
	return now.Components[0]
}

// Until waits for the deployment to be in one of the states.
func (d *Deployment) Until(states ...string) wire.Deployment {
	d.w.t.Helper()
	var now wire.Deployment
	Until(d.w.t, fmt.Sprintf("the deployment is in one of the states %q", states), func() bool {
		now = d.Now()
		if now.Done() && !slices.Contains(states, now.State) {
			d.w.t.Fatalf("the deployment is %s, want one of %q:\n%s", now.State, states, d.Show())
		}
		return slices.Contains(states, now.State)
	})
	return now
}

// Jobs returns all jobs of the deployment, the oldest first. The API lists only the last
// job of each component.
func (d *Deployment) Jobs() []wire.Job {
	d.w.t.Helper()
	var jobs []wire.Job
	for o := (client.ListOptions{Limit: 100}); ; {
		page, err := d.w.Client.ListJobs(d.w.t.Context(), client.JobFilter{}, o)
		if err != nil {
			d.w.t.Fatal(err)
		}
		for _, j := range page.Items {
			if j.Deployment == d.ID {
				jobs = append(jobs, j)
			}
		}
		if o.Cursor = page.Next; o.Cursor == "" {
			slices.Reverse(jobs)
			return jobs
		}
	}
}

// Job returns the current record of the job.
func (w *World) Job(id string) wire.Job {
	w.t.Helper()
	j, err := w.Client.GetJob(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return j
}

// JobIn waits until the deployment's newest job has the operation and the state, and
// returns it.
func (d *Deployment) JobIn(operation, state string) wire.Job {
	d.w.t.Helper()
	var j wire.Job
	Until(d.w.t, "the "+operation+" is "+state, func() bool {
		jobs := d.Jobs()
		if len(jobs) == 0 {
			return false
		}
		j = jobs[len(jobs)-1]
		return j.Operation == operation && j.State == state
	})
	return j
}

// Show returns the output of `deployment show`.
func (d *Deployment) Show() string {
	d.w.t.Helper()
	return d.w.Must("deployment", "show", d.ID)
}

// quoted finds the commands that a text offers.
var quoted = regexp.MustCompile("`fairlead ([^`]+)`")

// Offered returns the arguments of the first command in the text that begins with the
// name, such as "deployment retry".
func (w *World) Offered(text, name string) []string {
	w.t.Helper()
	for _, m := range quoted.FindAllStringSubmatch(text, -1) {
		if strings.HasPrefix(m[1], name+" ") {
			return strings.Fields(m[1])
		}
	}
	w.t.Fatalf("no `fairlead %s …` is offered in:\n%s", name, text)
	return nil
}

// CheckOffers fails the test if the text offers a command that does not exist or does
// not accept the arguments.
func (w *World) CheckOffers(text string) {
	w.t.Helper()
	for _, m := range quoted.FindAllStringSubmatch(text, -1) {
		if r := w.CLI(append(strings.Fields(m[1]), "--help")...); r.Code != 0 {
			w.t.Errorf("`fairlead %s` is offered, but the CLI refuses it: %s", m[1], r.Stderr)
		}
	}
}

// Finish runs the commands that `deployment show` offers until the deployment succeeds.
// It returns the names of the commands, such as "deployment retry".
func (d *Deployment) Finish() (did []string) {
	d.w.t.Helper()
	for range 5 {
		now := d.Until("awaiting-approval", "failed", "canceled", "succeeded")
		if now.State == "succeeded" {
			return did
		}
		name := map[string]string{"awaiting-approval": "deployment approve", "failed": "deployment retry", "canceled": "deployment retry"}[now.State]
		shown := d.Show()
		command := d.w.Offered(shown, name)
		if name == "deployment retry" || strings.Contains(shown, "interrupted") {
			d.w.CheckOffers(shown) // another test checks the offers of a healthy deployment
		}
		did = append(did, name)
		out := strings.TrimSpace(d.w.Must(append(command, "--detach")...))
		if name == "deployment retry" {
			d.ID = out
		}
	}
	d.w.t.Fatalf("the deployment does not succeed after the commands %q\n%s", did, d.Show())
	return nil
}

// CheckOnce fails the test if the tool created a resource twice without a plan in
// between: within one apply job, in one or two attempts. It also fails if an apply job
// has no successful plan before it.
func (i *Install) CheckOnce() {
	i.w.t.Helper()
	seen := map[string]bool{}
	attempts := map[string]string{}
	for _, c := range i.Created() {
		job, _, _ := strings.Cut(c.Attempt, "-")
		if seen[c.Resource+" "+job] {
			i.w.t.Errorf("the apply %[2]s created %[1]s twice", c.Resource, job)
		}
		seen[c.Resource+" "+job] = true
		if other := attempts[job]; other != "" && other != c.Attempt {
			i.w.t.Errorf("the apply %s created resources in the attempts %s and %s", job, other, c.Attempt)
		}
		attempts[job] = c.Attempt
	}
	page, err := i.w.Client.ListDeployments(i.w.t.Context(), client.DeploymentFilter{Install: i.Name}, client.ListOptions{})
	if err != nil {
		i.w.t.Fatal(err)
	}
	for _, dep := range page.Items {
		planned := false
		for _, j := range (&Deployment{ID: dep.ID, i: i, w: i.w}).Jobs() {
			switch {
			case j.Operation == "plan" && j.State == "succeeded":
				planned = true
			case j.Operation == "apply" && !planned:
				i.w.t.Errorf("no successful plan comes before the apply %s of %s", j.ID, dep.ID)
			case j.Operation == "apply":
				planned = false
			}
		}
	}
}

// CheckClean fails the test if a lock, a folder or a process of the install's jobs
// remains.
func (i *Install) CheckClean() {
	i.w.t.Helper()
	in, err := i.w.Client.GetInstall(i.w.t.Context(), i.Name)
	if err != nil {
		i.w.t.Fatal(err)
	}
	for _, c := range in.Components {
		if c.LockedBy != "" || c.State != "present" {
			i.w.t.Errorf("component %+v", c)
		}
	}
	if in.Deployment != "" || len(in.Queued) > 0 || in.State != "deployed" {
		i.w.t.Errorf("install %+v", in)
	}
	left := func() (names []string) {
		for _, pattern := range []string{"steps/*", "work/*"} {
			found, _ := filepath.Glob(filepath.Join(i.w.RunnerData, pattern)) // the pattern is valid
			names = append(names, found...)
		}
		return names
	}
	clean := false
	defer func() {
		if !clean {
			i.w.t.Errorf("these remain: folders %q, processes %v", left(), i.w.Strays())
		}
	}()
	Until(i.w.t, "no folder and no process of the jobs remains", func() bool { return len(left()) == 0 && len(i.w.Strays()) == 0 })
	clean = true
	if lock := filepath.Join(i.w.RunnerData, "state", i.ID, Component, ".terraform.tfstate.lock.info"); exists(lock) {
		i.w.t.Errorf("the tool's lock %s remains", lock)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// CheckInterrupted fails the test if a process or a lock of the install's last job, which
// was interrupted, remains, or if its log is incomplete. It waits for the step, which may
// run shortly after its report.
func (i *Install) CheckInterrupted(j wire.Job) {
	i.w.t.Helper()
	step := func(p Proc) bool { return strings.Contains(p.Line, " step --dir ") }
	if left := slices.DeleteFunc(i.w.Strays(), step); len(left) > 0 {
		i.w.t.Errorf("the job has ended, but these processes run: %v", left)
	}
	Until(i.w.t, "the step has ended", func() bool { return len(i.w.Strays()) == 0 })
	in, err := i.w.Client.GetInstall(i.w.t.Context(), i.Name)
	if err != nil {
		i.w.t.Fatal(err)
	}
	if in.Components[0].LockedBy != "" {
		i.w.t.Errorf("the state is still locked by %s", in.Components[0].LockedBy)
	}
	if n := len(j.Log); n == 0 || !j.Log[n-1].Ended || j.Log[n-1].Truncated {
		i.w.t.Errorf("log of %s: %+v", j.ID, j.Log)
	}
}

// CheckState fails the test if the state differs from the module, so that a plan has
// changes.
func (i *Install) CheckState() {
	i.w.t.Helper()
	made, err := i.w.Client.CreateDeployment(i.w.t.Context(), i.Name, wire.CreateDeploymentRequest{Kind: "deploy", PlanOnly: true, Refresh: true})
	if err != nil {
		i.w.t.Fatal(err)
	}
	d := &Deployment{ID: made.ID, i: i, w: i.w}
	d.Until("succeeded")
	if c := d.Component(); c.State != "unchanged" {
		i.w.t.Errorf("the state differs from the module: a plan has the changes %+v (%s)", c.Changes, c.State)
	}
}

// CheckLog fails the test if the log of a successful apply differs from the output of
// its tool.
func (i *Install) CheckLog(j wire.Job) {
	i.w.t.Helper()
	if n := len(j.Log); n == 0 || !j.Log[n-1].Ended || j.Log[n-1].Truncated {
		i.w.t.Errorf("log of %s: %+v", j.ID, j.Log)
	}
	text := i.w.Must("job", "logs", j.ID, "--raw")
	for _, c := range i.Created() {
		if c.Attempt != attempt(j) {
			continue
		}
		// The tool prints a line in pieces if it does not receive the end at once. So
		// the test joins all output of the resource, in order.
		var got, want strings.Builder
		for line := range strings.Lines(text) {
			if piece, ok := strings.CutPrefix(line, "terraform_data."+c.Resource+" (local-exec): "); ok {
				got.WriteString(strings.TrimSuffix(piece, "\n"))
			}
		}
		for n := 1; n <= 500; n++ {
			fmt.Fprintf(&want, "%s-line-%04d", c.Resource, n)
		}
		if strings.Count(got.String(), want.String()) != 1 {
			i.w.t.Errorf("the log of %s does not have the lines of %s exactly once, complete and in order: %d bytes", j.ID, c.Resource, got.Len())
		}
	}
}
