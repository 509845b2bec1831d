package step_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/installkey"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/jobvalues"
	"github.com/fairlead/fairlead/pkg/policy"
	"github.com/fairlead/fairlead/pkg/statefile"
)

// BenchmarkTrustOfAJobWith100Changes is the CPU time that a plan, and then an apply, spend on the customer's policy and on encryption: 20
// inputs are opened, the policy with 20 rules decides twice, a state of 200 KB is opened and encrypted, a saved plan of 200 KB is
// encrypted and opened, and 20 outputs are encrypted. The signature of an approval is in pkg/approval: BenchmarkVerify.
func BenchmarkTrustOfAJobWith100Changes(b *testing.B) {
	ring, err := installkey.NewRing(strings.Repeat("Seed", 12), "ins_1")
	if err != nil {
		b.Fatal(err)
	}
	var text strings.Builder
	text.WriteString("version: 1\ndeny:\n")
	for i := range 20 {
		fmt.Fprintf(&text, "  r%d: {types: [aws_%d_*], when: {/a/*/b: {is: [x*]}}}\n", i, i)
	}
	rules, problems := policy.Parse("p", []byte(text.String()))
	if rules == nil {
		b.Fatal(problems)
	}
	q := policy.Request{Operation: job.OpPlan, Plan: &policy.Plan{}}
	resources := []any{}
	for i := range 100 {
		after := map[string]any{"a": []any{map[string]any{"b": "y"}, map[string]any{"b": "z"}}, "text": strings.Repeat(fmt.Sprintf("%d,", i*7919), 300)}
		kind := fmt.Sprintf("aws_%d_x", i%20)
		q.Plan.Changes = append(q.Plan.Changes, changeset.Change{Address: fmt.Sprintf("%s.r%d", kind, i), Kind: kind, Action: changeset.Create, After: after})
		resources = append(resources, map[string]any{"type": kind, "name": fmt.Sprintf("r%d", i), "attributes": after})
	}
	state, err := json.Marshal(map[string]any{"version": 4, "serial": 7, "lineage": "ours", "resources": resources})
	if err != nil {
		b.Fatal(err)
	}
	stored, err := statefile.Seal(ring, "web", state)
	if err != nil {
		b.Fatal(err)
	}
	var inputs [20][]byte
	for i := range inputs {
		if inputs[i], err = ring.Current().Public().Seal(jobvalues.InputPlace(fmt.Sprint(i)), []byte(`"a-long-password"`)); err != nil {
			b.Fatal(err)
		}
	}
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		for i := range inputs {
			_, err := ring.Open(jobvalues.InputPlace(fmt.Sprint(i)), inputs[i])
			must(err)
		}
		for range 2 {
			if d := rules.Decide(q); d.Effect != policy.Allow {
				b.Fatal(d)
			}
		}
		_, err := statefile.Open(ring, "web", stored)
		must(err)
		_, err = statefile.Seal(ring, "web", state)
		must(err)
		plan, err := ring.Seal("plan/web", state)
		must(err)
		_, err = ring.OpenOwn("plan/web", plan)
		must(err)
		for i := range 20 {
			_, err := jobvalues.Encrypt(ring.Seal, jobvalues.OutputPlace("web", fmt.Sprint(i)), []byte(`"an-output"`), ring.Current().FingerprintKey())
			must(err)
		}
	}
	b.ReportMetric(float64(len(state)), "bytes/state")
}
