package plane_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/audit"
	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/tools/dynamodblocal"
)

func (c *cloud) audit() *config.Audit {
	return &config.Audit{Table: c.table, SigningKey: c.signingKey, LogLevel: "info"}
}

// A person changes something through the API. The table's stream brings the note to the function audit, which appends the entry and
// signs a checkpoint with the key in KMS. The stream brings the batch again after an invocation that did not answer, and the
// audit is the same.
func TestFunctionChainsTheAudit(t *testing.T) {
	c := newCloud(t)
	control := c.start("controlapi", c.controlAPI())
	token := firstToken(t, control)
	cl, err := client.New(front(t, control), token, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	must(cl.CreateGroup(t.Context(), wire.CreateGroupRequest{Path: "customers"}))(t)
	must(cl.CreateToken(t.Context(), wire.CreateTokenRequest{Name: "ci"}))(t)
	f := c.start("audit", c.audit())
	for range 2 {
		batch := map[string]any{"Records": dynamodblocal.Records(t, c.endpoints["DYNAMODB"], c.table)}
		if out := must(f.Invoke(t.Context(), batch))(t); string(out) != `{"batchItemFailures":[]}` {
			t.Fatalf("audit answers %s", out)
		}
	}
	about := must(cl.GetAudit(t.Context()))(t)
	var keys []audit.Key
	for _, k := range about.Keys {
		keys = append(keys, audit.Key{ID: k.ID, PublicKey: k.PublicKey})
	}
	var file bytes.Buffer
	w := audit.NewWriter(&file, audit.Header{Org: about.Org}, keys)
	entries := must(cl.ListAuditEntries(t.Context(), "org", client.ListOptions{}))(t)
	var actions []string
	for _, raw := range slices.Backward(entries.Items) {
		var e wire.AuditEntry
		if err := json.Unmarshal(raw, &e); err != nil {
			t.Fatal(err)
		}
		actions = append(actions, e.Actor.Name+" "+e.Action)
		w.Entry(raw)
	}
	slices.Sort(actions) // the stream keeps no order between items
	if want := []string{"admin create-group", "admin create-token"}; !slices.Equal(actions, want) {
		t.Errorf("the audit has %q, want %q", actions, want)
	}
	checkpoints := must(cl.ListAuditCheckpoints(t.Context(), client.ListOptions{}))(t)
	for _, raw := range slices.Backward(checkpoints.Items) {
		w.Checkpoint(raw)
	}
	r := must(audit.Verify(&file, audit.Options{}))(t)
	if len(r.Findings) > 0 || len(r.Newer) > 0 || r.Entries != 2 || r.Checkpoints != 2 {
		t.Errorf("the report is %+v", r)
	}
}
