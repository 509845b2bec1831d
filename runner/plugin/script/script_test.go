package script_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/plugintest"
	"github.com/fairlead/fairlead/runner/plugin/script"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sources are the artifacts of the tests' specs, by digest.
var sources = map[string]map[string]string{
	"sha256:good":    {"run": "#!/bin/sh\necho ran >&2\n"},
	"sha256:none":    {"main.tf": ""},
	"sha256:plain":   {"run": "echo not executable\n"},
	"sha256:missing": {"run": "#!/no/such/program\n"},
	"sha256:fails":   {"run": "#!/bin/sh\necho tried\nexit 3\n"},
	"sha256:killed":  {"run": "#!/bin/sh\nkill -9 $$\n"},
	"sha256:slow":    {"run": "#!/bin/sh\ntrap 'echo saved; exit 1' INT\necho working\nsleep 100 & wait\n"},
	"sha256:ignores": {"run": "#!/bin/sh\ntrap '' INT\necho working\nsleep 100\n"},
	"sha256:leaves":  {"run": "#!/bin/sh\nsleep 100 &\necho ended\n"},
	"sha256:prints": {"run": `#!/bin/sh
echo "size $FAIRLEAD_VAR_size zones $FAIRLEAD_VAR_zones none ${FAIRLEAD_VAR_none-unset} large ${FAIRLEAD_VAR_large-unset} mine $MINE"
echo "home $HOME tmp $TMPDIR other ${OTHER-unset} passed $PASSED role $ROLE hidden ${HIDDEN-unset}"
cat "$FAIRLEAD_VARS"
printf '{"url": {"value": "db://%s"}, "secret": {"value": "abc", "sensitive": true}, "gone": {"value": null}}' "$1" > "$FAIRLEAD_OUTPUTS"
`},
	"sha256:typed": {"run": `#!/bin/sh
echo '{"number": {"value": 12345678901234567890.5}, "text": {"value": "a\"b", "sensitive": true}, "list": {"value": [1, null, {"a": true}]}, "flag": {"value": false}}' > "$FAIRLEAD_OUTPUTS"
`},
	"sha256:argument": {"run": "#!/bin/sh\necho \"argument $1\"\n"},
	"sha256:b#b":      {"b/run": "#!/bin/sh\ncat ../a/note\n", "a/note": "beside\n"},
}

func spec(op, digest string) plugin.Spec {
	return plugin.Spec{Plugin: script.Name, Operation: op, Install: "ins_1", Component: "web", Job: "job_1", Epoch: 1, Grace: 1,
		Artifact: &events.ArtifactRef{Repository: "apps/shop/web", Digest: digest}}
}

// withSecret returns the spec of an apply with a sensitive variable.
func withSecret(digest string) plugin.Spec {
	s := spec("apply", digest)
	s.Vars = map[string]events.SpecVar{"password": {Value: json.RawMessage(`"never in argv"`), Sensitive: true}}
	return s
}

func newPlugin(string) plugin.Plugin {
	return script.New(script.Config{PassEnv: []string{"PASSED"}, Environ: []string{"PATH=" + os.Getenv("PATH"), "PASSED=p", "OTHER=o", "HIDDEN=h"}})
}

// approved returns the spec with the plan that an apply or destroy needs.
func approved(t *testing.T, s plugin.Spec) plugin.Spec {
	t.Helper()
	plan := s
	plan.Operation = map[string]string{"apply": "plan", "destroy": "plan-destroy", "run": "plan-run"}[s.Operation]
	res, _, err := run(t, t.TempDir(), plan)
	if err != nil {
		t.Fatal(err)
	}
	s.Plan = &events.PlanRef{Job: "job_0", Digest: res.Plan.Digest}
	return s
}

func run(t *testing.T, data string, s plugin.Spec) (plugin.Result, *plugintest.Log, error) {
	t.Helper()
	log := plugintest.NewLog()
	env := plugintest.Env(t, data, "job_1-1", log, sources, s)
	env.Environ = map[string]string{"ROLE": "deploy", "HIDDEN": ""}
	res, err := newPlugin(data).Run(t.Context(), s, env)
	return res, log, err
}

func TestPlugin(t *testing.T) {
	plugintest.Run(t, plugintest.Subject{
		New:      newPlugin,
		Good:     func(int) plugin.Spec { return spec("plan", "sha256:good") },
		Slow:     func(t *testing.T, _ string) plugin.Spec { return approved(t, withSecret("sha256:slow")) },
		Stubborn: func(t *testing.T, _ string) plugin.Spec { return approved(t, withSecret("sha256:ignores")) },
		Outputs: func(t *testing.T, _ string) (plugin.Spec, map[string]wire.FullOutput) {
			return approved(t, spec("apply", "sha256:typed")), map[string]wire.FullOutput{"number": {Value: json.RawMessage("12345678901234567890.5")}, "text": {Value: json.RawMessage(`"a\"b"`), Sensitive: true},
				"list": {Value: json.RawMessage(`[1,null,{"a":true}]`)}, "flag": {Value: json.RawMessage("false")}}
		},
		Sources: sources,
	})
}

// The control plane, the agent and app.yaml know the plugin only through its row in pkg/component.
func TestPluginSupportsTheOperationsOfItsRow(t *testing.T) {
	row, ok := component.Of(script.Name)
	var ops []string
	for _, o := range row.Operations {
		ops = append(ops, string(o.Name))
	}
	got := newPlugin("").Operations()
	slices.Sort(ops)
	slices.Sort(got)
	if !ok || !slices.Equal(ops, got) {
		t.Errorf("the row has operations %v, the plugin %v", ops, got)
	}
}

// A person who can publish an app must not run code in a customer's account before the customer has approved it.
func TestPlanRunsNoVendorCode(t *testing.T) {
	for _, op := range []string{"plan", "plan-destroy", "plan-run"} {
		s := spec(op, "sha256:good")
		s.Vars = map[string]events.SpecVar{"size": {Value: json.RawMessage("2")}, "password": {Value: json.RawMessage(`"s3cret"`), Sensitive: true}}
		s.Env = map[string]string{"MINE": "m"}
		res, log, err := run(t, t.TempDir(), s)
		if err != nil || res.Mutated || strings.Contains(log.String(), "ran") {
			t.Fatalf("%s: result %+v, error %v, log:\n%s", op, res, err, log)
		}
		line := "./run " + map[string]string{"plan": "apply", "plan-destroy": "destroy", "plan-run": "run"}[op]
		for _, want := range []string{line, "sha256:good", "MINE", "FAIRLEAD_VAR_size", "password (sensitive)", "size sha256:"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("%s: the log lacks %q:\n%s", op, want, log)
			}
		}
		if text := log.String() + setOf(t, res); strings.Contains(text, "s3cret") || !strings.Contains(text, `"address":"`+line+`","kind":"script","action":"run"`) || !strings.Contains(text, `"sensitive":["/vars/password"]`) || res.Plan.NoOp || res.Plan.Changes.Run != 1 {
			t.Errorf("%s: log and change set:\n%s", op, text)
		}
	}
}

func TestPlanNamesTheChangedInputs(t *testing.T) {
	vars := map[string]events.SpecVar{"size": {Value: json.RawMessage("2")}, "password": {Value: json.RawMessage(`"s3cret"`), Sensitive: true}}
	for name, tc := range map[string]struct {
		applied *events.Inputs
		noOp    bool
		log     string
		changed string
	}{
		"never applied":     {nil, false, "No earlier run is known", ""},
		"nothing changed":   {&events.Inputs{Source: "sha256:good", Same: map[string]bool{"password": true, "size": true}}, true, "No changes", ""},
		"another source":    {&events.Inputs{Source: "sha256:old", Same: map[string]bool{"password": true, "size": true}}, false, "Changed since the last run: source.", "/source"},
		"a variable is new": {&events.Inputs{Source: "sha256:good"}, false, "Changed since the last run: vars.password, vars.size.", "/vars/password /vars/size"},
	} {
		s := spec("plan", "sha256:good")
		s.Vars, s.Applied = vars, tc.applied
		res, log, err := run(t, t.TempDir(), s)
		if err != nil || res.Plan.NoOp != tc.noOp || (res.Plan.Changes.Run > 0) == tc.noOp || !strings.Contains(log.String(), tc.log) {
			t.Errorf("%s: result %+v, error %v, log:\n%s", name, res.Plan, err, log)
		}
		if set := res.Plan.ChangeSet; tc.noOp != (len(set.Changes) == 0) || !tc.noOp && strings.Join(set.Changes[0].Changed, " ") != tc.changed {
			t.Errorf("%s: change set %s", name, setOf(t, res))
		}
	}
}

// setOf returns the change set as JSON.
func setOf(t *testing.T, res plugin.Result) string {
	t.Helper()
	b, err := json.Marshal(res.Plan.ChangeSet)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func ptr[T any](v T) *T { return &v }

func TestApplyGetsVariablesAndReturnsOutputs(t *testing.T) {
	s := spec("apply", "sha256:prints")
	s.Vars = map[string]events.SpecVar{"size": {Value: json.RawMessage("2.50")}, "zones": {Value: json.RawMessage(`["a"]`)}, "none": {Value: json.RawMessage("null")},
		"large": {Value: json.RawMessage(`"` + strings.Repeat("x", 65<<10) + `"`)}}
	s.Env = map[string]string{"MINE": "m"}
	data := t.TempDir()
	res, log, err := run(t, data, approved(t, s))
	if err != nil || !res.Mutated || res.ExitCode == nil || *res.ExitCode != 0 {
		t.Fatalf("result %+v, error %v, log:\n%s", res, err, log)
	}
	for _, want := range []string{`size 2.50 zones ["a"] none unset large unset mine m`, "/home tmp ", "/tmp other unset passed p role deploy hidden unset", `"none":null`, `"size":2.50`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%.2000s", want, log)
		}
	}
	if len(res.Outputs) != 2 || string(res.Outputs["url"].Value) != `"db://apply"` || !res.Outputs["secret"].Sensitive || res.Outputs["url"].Sensitive {
		t.Errorf("outputs: %v", res.Outputs)
	}
	destroyed, log, err := run(t, t.TempDir(), approved(t, spec("destroy", "sha256:prints")))
	if err != nil || destroyed.Outputs != nil || !destroyed.Mutated {
		t.Errorf("result %+v, error %v, log:\n%s", destroyed, err, log)
	}
}

// The executable can read files that its app ships beside its folder.
// A run of an action starts the executable each time, also with the inputs of an earlier run, and has no outputs.
func TestRunOfAnActionIsNeverUnchanged(t *testing.T) {
	for range 2 {
		s := spec("run", "sha256:argument")
		s.Component = "actions.backup"
		res, log, err := run(t, t.TempDir(), approved(t, s))
		if err != nil || !res.Mutated || len(res.Outputs) != 0 || !strings.Contains(log.String(), "argument run") {
			t.Errorf("the run returns %+v, %v:\n%s", res, err, log)
		}
		plan := s
		plan.Operation = "plan-run"
		applied := events.Inputs{Source: plan.Artifact.Digest}
		plan.Applied = &applied
		if res, _, err := run(t, t.TempDir(), plan); err != nil || res.Plan.NoOp || res.Plan.Changes.Run != 1 {
			t.Errorf("the plan of the run is %+v, %v", res.Plan, err)
		}
	}
	// prints writes outputs, and a run has none.
	if res, _, err := run(t, t.TempDir(), approved(t, spec("run", "sha256:prints"))); err != nil || res.Outputs != nil {
		t.Errorf("a run that writes outputs returns %+v, %v", res.Outputs, err)
	}
	// The plan of an apply does not permit a run.
	s := approved(t, spec("apply", "sha256:argument"))
	s.Operation = "run"
	if res, _, err := run(t, t.TempDir(), s); plugin.ReasonOf(err) != fairlead.ReasonPlanStale || res.Mutated {
		t.Errorf("a run with the plan of an apply returns %+v, %v", res, err)
	}
}

func TestExecutableRunsInItsFolder(t *testing.T) {
	res, log, err := run(t, t.TempDir(), approved(t, spec("apply", "sha256:b#b")))
	if err != nil || !strings.Contains(log.String(), "beside") || len(res.Outputs) != 0 || res.Outputs == nil {
		t.Errorf("result %+v, error %v, log:\n%s", res, err, log)
	}
}

// An input or a version's record may change between an approval and its apply.
func TestApplyRunsOnlyTheApprovedPlan(t *testing.T) {
	base := spec("apply", "sha256:good")
	base.Vars = map[string]events.SpecVar{"size": {Value: json.RawMessage("2")}}
	for name, change := range map[string]func(*plugin.Spec){
		"another source":    func(s *plugin.Spec) { s.Artifact = &events.ArtifactRef{Digest: "sha256:fails"} },
		"another value":     func(s *plugin.Spec) { s.Vars = map[string]events.SpecVar{"size": {Value: json.RawMessage("3")}} },
		"another variable":  func(s *plugin.Spec) { s.Env = map[string]string{"LD_PRELOAD": "x"} },
		"another operation": func(s *plugin.Spec) { s.Operation = "destroy" },
		"a value becomes a secret": func(s *plugin.Spec) {
			s.Vars = map[string]events.SpecVar{"size": {Value: json.RawMessage("2"), Sensitive: true}}
		},
	} {
		s := approved(t, base)
		change(&s)
		res, log, err := run(t, t.TempDir(), s)
		if plugin.ReasonOf(err) != fairlead.ReasonPlanStale || res.Mutated || strings.Contains(log.String(), "ran") {
			t.Errorf("%s: result %+v, error %v, log:\n%s", name, res, err, log)
		}
	}
}

func TestEveryFailureOfAnExecutableHasItsReason(t *testing.T) {
	for name, tc := range map[string]struct {
		digest  string
		reason  fairlead.Reason
		mutated bool
		exit    *int
	}{
		"a failure":             {"sha256:fails", fairlead.ReasonToolFailed, true, ptr(3)},
		"a signal":              {"sha256:killed", fairlead.ReasonToolKilled, true, nil},
		"a missing interpreter": {"sha256:missing", fairlead.ReasonToolMissing, false, nil},
	} {
		res, log, err := run(t, t.TempDir(), approved(t, spec("apply", tc.digest)))
		if plugin.ReasonOf(err) != tc.reason || res.Mutated != tc.mutated || (res.ExitCode == nil) != (tc.exit == nil) || res.ExitCode != nil && *res.ExitCode != *tc.exit || res.Outputs != nil {
			t.Errorf("%s: result %+v, error %v, log:\n%s", name, res, err, log)
		}
	}
	for _, digest := range []string{"sha256:none", "sha256:plain"} {
		if _, _, err := run(t, t.TempDir(), spec("plan", digest)); plugin.ReasonOf(err) != fairlead.ReasonArtifactInvalid {
			t.Errorf("%s: error %v, want artifact-invalid", digest, err)
		}
	}
	if _, _, err := run(t, t.TempDir(), spec("apply", "sha256:good")); plugin.ReasonOf(err) != fairlead.ReasonSpecInvalid {
		t.Errorf("an apply without a plan: error %v, want spec-invalid", err)
	}
	none := spec("plan", "")
	none.Artifact = nil
	if _, _, err := run(t, t.TempDir(), none); plugin.ReasonOf(err) != fairlead.ReasonSpecInvalid {
		t.Errorf("a plan without an artifact: error %v, want spec-invalid", err)
	}
}

func TestUnusableOutputsFailTheJob(t *testing.T) {
	for name, tc := range map[string]struct {
		write  string
		reason fairlead.Reason
	}{
		"not JSON":            {`echo no > "$FAIRLEAD_OUTPUTS"`, fairlead.ReasonToolFailed},
		"a plain value":       {`echo '{"a": 1}' > "$FAIRLEAD_OUTPUTS"`, fairlead.ReasonToolFailed},
		"an unknown field":    {`echo '{"a": {"value": 1, "senstive": true}}' > "$FAIRLEAD_OUTPUTS"`, fairlead.ReasonToolFailed},
		"two objects":         {`echo '{}{}' > "$FAIRLEAD_OUTPUTS"`, fairlead.ReasonToolFailed},
		"an invalid name":     {`echo '{"a b": {"value": 1}}' > "$FAIRLEAD_OUTPUTS"`, fairlead.ReasonToolFailed},
		"a link":              {`ln -s /etc/passwd "$FAIRLEAD_OUTPUTS"`, fairlead.ReasonToolFailed},
		"a pipe":              {`mkfifo "$FAIRLEAD_OUTPUTS"`, fairlead.ReasonToolFailed},
		"more than the limit": {`head -c 18000000 /dev/zero > "$FAIRLEAD_OUTPUTS"`, fairlead.ReasonOutputsTooLarge},
		"an empty file":       {`: > "$FAIRLEAD_OUTPUTS"`, fairlead.ReasonToolFailed},
	} {
		digest := "sha256:" + name
		sources[digest] = map[string]string{"run": "#!/bin/sh\n" + tc.write + "\n"}
		res, log, err := run(t, t.TempDir(), approved(t, spec("apply", digest)))
		// The apply has made its changes: its report must not look like that of a job that did not start or was lost.
		if plugin.ReasonOf(err) != tc.reason || res.Outputs != nil || !res.Mutated || res.ExitCode == nil {
			t.Errorf("%s: result %+v, error %v, log:\n%s", name, res, err, log)
		}
	}
}

// interrupt runs the apply of a source, cancels it once the source writes "working", and returns the result.
func interrupt(t *testing.T, digest string) (plugin.Result, *plugintest.Log, error) {
	t.Helper()
	s := approved(t, spec("apply", digest))
	log := plugintest.NewLog()
	data := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	working := make(chan struct{})
	env := plugintest.Env(t, data, "job_1-1", log, sources, s)
	var once sync.Once
	env.Log = callOnText{log, "working", func() { once.Do(func() { close(working) }) }}
	go func() { <-working; cancel() }()
	res, err := newPlugin(data).Run(ctx, s, env)
	return res, log, err
}

func TestInterruptedExecutableCanSave(t *testing.T) {
	res, log, err := interrupt(t, "sha256:slow")
	if !errors.Is(err, context.Canceled) || !res.Mutated || res.ExitCode == nil || *res.ExitCode != 1 || !strings.Contains(log.String(), "saved") {
		t.Errorf("result %+v, error %v, log:\n%s", res, err, log)
	}
}

func TestExecutableIsKilledAfterItsGrace(t *testing.T) {
	res, log, err := interrupt(t, "sha256:ignores")
	if !errors.Is(err, context.Canceled) || !res.Mutated || res.ExitCode != nil {
		t.Errorf("result %+v, error %v, log:\n%s", res, err, log)
	}
}

// A leftover process would run beside the component's next job.
func TestLeftoverProcessesOfAnExecutableAreKilled(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: this test reads processes from /proc")
	}
	data := t.TempDir()
	if res, log, err := run(t, data, approved(t, spec("apply", "sha256:leaves"))); err != nil || !strings.Contains(log.String(), "ended") {
		t.Fatalf("result %+v, error %v, log:\n%s", res, err, log)
	}
	all, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range all {
		if at, err := os.Readlink(link); err == nil && strings.HasPrefix(at, data) {
			t.Errorf("process %s still runs in %s", link, at)
		}
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
