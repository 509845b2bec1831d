package control_test

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
	"github.com/fairlead/fairlead/tools/israce"
	"github.com/fairlead/fairlead/tools/shortrun"
)

// text returns a JSON string that repeats c. The string with its quotes has n bytes.
func text(c string, n int) json.RawMessage {
	return json.RawMessage(`"` + strings.Repeat(c, n-2) + `"`)
}

// largeOutputs applies components whose outputs are too large for a record. The apply must
// succeed, and the component must not be unknown.
func largeOutputs(p *plane) {
	t := p.t
	p.publish(shop)
	p.install("acme")
	largest := 5_000_000
	if israce.On {
		largest = 500_000 // the race detector makes JSON ten times slower; each check also runs 5 MB without it
	}
	for i, tt := range []struct {
		name       string
		id, secret json.RawMessage // id is an output of network, secret is an output of database; other components get both outputs as variables
		inBlobs    int             // the number of blobs that contain these outputs, or variables with their values
	}{
		{"100 bytes", text("a", 100), text("s", 100), 0},
		{"400 KB", text("b", 400_000), text("t", 100), 3}, // one blob with the outputs of network, and two blobs with the variables of two other components
		{"1 MB and 5 MB", text("c", 1_000_000), text("u", largest), 5},
		{"100 bytes again", text("d", 100), text("v", 100), 0},
	} {
		p.outputs = map[string]map[string]control.Output{"network": {"id": {Value: tt.id}}, "database": {"secret": {Value: tt.secret, Sensitive: true}}}
		p.cloud = map[string]string{} // the cloud is empty, so all components are applied again
		given := map[string]json.RawMessage{}
		p.stepFault = func(s events.JobSpec) stepFault {
			if s.Operation == "apply" {
				for name, v := range s.Vars {
					given[s.Component+"."+name] = v.Value
				}
			}
			return none
		}
		id := p.deploy("acme", control.NewDeployment{AutoApprove: true, Refresh: true}, "large-"+string(rune('0'+i)))
		p.work()
		p.expect(id, deployment.Succeeded, "network=applied cache=applied database=applied web=applied")
		if !bytes.Equal(given["cache.net"], tt.id) || !bytes.Equal(given["web.db"], tt.secret) {
			t.Errorf("%s: other components get %d and %d bytes, want %d and %d", tt.name, len(given["cache.net"]), len(given["web.db"]), len(tt.id), len(tt.secret))
		}
		shown, err := p.Outputs(p.ctx, org, "acme", true)
		if err != nil || !bytes.Equal(shown["network"]["id"].Value, tt.id) || !bytes.Equal(shown["database"]["secret"].Value, tt.secret) || !shown["database"]["secret"].Sensitive {
			t.Errorf("%s: the outputs are not those of the tool: %v", tt.name, err)
		}
		if hidden, err := p.Outputs(p.ctx, org, "acme", false); err != nil || hidden["database"]["secret"].Value != nil {
			t.Errorf("%s: a sensitive output is shown, %v", tt.name, err)
		}
		unnamed, err := p.CollectBlobs(p.ctx, nil) // the first call lists the blobs that were replaced, and the second call deletes them
		p.must("collect", func() error { _, err := p.CollectBlobs(p.ctx, unnamed); return err })
		kept := p.blobs("values/")
		if err != nil || len(kept) != tt.inBlobs {
			t.Errorf("%s: the blobs are %q, want %d, %v", tt.name, kept, tt.inBlobs, err)
		}
		for _, k := range kept {
			if b, err := p.Blobs.Get(p.ctx, k); err != nil || bytes.Contains(b, bytes.Repeat([]byte{tt.secret[1]}, 50)) || bytes.Contains(b, bytes.Repeat([]byte{tt.id[1]}, 50)) {
				t.Errorf("%s: the blob %s is not sealed, %v", tt.name, k, err)
			}
		}
	}
}

func TestLargeOutputsInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { largeOutputs(newPlane(t, enginetest.Memory())) })
}

func TestLargeOutputsOnSQLite(t *testing.T) {
	t.Parallel()
	c := newClock()
	largeOutputs(newPlaneAt(t, sqliteTable(t), c.now, c.sleep))
}

func TestLargeOutputsOnDynamoDB(t *testing.T) {
	shortrun.OneDayIn(t, 2, 1)
	t.Parallel()
	c := newClock()
	largeOutputs(newPlaneAt(t, dynamoTable(t, "outputs"), c.now, c.sleep))
}

// If the outputs of an apply are too large, the apply has changed the component
// nevertheless. So the component is present, has the new version and has no outputs.
func TestComponentWithTooLargeOutputsIsPresent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.install("acme")
		p.outputs = map[string]map[string]control.Output{"network": {"id": {Value: text("a", 100_000)}}}
		p.deploy("acme", control.NewDeployment{AutoApprove: true}, "before")
		p.work()
		p.cloud = map[string]string{}
		id, j, h := p.applying("acme")
		err := p.FinishJob(p.ctx, h, control.Report{Outcome: control.OutcomeSucceeded, Mutated: true, ExitCode: new(int),
			Outputs: map[string]control.Output{"id": {Value: text("a", job.MaxOutputs)}}})
		if fairlead.CodeOf(err) != "outputs-too-large" || fairlead.KindOf(err) != fairlead.KindTooLarge {
			t.Fatalf("outputs above the limit: %v", err)
		}
		p.must("finish", func() error {
			return p.FinishJob(p.ctx, h, control.Report{Outcome: control.OutcomeFailed, Reason: fairlead.ReasonOutputsTooLarge, Mutated: true, ExitCode: new(int)})
		})
		version := p.deployment(j.Deployment).Version
		k, err := p.Store.Component(p.ctx, j.Install, "network")
		if err != nil || k.V.State != store.Present || k.V.Version != version || k.V.Outputs != nil || k.V.OutputsBlob != "" {
			t.Errorf("the component is %s of version %s with outputs %q, %v; want present, of %s, without outputs", k.V.State, k.V.Version, k.V.OutputsBlob, err, version)
		}
		_, text := p.situation(id)
		for _, want := range []string{"The change succeeded", "Make the component's outputs smaller"} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is not in the message:\n%s", want, text)
			}
		}
	})
}

// A teardown deletes the blobs with outputs and variables, because these values belong to
// the customer.
func TestTeardownDeletesLargeValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.install("acme")
		p.outputs = map[string]map[string]control.Output{"network": {"id": {Value: text("a", 100_000)}}}
		p.deploy("acme", control.NewDeployment{AutoApprove: true}, "d")
		p.work()
		if len(p.blobs("values/")) == 0 {
			t.Fatal("no value is in a blob")
		}
		p.deploy("acme", control.NewDeployment{Kind: deployment.Teardown, AutoApprove: true}, "t")
		p.work()
		if left := p.blobs("values/"); len(left) > 0 {
			t.Errorf("after the teardown: %q", left)
		}
	})
}

// The control plane belongs to the vendor. It opens a sensitive output to give it to a job
// that uses the output. As long as this is true, the reference of the app file must state
// it.
func TestVendorAccessToSecretsIsDocumented(t *testing.T) {
	secret, opened := text("s", 100), false
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.install("acme")
		p.outputs = map[string]map[string]control.Output{"database": {"secret": {Value: secret, Sensitive: true}}}
		p.stepFault = func(s events.JobSpec) stepFault {
			for _, v := range s.Vars {
				opened = opened || v.Sensitive && bytes.Equal(v.Value, secret)
			}
			return none
		}
		p.deploy("acme", control.NewDeployment{AutoApprove: true}, "once")
		p.work()
	})
	page, err := os.ReadFile("../../docs/reference/app-file.md")
	if err != nil {
		t.Fatal(err)
	}
	if warns := bytes.Contains(page, []byte("So the vendor, who has the key, can read\nthem.")); warns != opened {
		t.Errorf("the control plane opens sensitive outputs: %t; the page warns of it: %t", opened, warns)
	}
}
