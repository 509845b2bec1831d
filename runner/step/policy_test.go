package step

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/policy"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/internal/secretsource"
	"github.com/fairlead/fairlead/runner/ledger/places"
	"github.com/fairlead/fairlead/runner/ledger/record"
	"github.com/fairlead/fairlead/runner/plugin"
)

// underPolicy returns a step on a machine with a policy and a ledger.
func underPolicy(t *testing.T, text string) *execution {
	t.Helper()
	folder := t.TempDir()
	file := filepath.Join(folder, "policy.yaml")
	if err := os.WriteFile(file, []byte("version: 1\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	return &execution{in: attempt.Input{Policy: "file:" + file, Ledger: "file:" + filepath.Join(folder, "ledger")},
		Env: Env{Now: time.Now, NewID: rand.Text, Parts: Parts{ReadSecret: secretsource.Source{}.Read, OpenLedger: places.Opener{}.Open}}}
}

// guardOf opens the guard of a job.
func guardOf(t *testing.T, a *execution, spec events.JobSpec) *guard {
	t.Helper()
	g, err := a.openGuard(t.Context(), &spec)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func jobOf(n int, operation, component string) events.JobSpec {
	return events.JobSpec{Deployment: "dep_1", Job: fairlead.JobID(fmt.Sprintf("job_%d", n)), Epoch: 1, Operation: operation, Component: component, Plugin: "terraform",
		Artifact: &events.ArtifactRef{Digest: "sha256:" + strings.Repeat("a", 64)}}
}

func deletions(t *testing.T, n int) *changeset.Builder {
	t.Helper()
	b := &changeset.Builder{KeepAll: true}
	for i := range n {
		if err := b.Add(changeset.Change{Address: fmt.Sprintf("x.y[%d]", i), Kind: "x", Action: changeset.Delete}); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:])
}

func wantReason(t *testing.T, what string, err error, want fairlead.Reason) {
	t.Helper()
	got := fairlead.Reason("")
	if err != nil {
		got = plugin.ReasonOf(err)
	}
	if got != want {
		t.Errorf("%s: %v, want the reason %q", what, err, want)
	}
}

// Many applies of one deployment at once never change more than the ceiling permits, and the ones within it are admitted.
func TestCeilingHoldsForAppliesAtOnce(t *testing.T) {
	a := underPolicy(t, "ceilings: {deployment: {destroys: 5}}")
	var wg sync.WaitGroup
	errs := make([]error, 12)
	for i := range errs {
		g, b := guardOf(t, a, jobOf(i, "apply", fmt.Sprintf("c%d", i))), deletions(t, 1)
		wg.Go(func() { errs[i] = g.Applies(t.Context(), b, nil, digestOf(fmt.Sprint(i))) })
	}
	wg.Wait()
	admitted, last := 0, 0
	for i, err := range errs {
		if err == nil {
			admitted, last = admitted+1, i
		} else {
			wantReason(t, "an apply over the ceiling", err, fairlead.ReasonPolicyDenied)
		}
	}
	if admitted != 5 {
		t.Errorf("%d applies were admitted, want 5", admitted)
	}
	// A hostile control plane starts a second step for an attempt that was admitted: it is another apply.
	wantReason(t, "a second step of the same attempt", guardOf(t, a, jobOf(last, "apply", fmt.Sprintf("c%d", last))).Applies(t.Context(), deletions(t, 1), nil, digestOf(fmt.Sprint(last))), fairlead.ReasonPolicyDenied)
	// Another deployment has a ceiling of its own.
	other := jobOf(99, "apply", "c0")
	other.Deployment = "dep_2"
	if err := guardOf(t, a, other).Applies(t.Context(), deletions(t, 5), nil, digestOf("other")); err != nil {
		t.Errorf("another deployment: %v", err)
	}
}

// The control plane stores saved plans of a runner with http storage, so it can replace one together with its digest.
func TestPlanThatNoStepMadeIsDenied(t *testing.T) {
	a := underPolicy(t, "deny: {r: {types: [secret]}}")
	spec := jobOf(1, "plan", "chart")
	spec.Plugin = "helm"
	b := &changeset.Builder{KeepAll: true}
	if err := b.Add(changeset.Change{Address: "x", Kind: "x", Action: changeset.Create, After: map[string]any{"a": "1"}}); err != nil {
		t.Fatal(err)
	}
	if err := guardOf(t, a, spec).Planned(t.Context(), b, nil, digestOf("planned")); err != nil {
		t.Fatal(err)
	}
	spec.Operation = "apply"
	g := guardOf(t, a, spec)
	if err := g.Applies(t.Context(), nil, nil, digestOf("planned")); err != nil {
		t.Errorf("the plan that a step made: %v", err)
	}
	wantReason(t, "a plan of the control plane", g.Applies(t.Context(), nil, nil, digestOf("forged")), fairlead.ReasonPolicyDenied)
	spec.Component = "other"
	wantReason(t, "the plan of another component", guardOf(t, a, spec).Applies(t.Context(), nil, nil, digestOf("planned")), fairlead.ReasonPolicyDenied)
	// The customer changes the policy between plan and apply.
	if err := os.WriteFile(strings.TrimPrefix(a.in.Policy, "file:"), []byte("version: 1\ndeny: {r: {types: [x]}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	spec.Component = "chart"
	wantReason(t, "the plan under a stricter policy", guardOf(t, a, spec).Applies(t.Context(), nil, nil, digestOf("planned")), fairlead.ReasonPolicyDenied)
}

// A person is shown a part of a large plan. The policy decides about all of it.
func TestPolicySeesWhatTheChangeSetLeavesOut(t *testing.T) {
	b := &changeset.Builder{KeepAll: true}
	for i := range 3000 {
		c := changeset.Change{Address: fmt.Sprintf("x.y[%d]", i), Kind: "x", Action: changeset.Create, After: map[string]any{"v": strings.Repeat("z", 100)}}
		if i == 2999 {
			c.Kind = "forbidden"
		}
		if err := b.Add(c); err != nil {
			t.Fatal(err)
		}
	}
	if b.Set(nil).Omitted == 0 {
		t.Fatal("the change set leaves nothing out")
	}
	g := guardOf(t, underPolicy(t, "deny: {r: {types: [forbidden]}}"), jobOf(1, "plan", "web"))
	wantReason(t, "the last of 3,000 changes", g.Planned(t.Context(), b, nil, digestOf("large")), fairlead.ReasonPolicyDenied)
	g = guardOf(t, underPolicy(t, "deny: {r: {types: [other]}}"), jobOf(1, "plan", "web"))
	if err := g.Planned(t.Context(), b, nil, digestOf("large")); err != nil {
		t.Errorf("a plan that no rule denies: %v", err)
	}
}

// A control plane that does not get states, logs, plans or outputs gets none, whatever it asks for.
func TestTelemetryStaysWithTheCustomer(t *testing.T) {
	a := underPolicy(t, "telemetry: []")
	spec := jobOf(1, "plan", "web")
	spec.State = &events.StateRef{Storage: "http", Path: "x"}
	_, err := a.openGuard(t.Context(), &spec)
	wantReason(t, "states in the control plane", err, fairlead.ReasonPolicyDenied)
	spec.State = nil
	g := guardOf(t, a, spec)
	f := g.reported(a.report(plugin.Result{Plan: plugin.Planned(plugin.Digest([]byte("x")), false, deletions(t, 1), nil), Outputs: map[string]wire.FullOutput{"url": {Value: []byte(`"x"`)}}}, nil, nil))
	if f.Outputs != nil || f.Plan.ChangeSet != nil || f.Plan.Changes.Destroy != 1 {
		t.Errorf("reported: %+v", f)
	}
	var log strings.Builder
	fmt.Fprint(g.log(&log), "a secret of the tool")
	if log.String() != keptLog {
		t.Errorf("the log has %q", log.String())
	}
}

// A job of the runner itself, such as a check, changes nothing of an install.
func TestCheckOfARunnerNeedsNoPolicy(t *testing.T) {
	a := underPolicy(t, "budget: 3")
	spec := jobOf(1, "check", "")
	if g, err := a.openGuard(t.Context(), &spec); g != nil || err != nil {
		t.Errorf("a check: %v, %v", g, err)
	}
	spec = jobOf(1, "plan", "web")
	_, err := a.openGuard(t.Context(), &spec)
	wantReason(t, "a plan under a policy that is none", err, fairlead.ReasonPolicyUnavailable)
	for name, in := range map[string]attempt.Input{"a file that does not exist": {Policy: "file:/does/not/exist"}, "no reference": {Policy: "policy.yaml"}} {
		a.in = in
		_, err := a.openGuard(t.Context(), &spec)
		wantReason(t, name, err, fairlead.ReasonPolicyUnavailable)
	}
}

// The keys of the control plane sign each provenance. A customer who lists a key of the vendor's release process believes no other.
func TestOnlyListedKeySignsAComponent(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	build := events.Build{App: "shop", Component: "web", Type: "terraform", Source: ".", From: events.Origin{Kind: events.OriginGit, URL: "https://github.com/acme/web.git", Ref: "v1"}}
	spec := jobOf(1, "plan", "web")
	revision := strings.Repeat("1", 40)
	statement, err := events.Provenance{Build: build, Artifact: spec.Artifact.Digest, Revision: revision, Runner: "run_1", Job: "job_1"}.Statement()
	if err != nil {
		t.Fatal(err)
	}
	envelope, err := events.NewSigner(private).SignStatement(t.Context(), statement)
	if err != nil {
		t.Fatal(err)
	}
	spec.Built = &events.BuiltRef{Build: build, Revision: revision, Provenance: envelope}
	listed := "sources: ['git::https://github.com/acme/*']\nsigners: [" + base64.StdEncoding.EncodeToString(public) + "]"
	guardOf(t, underPolicy(t, listed), spec)
	for name, change := range map[string]func(){
		"another artifact": func() { spec.Artifact = &events.ArtifactRef{Digest: "sha256:" + strings.Repeat("b", 64)} },
		"no provenance":    func() { spec.Built = nil },
	} {
		change()
		_, err := underPolicy(t, listed).openGuard(t.Context(), &spec)
		wantReason(t, name, err, fairlead.ReasonPolicyDenied)
	}
}

// The ledger keeps the last plans for `fairlead policy test`, also those that were denied.
func TestLedgerKeepsPlans(t *testing.T) {
	a := underPolicy(t, "ceilings: {component: {destroys: 1}}")
	for i := range 3 {
		_ = guardOf(t, a, jobOf(i, "plan", "web")).Planned(t.Context(), deletions(t, i), nil, digestOf(fmt.Sprint(i)))
	}
	at, err := runnerspec.ParseLedger(a.in.Ledger)
	if err != nil {
		t.Fatal(err)
	}
	l, err := places.Opener{}.Open(t.Context(), at, "")
	if err != nil {
		t.Fatal(err)
	}
	all, err := record.Last(t.Context(), l)
	if err != nil || len(all) != 3 || all[2].Effect != policy.Deny || all[2].Rule != "ceilings.component.destroys" || len(all[2].Changes) != 2 || all[0].Effect != policy.Allow {
		t.Errorf("the ledger has %+v (%v)", all, err)
	}
}
