package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/installkey"
	"github.com/fairlead/fairlead/pkg/statefile"
	"github.com/fairlead/fairlead/runner/internal/installseed"
	"github.com/fairlead/fairlead/test/canary"
	"github.com/fairlead/fairlead/test/plane"
)

// customersCanary is a secret that only the customer has: the runner gives it to the component.
var customersCanary = canary.Text("the secret of the customer")

// canaryModule keeps the canary in its state, and so in its saved plans.
const canaryModule = `
variable "name" { type = string }
variable "password" {
  type      = string
  sensitive = true
}
resource "terraform_data" "it" {
  input = { name = var.name, password = var.password }
}
`

// withCanary returns the agent's variable with a file of the customer that has the canary, for the components web and note.
func withCanary(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte(customersCanary), 0o600); err != nil {
		t.Fatal(err)
	}
	return agentFile(t, map[string]string{"web/var.password": "file:" + path, "note/var.password": "file:" + path})
}

// keylessFolder returns a data folder of an earlier release: the steps of its agent have no key.
func keylessFolder(t testing.TB) string {
	t.Helper()
	data := t.TempDir()
	if err := os.Mkdir(filepath.Join(data, "steps"), 0o700); err != nil {
		t.Fatal(err)
	}
	return data
}

// keyless starts an agent whose steps have no key.
func keyless(t testing.TB, s *plane.Plane, env ...string) *agentProcess {
	t.Helper()
	return startAt(t, s.URL(), "", keylessFolder(t), append([]string{"FAIRLEAD_ENROLMENT_TOKEN=" + s.EnrolmentToken()}, env...)...)
}

// end kills an agent. When it returns, no request of the agent can get a job any more.
func end(s *plane.Plane, a *agentProcess) {
	a.t.Helper()
	a.kill()
	s.Until("the agent's requests have ended", func() bool { return s.Open(wire.ClaimJob) == 0 })
}

// keysIn returns the keys that the steps of an agent have for the install ins_1.
func keysIn(t testing.TB, data string) installkey.Ring {
	t.Helper()
	seeds, err := installseed.Read(data)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := installkey.NewRing(seeds, "ins_1")
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// finds reports whether content has the canary, in any form.
func finds(content []byte) bool {
	return len(canary.New(map[string]string{"customer": customersCanary}).In(content)) > 0
}

// found returns the kinds of what the control plane knows with the canary in it.
func found(s *plane.Plane) []string {
	kinds := map[string]bool{}
	for name, content := range s.Known() {
		if finds(content) {
			kind, rest, _ := strings.Cut(name, " ")
			if kind == "opened" {
				kind = "opened " + strings.Split(strings.TrimPrefix(rest, "blob "), "/")[0]
			}
			kinds[kind] = true
		}
	}
	out := []string{}
	for kind := range kinds {
		out = append(out, kind)
	}
	slices.Sort(out)
	return out
}

// The runner gives a component a secret that the control plane never gets. The secret is in the component's state and saved
// plans. The test then searches all that the control plane received and stored, also as its own key opens it. The rows
// without a key prove that the search finds what is there.
func TestControlPlaneCannotReadPlansAndStates(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		storage string
		keyless bool
		parts   bool
		want    string // what has the canary in it
		bucket  bool   // whether the customer's bucket has a plan in clear
	}{
		"http":                   {storage: "http", want: "[]"},
		"http, in parts":         {storage: "http", parts: true, want: "[]"},
		"s3":                     {storage: "s3", want: "[]"},
		"kubernetes":             {storage: "kubernetes", want: "[]"},
		"local":                  {storage: "local", want: "[]"},
		"http, without a key":    {storage: "http", keyless: true, want: "[opened plan opened state request]"},
		"in parts without a key": {storage: "http", keyless: true, parts: true, want: "[opened plan opened staged opened state request]"},
		"s3, without a key":      {storage: "s3", keyless: true, want: "[request]", bucket: true}, // an output of the program
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := plane.Options{Record: true, Stack: c.storage == "s3"}
			if c.parts {
				o.MaxBody = 16 << 10
			}
			env := []string{"FAIRLEAD_TOFU=" + tool(t), withCanary(t)}
			in := func(sp events.JobSpec) events.JobSpec { return sp }
			var b bucket
			switch c.storage {
			case "kubernetes":
				n := newNamespace(t)
				env = append(env, "KUBE_CONFIG_PATH="+n.kubeconfig, "KUBE_INSECURE=true", "FAIRLEAD_PASS_ENV=GORACE,KUBE_CONFIG_PATH,KUBE_INSECURE")
				in = func(sp events.JobSpec) events.JobSpec {
					sp.State = &events.StateRef{Storage: "kubernetes", Key: "ins_1/" + sp.Component, In: &events.StateStore{Namespace: n.name}}
					return sp
				}
			case "s3":
				b = newBucket(t, "canary-"+fmt.Sprint(c.keyless), true)
				env = append(env, inStack(t, b.endpoint)...)
				in = func(sp events.JobSpec) events.JobSpec {
					sp.State = &events.StateRef{Storage: "s3", Key: "ins_1/" + sp.Component, In: b.in()}
					return sp
				}
			}
			s := plane.New(t, o)
			if c.keyless {
				keyless(t, s, env...)
			} else {
				startKeyed(t, s, env...)
			}
			do := func(sp events.JobSpec) plane.Job { t.Helper(); return succeeded(t, s.UntilFinished(s.Queue(in(sp)))) }

			// A module of OpenTofu, and a component whose plugin is a program. Its first plan is never applied, so it stays.
			ref := s.Push(map[string]string{"main.tf": canaryModule})
			one := spec("plan", c.storage, ref)
			one.Vars = map[string]events.SpecVar{"name": {Value: json.RawMessage(`"one"`)}}
			two := one
			two.Vars = map[string]events.SpecVar{"name": {Value: json.RawMessage(`"two"`)}}
			do(applySpec("apply", c.storage, ref, do(one)))
			again := do(two)
			if again.Finish.Plan.NoOp || again.Finish.Plan.Changes.Add+again.Finish.Plan.Changes.Change == 0 {
				t.Errorf("the second plan is %+v", again.Finish.Plan)
			}
			file := filepath.Join(t.TempDir(), "note")
			note := noteSpec(s, file, c.storage)
			note.Vars = map[string]events.SpecVar{"file": note.Vars["file"]}
			planned := do(note)
			do(after(note, "apply", planned))
			if _, err := os.Stat(file); err != nil {
				t.Errorf("the program has not applied its plan: %v", err)
			}
			destroy := note
			destroy.Operation = "plan-destroy"
			do(destroy)

			if got := fmt.Sprint(found(s)); got != c.want {
				t.Errorf("the canary is in %s, want %s", got, c.want)
			}
			if c.storage == "s3" {
				if got := finds([]byte(b.read("of/acme/plans/ins_1/note.tfstate"))) && finds([]byte(b.read(planObject))); got != c.bucket {
					t.Errorf("the plans in the bucket are in clear: %t", got)
				}
				if !strings.Contains(b.read(stateObject), customersCanary) {
					t.Error("the state in the customer's bucket lacks the canary")
				}
			}
			if c.storage == "http" {
				head, err := statefile.Read(s.State("ins_1", "web"))
				if err != nil || head.Serial == 0 || head.Lineage == "" || c.keyless != (head.Key == "") {
					t.Errorf("the stored state is %+v, %v", head, err)
				}
			}
		})
	}
}

// The customer gives a key to a runner that has states already. The next plan encrypts the state, also if nothing changes, and
// the control plane keeps no earlier copy that it can open.
func TestStateThatIsOlderThanTheKeyIsEncrypted(t *testing.T) {
	t.Parallel()
	s := plane.New(t, plane.Options{})
	ref := s.Push(map[string]string{"main.tf": exampleModule})
	a := keyless(t, s, "FAIRLEAD_TOFU="+tool(t))
	plan := succeeded(t, s.UntilFinished(s.Queue(planSpec("http", ref))))
	succeeded(t, s.UntilFinished(s.Queue(applySpec("apply", "http", ref, plan))))
	if !strings.Contains(string(s.State("ins_1", "web")), password) {
		t.Fatal("the runner has a key")
	}
	changed := planSpec("http", ref)
	changed.Vars = vars("two")
	early := succeeded(t, s.UntilFinished(s.Queue(changed))) // a plan in clear, which the runner with a key refuses
	end(s, a)
	startKeyed(t, s, "FAIRLEAD_TOFU="+tool(t))

	if f := s.UntilFinished(s.Queue(applySpec("apply", "http", ref, early))).Finish; f.Outcome != "failed" || f.Reason != "plan-elsewhere" || f.Mutated {
		t.Errorf("the apply of a plan in clear: %+v", f)
	}
	same := succeeded(t, s.UntilFinished(s.Queue(planSpec("http", ref))))
	if !same.Finish.Plan.NoOp || !strings.Contains(string(same.Log), "The stored state is not encrypted") || !strings.Contains(string(same.Log), "The stored state is now encrypted") {
		t.Errorf("the next plan: %+v\n%s", same.Finish, same.Log)
	}
	for name, content := range s.Known() {
		if strings.HasPrefix(name, "opened blob state/") && bytes.Contains(content, []byte(password)) {
			t.Errorf("the control plane can still read %s", name)
		}
	}
	next := succeeded(t, s.UntilFinished(s.Queue(changed)))
	if strings.Contains(string(next.Log), "The stored state is") {
		t.Errorf("the plan after it:\n%s", next.Log)
	}
	succeeded(t, s.UntilFinished(s.Queue(applySpec("apply", "http", ref, next))))
}

// A runner that lost its seed, or never had it, must not take the encrypted state for a state without resources: it would
// create everything again.
func TestRunnerWithoutTheSeedRefusesTheState(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]plane.Options{"the tool asks the control plane": {}, "the tool asks a relay": {MaxBody: 16 << 10}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := plane.New(t, o)
			ref := s.Push(map[string]string{"main.tf": exampleModule})
			a := startKeyed(t, s, "FAIRLEAD_TOFU="+tool(t))
			plan := succeeded(t, s.UntilFinished(s.Queue(planSpec("http", ref))))
			succeeded(t, s.UntilFinished(s.Queue(applySpec("apply", "http", ref, plan))))
			stored := s.State("ins_1", "web")
			end(s, a)
			without := keyless(t, s, "FAIRLEAD_TOFU="+tool(t))
			f := s.UntilFinished(s.Queue(planSpec("http", ref))).Finish
			if f.Outcome != "failed" || f.Reason != "install-key-missing" || f.Plan != nil || !strings.Contains(f.Message, "seed") {
				t.Errorf("without a seed: %+v", f)
			}
			end(s, without)
			startKeyed(t, s, "FAIRLEAD_TOFU="+tool(t)) // a new folder, with another seed
			f = s.UntilFinished(s.Queue(planSpec("http", ref))).Finish
			if f.Outcome != "failed" || f.Reason != "install-key-missing" || f.Plan != nil {
				t.Errorf("with another seed: %+v", f)
			}
			if !bytes.Equal(s.State("ins_1", "web"), stored) {
				t.Error("the state has changed")
			}
		})
	}
}

// The customer rotates the seed, or moves to another runner: the new seed is above the old one. The next plan encrypts the
// state for the new key, and the old seed can go.
func TestRotatedSeedEncryptsTheStateAgain(t *testing.T) {
	t.Parallel()
	s := plane.New(t, plane.Options{})
	ref := s.Push(map[string]string{"main.tf": exampleModule})
	old := startKeyed(t, s, "FAIRLEAD_TOFU="+tool(t))
	plan := succeeded(t, s.UntilFinished(s.Queue(planSpec("http", ref))))
	succeeded(t, s.UntilFinished(s.Queue(applySpec("apply", "http", ref, plan))))
	earlier, err := installseed.Read(old.Data)
	if err != nil {
		t.Fatal(err)
	}
	end(s, old)

	fresh := startKeyed(t, s, "FAIRLEAD_TOFU="+tool(t)) // the other runner, with a seed of its own
	path := installseed.Path(fresh.Data)
	own, err := installseed.Read(fresh.Data)
	for tries := 0; own == "" && err == nil && tries < 1; tries++ {
		s.Until("the agent has made its seed", func() bool { _, err := os.Stat(path); return err == nil })
		own, err = installseed.Read(fresh.Data)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.TrimSpace(own)+"\n"+strings.TrimSpace(earlier)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	moved := succeeded(t, s.UntilFinished(s.Queue(planSpec("http", ref))))
	if !moved.Finish.Plan.NoOp || !strings.Contains(string(moved.Log), "an earlier key of the install") {
		t.Errorf("with both seeds: %+v\n%s", moved.Finish, moved.Log)
	}
	if err := os.WriteFile(path, []byte(strings.TrimSpace(own)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if p := succeeded(t, s.UntilFinished(s.Queue(planSpec("http", ref)))).Finish.Plan; !p.NoOp {
		t.Errorf("with the new seed alone: %+v", p)
	}
}

// A hostile control plane stores a state of its own making, encrypted with the install's public key. No apply uses it.
func TestApplyRefusesAStateOfTheControlPlane(t *testing.T) {
	t.Parallel()
	s := plane.New(t, plane.Options{})
	ref := s.Push(map[string]string{"main.tf": exampleModule})
	a := startKeyed(t, s, "FAIRLEAD_TOFU="+tool(t))
	plan := succeeded(t, s.UntilFinished(s.Queue(planSpec("http", ref))))
	succeeded(t, s.UntilFinished(s.Queue(applySpec("apply", "http", ref, plan))))
	changed := planSpec("http", ref)
	changed.Vars = vars("two")
	approved := succeeded(t, s.UntilFinished(s.Queue(changed)))

	keys := keysIn(t, a.Data)
	o, err := statefile.Open(keys, "web", s.State("ins_1", "web"))
	if err != nil {
		t.Fatal(err)
	}
	forged, err := statefile.Seal(keys.Current().Public(), "web", o.State)
	if err != nil {
		t.Fatal(err)
	}
	s.SetState("ins_1", "web", forged)
	f := s.UntilFinished(s.Queue(applySpec("apply", "http", ref, approved))).Finish
	if f.Outcome != "failed" || f.Reason != "encrypted-value-foreign" || f.Mutated {
		t.Errorf("the apply: %+v", f)
	}
	seen := succeeded(t, s.UntilFinished(s.Queue(changed)))
	if !strings.Contains(string(seen.Log), "No step of this customer made the stored state") {
		t.Errorf("the plan does not report the origin of the state:\n%s", seen.Log)
	}
	succeeded(t, s.UntilFinished(s.Queue(applySpec("apply", "http", ref, seen))))
}

// startKeyed starts an agent that makes a seed of install keys in its new data folder.
func startKeyed(t testing.TB, s *plane.Plane, env ...string) *agentProcess {
	t.Helper()
	return startAgent(t, s, "", append(env, "FAIRLEAD_MAKE_INSTALL_KEY=true")...)
}
