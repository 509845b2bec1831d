package program_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/pluginprotocol"
	"github.com/fairlead/fairlead/pkg/pluginprotocol/serve"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/planstore"
	"github.com/fairlead/fairlead/runner/plugin/plugintest"
	"github.com/fairlead/fairlead/runner/plugin/program"
	"github.com/fairlead/fairlead/runner/workspace"
	"github.com/fairlead/fairlead/tools/shortrun"
)

// asPlugin makes this test's program the plugin of the tests, which keeps a greeting in a file.
const asPlugin = "FAIRLEAD_TEST_AS_PLUGIN"

func TestMain(m *testing.M) {
	if os.Getenv(asPlugin) != "" {
		serve.Main(serve.Plugin{Name: "greeting", Version: "1.0.0", Operations: map[pluginprotocol.Operation]serve.Handler{
			pluginprotocol.Plan: planGreeting, pluginprotocol.PlanDestroy: planGreeting, pluginprotocol.Apply: applyGreeting, pluginprotocol.Destroy: applyGreeting}})
	}
	goleak.VerifyTestMain(m)
}

// greetingPlan is the saved plan of the tests' plugin.
type greetingPlan struct{ File, Text, Mode, Password string }

func planGreeting(_ context.Context, req pluginprotocol.Request, out *serve.Emitter) error {
	var p greetingPlan
	for name, to := range map[string]*string{"file": &p.File, "text": &p.Text, "mode": &p.Mode, "password": &p.Password} {
		if v, ok := req.Vars[name]; ok {
			if err := json.Unmarshal(v.Value, to); err != nil {
				return serve.Fail(fairlead.ReasonSpecInvalid, "the variable %s is no text", name)
			}
		}
	}
	fmt.Fprintf(os.Stderr, "compare %s for %s %s\n", p.File, req.Component, p.Password)
	exists, err := os.ReadFile(p.File)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	same := err == nil && string(exists) == p.Text
	if p.Mode == "" && same {
		out.NoOp()
		out.Output("text", p.Text, false)
	} else {
		c := changeset.Change{Address: "greeting " + p.Password, Kind: "file", Action: changeset.Create, After: map[string]any{"text": p.Text, "password": p.Password}}
		if err := out.Section("compare", func() error {
			return errors.Join(out.Base(changeset.Base{Lineage: "l" + p.Password, Revision: 3}), out.Change(c))
		}); err != nil {
			return err
		}
	}
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return os.WriteFile(req.Plan, b, 0o600)
}

func applyGreeting(ctx context.Context, req pluginprotocol.Request, out *serve.Emitter) error {
	var p greetingPlan
	b, err := os.ReadFile(req.Plan)
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err == nil {
		err = out.Mutating()
	}
	if err != nil {
		return err
	}
	if p.Mode == "slow" {
		fmt.Fprintln(os.Stderr, "working")
		<-ctx.Done()
		fmt.Fprintln(os.Stderr, "saved")
		return ctx.Err()
	}
	if err := os.WriteFile(p.File, []byte(p.Text), 0o600); err != nil {
		return err
	}
	return errors.Join(out.Output("text", p.Text, false), out.Output("number", json.Number("12345678901234567890.5"), false), out.Output("flag", true, false), out.Output("none", nil, false),
		out.Output("list", []any{1, nil, map[string]any{"a": "é"}}, true), out.Output("connection", "greeting://"+p.Password, false))
}

// sources are the artifacts of the tests' specs, by digest.
var sources = map[string]map[string]string{"sha256:greeting": {"plugin": wrapper()}}

// wrapper returns a script that starts this test's program as a plugin.
func wrapper() string {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return "#!/bin/sh\n" + asPlugin + "=1 exec '" + self + "'\n"
}

// shell returns the digest of a source whose plugin runs shell commands after it has read its request.
func shell(commands string) string {
	digest := plugin.Digest([]byte(commands))
	sources[digest] = map[string]string{"plugin": "#!/bin/sh\nread -r request\n" + commands + "\n"}
	return digest
}

func thirdParty() component.Type {
	t, _ := component.Of("plugin")
	return t
}

func newPlugin(data string) plugin.Plugin { return newOf(thirdParty(), data, "") }

func newOf(kind component.Type, data, folder string) plugin.Plugin {
	return program.New(kind, program.Config{Folder: folder, Environ: []string{"PATH=" + os.Getenv("PATH"), "SECRET_OF_THE_RUNNER=x"},
		OpenPlans: func(context.Context, plugin.Spec, plugin.Env) (planstore.Store, func(), error) {
			return planstore.OnDisk(data), func() {}, nil
		}})
}

func spec(op, digest string) plugin.Spec {
	return plugin.Spec{Plugin: "plugin", Operation: op, Install: "ins_1", InstallName: "acme", Component: "web", Job: "job_1", Epoch: 1, Grace: 1,
		Artifact: &events.ArtifactRef{Repository: "apps/shop/web", Digest: digest}, State: &events.StateRef{Storage: "local", Key: "ins_1/web"}}
}

// withVars returns the spec with variables that are texts. The password is sensitive.
func withVars(s plugin.Spec, vars map[string]string) plugin.Spec {
	s.Vars = map[string]events.SpecVar{}
	for name, value := range vars {
		raw, err := json.Marshal(value)
		if err != nil {
			panic(err)
		}
		s.Vars[name] = events.SpecVar{Value: raw, Sensitive: name == "password"}
	}
	return s
}

func run(t *testing.T, data string, s plugin.Spec) (plugin.Result, *plugintest.Log, error) {
	t.Helper()
	log := plugintest.NewLog()
	env := plugintest.Env(t, data, string(s.Job)+"-1", log, sources, s)
	res, err := newPlugin(data).Run(t.Context(), s, env)
	if err := workspace.Remove(data, string(s.Job)+"-1"); err != nil {
		t.Fatal(err)
	}
	return res, log, err
}

// approved plans the spec, and returns the spec of the apply or destroy of that plan.
func approved(t *testing.T, data string, s plugin.Spec, op string) plugin.Spec {
	t.Helper()
	res, log, err := run(t, data, s)
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	s.Plan = &events.PlanRef{Job: s.Job, Digest: res.Plan.Digest}
	s.Job, s.Operation = "job_2", op
	return s
}

// savedBy returns the digest of a source whose plan succeeds, and whose apply runs shell commands.
func savedBy(apply string) string {
	return shell(`case "$request" in
*'"operation":"plan"'*)
	plan=${request##*'"plan":"'}; plan=${plan%%'"'*}
	echo planned > "$plan"
	echo '{"event":"change","change":{"address":"a","action":"create"}}'; echo '{"event":"finished"}';;
*)
	` + apply + `;;
esac`)
}

func TestPlugin(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "greet"), []byte(wrapper()), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, kind := range map[string]component.Type{"a program in the source": thirdParty(), "a program of the runner": {Name: "plugin", Protocol: true, Program: "greet"}} {
		t.Run(name, func(t *testing.T) {
			cloud := t.TempDir()
			of := func(data string) plugin.Plugin { return newOf(kind, data, folder) }
			plugintest.Run(t, plugintest.Subject{
				New: of,
				Good: func(n int) plugin.Spec {
					s := withVars(spec("plan", "sha256:greeting"), map[string]string{"file": filepath.Join(cloud, fmt.Sprint(n)), "text": "hello"})
					s.Job, s.State = fairlead.JobID(fmt.Sprintf("job_%d", n)), &events.StateRef{Storage: "local", Key: fmt.Sprintf("ins_%d/web", n)}
					return s
				},
				Slow: func(t *testing.T, data string) plugin.Spec {
					return approved(t, data, withVars(spec("plan", "sha256:greeting"), map[string]string{"file": filepath.Join(cloud, "slow"), "mode": "slow", "password": "never in argv"}), "apply")
				},
				Stubborn: func(t *testing.T, data string) plugin.Spec {
					if kind.Program != "" {
						return approved(t, data, withVars(spec("plan", "sha256:greeting"), map[string]string{"file": filepath.Join(cloud, "slow"), "mode": "slow", "password": "never in argv"}), "apply")
					}
					return approved(t, data, withVars(spec("plan", savedBy("trap '' INT TERM; (trap '' INT; sleep 1000) & echo working >&2; while :; do sleep 1000; done")), map[string]string{"password": "never in argv"}), "apply")
				},
				Outputs: func(t *testing.T, data string) (plugin.Spec, map[string]wire.FullOutput) {
					s := approved(t, data, withVars(spec("plan", "sha256:greeting"), map[string]string{"file": filepath.Join(cloud, "outputs"), "text": "hello", "password": "s3cret-password"}), "apply")
					return s, map[string]wire.FullOutput{"text": {Value: json.RawMessage(`"hello"`)}, "number": {Value: json.RawMessage("12345678901234567890.5")}, "flag": {Value: json.RawMessage("true")},
						"list": {Value: json.RawMessage(`[1,null,{"a":"é"}]`), Sensitive: true}, "connection": {Value: json.RawMessage(`"greeting://s3cret-password"`), Sensitive: true}}
				},
				Sources: sources,
			})
		})
	}
}

// The control plane, the agent and app.yaml know the plugin only through its row in pkg/component.
func TestPluginSupportsTheOperationsOfItsRow(t *testing.T) {
	var ops []string
	for _, o := range thirdParty().Operations {
		ops = append(ops, string(o.Name))
	}
	got := newPlugin("").Operations()
	slices.Sort(ops)
	slices.Sort(got)
	if !slices.Equal(ops, got) {
		t.Errorf("the row has operations %v, the plugin %v", ops, got)
	}
}

func TestPlannedChangeIsAppliedAndDestroyed(t *testing.T) {
	data, file := t.TempDir(), filepath.Join(t.TempDir(), "greeting")
	s := withVars(spec("plan", "sha256:greeting"), map[string]string{"file": file, "text": "hello"})
	res, log, err := run(t, data, s)
	if err != nil || res.Mutated || res.Plan.NoOp || res.Plan.Changes.Add != 1 || res.Plan.ChangeSet.Base.Revision != 3 || !strings.Contains(log.String(), "compare "+file) {
		t.Fatalf("result %+v, error %v, log:\n%s", res, err, log)
	}
	again, _, err := run(t, data, s)
	if err != nil || again.Plan.Digest != res.Plan.Digest {
		t.Errorf("the second plan is %+v, error %v", again.Plan, err)
	}
	res, log, err = run(t, data, approved(t, data, s, "apply"))
	if b, rerr := os.ReadFile(file); err != nil || !res.Mutated || res.ExitCode == nil || *res.ExitCode != 0 || rerr != nil || string(b) != "hello" {
		t.Fatalf("result %+v, error %v, file %q (%v), log:\n%s", res, err, b, rerr, log)
	}
	if left, err := os.ReadDir(filepath.Join(data, "plans")); err != nil || len(left) != 0 {
		t.Errorf("the applied plan is kept: %v, %v", left, err)
	}
	res, _, err = run(t, data, s)
	if err != nil || !res.Plan.NoOp || string(res.Outputs["text"].Value) != `"hello"` {
		t.Errorf("the plan after the apply: %+v, error %v", res, err)
	}
	s.Operation = "plan-destroy"
	s.Vars["text"] = events.SpecVar{Value: json.RawMessage(`"gone"`)}
	if res, _, err = run(t, data, approved(t, data, s, "destroy")); err != nil || res.Outputs != nil || !res.Mutated {
		t.Errorf("the destroy: %+v, error %v", res, err)
	}
}

// The program gets nothing of the runner's environment that the operator does not pass on.
func TestProgramGetsOnlyItsEnvironment(t *testing.T) {
	s := spec("plan", shell(`env >&2; pwd >&2; echo "$request" >&2; echo '{"event":"failed","reason":"tool-failed","message":"no"}'; exit 1`))
	s.Env = map[string]string{"OF_THE_SPEC": "y"}
	_, log, _ := run(t, t.TempDir(), s)
	for text, want := range map[string]bool{"SECRET_OF_THE_RUNNER": false, "OF_THE_SPEC=y": true, "/home\n": true, "/src\n": true, `"operation":"plan"`: true, `"install_name":"acme"`: true} {
		if strings.Contains(log.String(), text) != want {
			t.Errorf("%q in the log: %v, want %v:\n%s", text, !want, want, log)
		}
	}
}

// A program is not trusted to keep the protocol: each way to break it is a typed failure with advice, and a job that may have changed
// something is marked so.
func TestEveryViolationHasItsReason(t *testing.T) {
	shortrun.OneDayIn(t, 3, 0)
	const mutating, finished = `echo '{"event":"mutating"}'; `, `echo '{"event":"finished"}'`
	for name, tc := range map[string]struct {
		op, commands string
		reason       fairlead.Reason
		mutated      bool
	}{
		"nonsense":                                   {"plan", "echo planning...", fairlead.ReasonPluginProtocol, false},
		"nonsense that does not end":                 {"plan", "while :; do echo planning...; done", fairlead.ReasonPluginProtocol, false},
		"an endless line":                            {"plan", "tr '\\0' x < /dev/zero", fairlead.ReasonPluginProtocol, false},
		"a flood of allowed events":                  {"plan", `yes '{"event":"x","optional":true}'`, fairlead.ReasonPluginProtocol, false},
		"no last event":                              {"plan", "exit 0", fairlead.ReasonPluginProtocol, false},
		"an event after the last one":                {"plan", `echo plan > "${request##*plan\":\"}" 2>/dev/null; ` + finished + "; " + finished, fairlead.ReasonPluginProtocol, false},
		"a plan without a saved plan":                {"plan", finished, fairlead.ReasonPluginProtocol, false},
		"a change set in an apply":                   {"apply", `echo '{"event":"change","change":{"address":"a","action":"create"}}'`, fairlead.ReasonPluginProtocol, true},
		"a broken apply without mutating":            {"apply", "echo nonsense", fairlead.ReasonPluginProtocol, true},
		"an output that ends in a line":              {"apply", mutating + finished + `; printf '{'`, fairlead.ReasonPluginProtocol, true},
		"finished and another exit code":             {"apply", mutating + finished + "; exit 3", fairlead.ReasonPluginProtocol, true},
		"a refused version":                          {"apply", `echo '{"event":"failed","reason":"spec-version","message":"only 2"}'`, fairlead.ReasonPluginProtocol, false},
		"an early exit":                              {"apply", "exit 3", fairlead.ReasonToolFailed, true},
		"an early exit of a plan":                    {"plan", "exit 3", fairlead.ReasonToolFailed, false},
		"a crash":                                    {"apply", "kill -9 $$", fairlead.ReasonToolKilled, true},
		"a crash in a line":                          {"apply", "printf '{'; kill -9 $$", fairlead.ReasonToolKilled, true},
		"a crash after finished":                     {"apply", mutating + finished + "; kill -9 $$", fairlead.ReasonToolKilled, true},
		"a failure before mutating":                  {"apply", `echo '{"event":"failed","reason":"plan-stale","message":"revision 4"}'; exit 1`, fairlead.ReasonPlanStale, false},
		"a failure after mutating":                   {"apply", mutating + `echo '{"event":"failed","reason":"plan-stale","message":"revision 4"}'; exit 1`, fairlead.ReasonToolFailed, true},
		"objects that are not ready, after mutating": {"apply", mutating + `echo '{"event":"failed","reason":"not-ready","message":"web"}'; exit 1`, fairlead.ReasonNotReady, true},
		"an unknown reason":                          {"apply", `echo '{"event":"failed","reason":"too-hot","message":"no"}'; exit 1`, fairlead.ReasonToolFailed, false},
		"canceled by itself":                         {"plan", `echo '{"event":"failed","reason":"canceled","message":"no"}'; exit 1`, fairlead.ReasonToolFailed, false},
		"a full disk":                                {"apply", `echo '{"event":"failed","reason":"disk-full","message":"no"}'; exit 1`, fairlead.ReasonDiskFull, false},
		"outputs that are too large":                 {"apply", mutating + `echo '{"event":"failed","reason":"outputs-too-large","message":"no"}'; exit 1`, fairlead.ReasonOutputsTooLarge, true},
		"an interpreter that does not exist":         {"start", "", fairlead.ReasonToolMissing, false},
	} {
		t.Run(name, func(t *testing.T) {
			data := t.TempDir()
			s := spec("plan", "")
			switch tc.op {
			case "plan":
				s.Artifact = &events.ArtifactRef{Digest: shell(tc.commands)}
			case "apply":
				s.Artifact = &events.ArtifactRef{Digest: savedBy(tc.commands)}
				s = approved(t, data, s, "apply")
			case "start":
				sources["sha256:missing"] = map[string]string{"plugin": "#!/no/such/program\n"}
				s.Artifact = &events.ArtifactRef{Digest: "sha256:missing"}
			}
			res, log, err := run(t, data, s)
			if plugin.ReasonOf(err) != tc.reason || res.Mutated != tc.mutated || res.Plan != nil || res.Outputs != nil {
				t.Errorf("result %+v, error %v, log:\n%.1000s", res, err, log)
			}
			if tc.op != "apply" {
				if left, _ := os.ReadDir(filepath.Join(data, "plans")); len(left) > 0 {
					t.Errorf("the failed plan is stored: %v", left)
				}
			}
			if (tc.reason == fairlead.ReasonDiskFull) != res.DiskFull {
				t.Errorf("the full disk is reported as %v", res.DiskFull)
			}
		})
	}
}

// A plan that is interrupted half-way, also one that has already written its file, must not be there for an apply.
func TestInterruptedPlanStoresNothing(t *testing.T) {
	data := t.TempDir()
	s := spec("plan", shell(`plan=${request##*'"plan":"'}; plan=${plan%%'"'*}
echo planned > "$plan"
trap 'echo "{\"event\":\"finished\"}"; exit 0' INT
echo working >&2
while :; do read -r cancel || sleep 1000 & wait; done`))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	log := plugintest.NewLog()
	env := plugintest.Env(t, data, "job_1-1", log, sources, s)
	env.Log = callOnText{log, "working", cancel}
	res, err := newPlugin(data).Run(ctx, s, env)
	if !errors.Is(err, context.Canceled) || res.Plan != nil {
		t.Errorf("result %+v, error %v, log:\n%s", res, err, log)
	}
	if left, _ := os.ReadDir(filepath.Join(data, "plans")); len(left) > 0 {
		t.Errorf("the interrupted plan is stored: %v", left)
	}
}

// The cancel line comes before the interrupt, and a program that handles it ends in order.
func TestCancelIsSentBeforeTheInterrupt(t *testing.T) {
	data := t.TempDir()
	s := approved(t, data, spec("plan", savedBy(`trap '' INT; echo '{"event":"mutating"}'; echo working >&2; read -r cancel; echo "got $cancel" >&2; echo '{"event":"failed","reason":"canceled","message":"stopped at 3 of 5"}'; exit 1`)), "apply")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	log := plugintest.NewLog()
	env := plugintest.Env(t, data, "job_2-1", log, sources, s)
	env.Log = callOnText{log, "working", cancel}
	res, err := newPlugin(data).Run(ctx, s, env)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "stopped at 3 of 5") || !res.Mutated || !strings.Contains(log.String(), `got {"cancel":{"reason":"canceled"}}`) {
		t.Errorf("result %+v, error %v, log:\n%s", res, err, log)
	}
}

// callOnText calls then after every write while the log contains a text.
type callOnText struct {
	*plugintest.Log
	text string
	then func()
}

func (w callOnText) Write(p []byte) (int, error) {
	n, err := w.Log.Write(p)
	if strings.Contains(w.String(), w.text) {
		w.then()
	}
	return n, err
}

// A person approves a digest. Only the plan with this digest is applied, and only to the component and with the program for which it
// was made.
func TestOnlyTheApprovedPlanIsApplied(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(data string, s *plugin.Spec)
		reason fairlead.Reason
	}{
		"another digest": {func(_ string, s *plugin.Spec) { s.Plan.Digest = plugin.Digest([]byte("x")) }, fairlead.ReasonPlanDigest},
		"another file": {func(data string, _ *plugin.Spec) {
			os.WriteFile(filepath.Join(data, "plans", "job_1", "plan"), []byte("x"), 0o600)
		}, fairlead.ReasonPlanDigest},
		"no file":           {func(data string, _ *plugin.Spec) { os.RemoveAll(filepath.Join(data, "plans")) }, fairlead.ReasonPlanMissing},
		"another program":   {func(_ string, s *plugin.Spec) { s.Artifact = &events.ArtifactRef{Digest: shell("exit 0")} }, fairlead.ReasonPlanStale},
		"another component": {func(_ string, s *plugin.Spec) { s.Component = "db" }, fairlead.ReasonPlanStale},
		"another install":   {func(_ string, s *plugin.Spec) { s.Install = "ins_2" }, fairlead.ReasonPlanStale},
		"another operation": {func(_ string, s *plugin.Spec) { s.Operation = "destroy" }, fairlead.ReasonPlanStale},
		"an older runner's plan": {func(data string, s *plugin.Spec) {
			os.WriteFile(filepath.Join(data, "plans", "job_1", "plan"), []byte("x"), 0o600)
			s.Plan.Digest = plugin.Digest([]byte("x"))
		}, fairlead.ReasonPlanElsewhere},
		"no storage":  {func(_ string, s *plugin.Spec) { s.State = nil }, fairlead.ReasonSpecInvalid},
		"no plan":     {func(_ string, s *plugin.Spec) { s.Plan = nil }, fairlead.ReasonSpecInvalid},
		"no artifact": {func(_ string, s *plugin.Spec) { s.Artifact = nil }, fairlead.ReasonSpecInvalid},
	} {
		data, file := t.TempDir(), filepath.Join(t.TempDir(), "greeting")
		s := approved(t, data, withVars(spec("plan", "sha256:greeting"), map[string]string{"file": file, "text": "hello"}), "apply")
		tc.change(data, &s)
		res, log, err := run(t, data, s)
		if _, serr := os.Stat(file); plugin.ReasonOf(err) != tc.reason || res.Mutated || serr == nil {
			t.Errorf("%s: result %+v, error %v, file %v, log:\n%s", name, res, err, serr, log)
		}
	}
}

// A plugin of a third party may forget to mask.
func TestSecretsOfAProgramAreMaskedAgain(t *testing.T) {
	const secret = "s3cret/pass\"phrase"
	s := withVars(spec("plan", "sha256:greeting"), map[string]string{"file": filepath.Join(t.TempDir(), "greeting"), "text": "for " + secret, "password": secret})
	data, log := t.TempDir(), plugintest.NewLog()
	res, err := newPlugin(data).Run(t.Context(), s, plugintest.Env(t, data, "job_1-1", log, sources, s))
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	b, err := json.Marshal(res)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"s3cret", "phrase"} {
		if strings.Contains(string(b), part) || strings.Contains(log.String(), part) {
			t.Errorf("%q is shown in\n%s\n%s", part, b, log)
		}
	}
	if c := res.Plan.ChangeSet.Changes[0]; !slices.Equal(c.Sensitive, []string{"/password", "/text"}) {
		t.Errorf("the sensitive values are %v", c.Sensitive)
	}
	failing := withVars(spec("plan", shell(`echo '{"event":"failed","reason":"tool-failed","message":"cannot log in with hunter2-hunter2"}'; exit 1`)), map[string]string{"password": "hunter2-hunter2"})
	if _, _, err := run(t, data, failing); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error shows the secret: %v", err)
	}
}

func TestMissingProgramNamesWhatToInstall(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "plain"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"absent", "plain"} {
		data, s := t.TempDir(), spec("plan", "sha256:greeting")
		res, err := newOf(component.Type{Name: "helm", Protocol: true, Program: name}, data, folder).Run(t.Context(), s, plugintest.Env(t, data, "job_1-1", plugintest.NewLog(), sources, s))
		if plugin.ReasonOf(err) != fairlead.ReasonToolMissing || res.Mutated || !strings.Contains(err.Error(), filepath.Join(folder, name)) || !strings.Contains(err.Error(), "FAIRLEAD_PLUGINS") {
			t.Errorf("%s: result %+v, error %v", name, res, err)
		}
	}
	for digest, files := range map[string]map[string]string{"sha256:none": {"README": ""}, "sha256:plain": {"plugin": "text"}} {
		sources[digest] = files
		if _, _, err := run(t, t.TempDir(), spec("plan", digest)); plugin.ReasonOf(err) != fairlead.ReasonArtifactInvalid {
			t.Errorf("%s: error %v, want artifact-invalid", digest, err)
		}
	}
}

// An apply gets the saved plan and nothing else that could change what was approved.
func TestApplyGetsNoVariables(t *testing.T) {
	data := t.TempDir()
	s := approved(t, data, withVars(spec("plan", savedBy(`echo "$request" >&2; echo '{"event":"finished"}'`)), map[string]string{"text": "hello"}), "apply")
	s = withVars(s, map[string]string{"text": "other"})
	_, log, err := run(t, data, s)
	if err != nil || !strings.Contains(log.String(), `"operation":"apply"`) || strings.Contains(log.String(), "vars") || strings.Contains(log.String(), "other") || strings.Contains(log.String(), `"source"`) {
		t.Errorf("error %v, request:\n%s", err, log)
	}
}

func TestSectionsBecomeMarks(t *testing.T) {
	data, log := t.TempDir(), plugintest.NewLog()
	s := spec("plan", shell(`echo '{"event":"section","name":"diff","state":"begin"}'; echo '{"event":"section","name":"diff","state":"end"}'; echo '{"event":"section","name":"save","state":"begin"}'; exit 1`))
	env := plugintest.Env(t, data, "job_1-1", log, sources, s)
	var marks []string
	env.Mark = func(m wire.LogMark) { marks = append(marks, fmt.Sprintf("%s %v %v", m.Section, m.End, m.Failed)) }
	newPlugin(data).Run(t.Context(), s, env)
	if want := []string{"diff false false", "diff true false", "save false false", "save true true"}; !slices.Equal(marks, want) {
		t.Errorf("the marks are %v, want %v", marks, want)
	}
}
