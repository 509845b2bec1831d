package control_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/audit"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/dynamo"
	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
	"github.com/fairlead/fairlead/pkg/store/sqlite"
	"github.com/fairlead/fairlead/tools/dynamodblocal"
)

// streamed is an engine with its stream of changes that have a note.
type streamed struct {
	engine.Engine
	read func() []control.Record
}

func notedSQLite(t *testing.T) streamed {
	t.Helper()
	e, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "table.db"), sqlite.Options{Notes: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return streamed{e, func() (out []control.Record) {
		list, err := e.Noted(context.WithoutCancel(t.Context()), 0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range list {
			out = append(out, control.Record{ID: fmt.Sprint(c.Sequence), Change: c.Change})
		}
		return out
	}}
}

func notedDynamo(t *testing.T) streamed {
	t.Helper()
	e, name := dynamoTableNamed(t, "audit")
	return streamed{e, func() (out []control.Record) {
		for _, text := range dynamodblocal.Records(t, server.Endpoint(t), name) {
			var r dynamo.StreamRecord
			if err := json.Unmarshal(text, &r); err != nil {
				t.Fatal(err)
			}
			c, err := r.Change()
			out = append(out, control.Record{ID: r.EventID, At: r.Time(), Change: c, Err: err})
		}
		return out
	}}
}

// changes makes the changes of a story as carol: some of the org, some of two installs. It returns their number.
func changes(p *plane) int {
	p.t.Helper()
	ctx := func(action string) context.Context {
		as := control.As(p.ctx, fairlead.Actor{Token: "tok_carol", Name: "carol"})
		return control.Asked(as, control.Request{Org: org, ID: "req_" + action, Action: action, Rights: []string{"edit-install"}})
	}
	n := 0
	do := func(action string, fn func(context.Context) error) {
		p.t.Helper()
		n++
		p.must(action, func() error { return fn(ctx(action)) })
	}
	p.publish(tiny)
	do("create-group", func(ctx context.Context) error { return errOf(p.CreateGroup(ctx, org, "customers", "", "")) })
	for _, name := range []string{"acme", "globex"} {
		do("create-install", func(ctx context.Context) error {
			return errOf(p.CreateInstall(ctx, org, control.NewInstall{Name: name, App: "tiny"}, ""))
		})
	}
	for i := range 4 {
		tier := fmt.Sprint(i)
		do("update-install", func(ctx context.Context) error {
			return errOf(p.UpdateInstall(ctx, org, "acme", control.InstallChange{Labels: map[string]*string{"tier": &tier}}))
		})
	}
	do("create-webhook", func(ctx context.Context) error {
		return errOf(p.CreateWebhook(ctx, org, control.NewWebhook{Name: "ops", URL: "https://203.0.113.9/hooks"}, ""))
	})
	do("delete-webhook", func(ctx context.Context) error { return p.DeleteWebhook(ctx, org, "ops") })
	do("delete-group", func(ctx context.Context) error { return p.DeleteGroup(ctx, org, "customers") })
	return n + 2 // the deletion of a group is two commits: it marks the group first; and the plane's agent is enrolled
}

// exportOf returns the export of the org's audit, as the CLI makes it.
func exportOf(p *plane) []byte {
	p.t.Helper()
	ctx := context.WithoutCancel(p.ctx)
	var out bytes.Buffer
	w := audit.NewWriter(&out, audit.Header{Org: string(org), At: p.Now(), KeptDays: 400}, []audit.Key{{ID: events.KeyID(p.pub), PublicKey: p.pub}})
	put := func(v any, to func(json.RawMessage)) {
		b, err := json.Marshal(v)
		if err != nil {
			p.t.Fatal(err)
		}
		to(b)
	}
	chains, _, err := p.AuditChains(ctx, org, fairlead.PageQuery{})
	if err != nil {
		p.t.Fatal(err)
	}
	for _, c := range chains {
		entries, _, err := p.AuditEntries(ctx, org, c.Chain, fairlead.PageQuery{})
		if err != nil {
			p.t.Fatal(err)
		}
		for _, e := range slices.Backward(entries) {
			put(e, w.Entry)
		}
	}
	checkpoints, _, err := p.AuditCheckpoints(ctx, org, fairlead.PageQuery{})
	if err != nil {
		p.t.Fatal(err)
	}
	for _, c := range slices.Backward(checkpoints) {
		put(c, w.Checkpoint)
	}
	return out.Bytes()
}

func verifyExport(t *testing.T, file []byte, o audit.Options) audit.Report {
	t.Helper()
	r, err := audit.Verify(bytes.NewReader(file), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAuditOnSQLite(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := notedSQLite(t)
	auditStory(newPlaneAt(t, s, c.now, c.sleep), s, engine.MaxCommit)
}

func TestAuditOnDynamoDB(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := notedDynamo(t)
	auditStory(newPlaneAt(t, s, c.now, c.sleep), s, 1)
}

// auditStory makes changes, chains their entries, and verifies an export. A second auditor that gets the same records appends nothing.
func auditStory(p *plane, s streamed, together int) {
	t := p.t
	n := changes(p)
	for range 2 {
		moved := control.Moved{}
		records := s.read()
		if done, err := p.NewAuditor(0, together).Append(p.ctx, records, moved); done != len(records) || err != nil {
			t.Fatalf("appended %d of %d: %v", done, len(records), err)
		}
		if err := p.NewAuditor(0, together).Checkpoint(p.ctx, moved); err != nil {
			t.Fatal(err)
		}
	}
	r := verifyExport(t, exportOf(p), audit.Options{})
	if len(r.Findings) > 0 || len(r.Newer) > 0 || r.Entries != n || r.Chains != 3 || r.Checkpoints != 2 {
		t.Fatalf("%d changes: the report is %+v", n, r)
	}
	entries, _, err := p.AuditEntries(p.ctx, org, audit.OrgChain, fairlead.PageQuery{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Actor.Name+" "+e.Action+" "+e.Object.Kind+" "+e.Object.Name+" "+e.Request)
	}
	slices.Sort(got) // on DynamoDB the order of changes of different items is not that of their commits
	want := []string{"carol create-group group customers req_create-group", "carol create-webhook webhook ops req_create-webhook", "carol delete-group group customers req_delete-group", "carol delete-group group customers req_delete-group", "carol delete-webhook webhook ops req_delete-webhook", "local enrol-runner agent  "}
	if !slices.Equal(got, want) {
		t.Errorf("the chain of the org has %q", got)
	}
	for _, e := range entries {
		for _, c := range e.Changes {
			if c.Field == "secret" && !strings.HasPrefix(string(cmp.Or(string(c.Before), string(c.After))), `"sha256:`) {
				t.Errorf("%s shows a secret: %s %s", e.Action, c.Before, c.After)
			}
		}
	}
}

// The chain of an install has the ends of jobs that changed something beside the approvals of people: by the runner, by the control
// plane if the runner was lost, and by the person who canceled a job before it began. Plans have no entry.
func TestEntriesShowWhatAnApprovalLedTo(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := notedSQLite(t)
	p := newPlaneAt(t, s, c.now, c.sleep)
	p.publish(shop)
	p.install("acme")
	first, _, _ := p.applying("acme")
	p.work() // the lease of the apply expires
	p.must("cancel", func() error {
		ctx := control.Asked(control.As(p.ctx, fairlead.Actor{Token: "tok_carol", Name: "carol"}), control.Request{Org: org, Action: "cancel-deployment"})
		return errOf(p.CancelDeployment(ctx, org, first))
	})
	p.install("initech")
	_, _, h := p.applying("initech")
	p.died(h)
	p.install("globex")
	p.deploy("globex", control.NewDeployment{AutoApprove: true}, "second")
	p.work()
	records := s.read()
	if done, err := p.NewAuditor(0, 1).Append(p.ctx, records, control.Moved{}); done != len(records) || err != nil {
		t.Fatalf("appended %d of %d: %v", done, len(records), err)
	}
	const applied = `runner local finish-job job "running"→"succeeded"`
	for name, want := range map[string][]string{
		"acme":    {`control-plane control plane end-job job "running"→"lost"`, "carol cancel-deployment deployment"},
		"initech": {`runner local report-died job "running"→"lost"`},
		"globex":  {applied, applied, applied, applied},
	} {
		i, err := p.Install(p.ctx, org, name)
		if err != nil {
			t.Fatal(err)
		}
		entries, _, err := p.AuditEntries(p.ctx, org, string(i.ID), fairlead.PageQuery{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range slices.Backward(entries) {
			line := strings.TrimSpace(e.Actor.Kind + " " + e.Actor.Name + " " + e.Action + " " + e.Object.Kind)
			for _, c := range e.Changes {
				if c.Field == "state" && e.Object.Kind == "job" {
					line += " " + string(c.Before) + "→" + string(c.After)
				}
			}
			got = append(got, line)
		}
		if !slices.Equal(got, want) {
			t.Errorf("the chain of %s has\n%s", name, strings.Join(got, "\n"))
		}
	}
}

// What a person who can write to the table, or to the file, can do to the entries, and how the verification names it.
func TestAuditNamesWhatWasAltered(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := notedSQLite(t)
	p := newPlaneAt(t, s, c.now, c.sleep)
	changes(p)
	records, moved := s.read()[1:], control.Moved{} // without the enrolment of the agent
	a := p.NewAuditor(0, 1)
	if _, err := a.Append(p.ctx, records[:6], moved); err != nil {
		t.Fatal(err)
	}
	if err := a.Checkpoint(p.ctx, moved); err != nil {
		t.Fatal(err)
	}
	c.sleep(time.Hour)
	if _, err := a.Append(p.ctx, records[6:8], moved); err != nil {
		t.Fatal(err)
	}
	if err := a.Checkpoint(p.ctx, moved); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Append(p.ctx, records[8:], moved); err != nil {
		t.Fatal(err)
	}
	file := exportOf(p)
	lines := strings.SplitAfter(strings.TrimSuffix(string(file), "\n"), "\n")
	// The install acme has five entries; the second checkpoint has the last of them.
	acme, globex := "", ""
	at := func(of func(audit.Entry) bool) (out []int) {
		for i, l := range lines {
			var v struct {
				Entry *audit.Entry `json:"entry"`
			}
			if json.Unmarshal([]byte(l), &v) == nil && v.Entry != nil && of(*v.Entry) {
				out = append(out, i)
			}
		}
		return out
	}
	ofAcme := at(func(e audit.Entry) bool {
		if e.Object.Name == "acme" {
			acme = e.Chain
		}
		return e.Object.Name == "acme"
	})
	at(func(e audit.Entry) bool {
		if e.Object.Name == "globex" {
			globex = e.Chain
		}
		return false
	})
	ofOrg := at(func(e audit.Entry) bool { return e.Chain == audit.OrgChain })
	var checkpoints []int
	for i, l := range lines {
		if strings.HasPrefix(l, `{"checkpoint"`) {
			checkpoints = append(checkpoints, i)
		}
	}
	if len(ofAcme) != 5 || len(ofOrg) != 5 || len(checkpoints) != 2 {
		t.Fatalf("the export has the entries %v of acme and %v of the org, and the checkpoints %v:\n%s", ofAcme, ofOrg, checkpoints, file)
	}
	clean := verifyExport(t, file, audit.Options{})
	if len(clean.Findings) > 0 || len(clean.Newer) != 3 || clean.Newer[0].N != 3 || clean.Newer[0].Chain != audit.OrgChain {
		t.Fatalf("the unaltered export: %+v", clean)
	}
	edit := func(i int, old, now string) func([]string) []string {
		return func(l []string) []string {
			changed := strings.Replace(l[i], old, now, 1)
			if changed == l[i] {
				t.Fatalf("line %d does not contain %q: %s", i, old, l[i])
			}
			l[i] = changed
			return l
		}
	}
	drop := func(i ...int) func([]string) []string {
		return func(l []string) []string {
			for _, at := range slices.Backward(i) {
				l = slices.Delete(l, at, at+1)
			}
			return l
		}
	}
	for _, row := range []struct {
		name  string
		alter func([]string) []string
		want  string // kind, chain and number of the findings
	}{
		{"an actor was changed", edit(ofAcme[1], `"name":"carol"`, `"name":"mallory"`), "changed acme 2"},
		{"a value was changed", edit(ofAcme[2], `"before":"0"`, `"before":"9"`), "changed acme 3"},
		{"the first entry was changed", edit(ofAcme[0], `"carol"`, `"mallory"`), "changed acme 1"},
		{"the signed head was changed", edit(ofAcme[4], `"carol"`, `"mallory"`), "changed acme 5"},
		{"the link of an entry was changed", edit(ofAcme[4], `"prev":"sha256:`, `"prev":"sha256:0`), "changed acme 5"},
		{"an entry was dropped", drop(ofAcme[2]), "dropped acme 3"},
		{"two entries were dropped", drop(ofAcme[1], ofAcme[2]), "dropped acme 2-3"},
		{"the newest signed entry was dropped", drop(ofAcme[4]), "dropped acme 5"},
		{"a whole chain was dropped", drop(ofAcme...), "dropped acme 4; dropped acme 5"},
		{"two lines were exchanged", func(l []string) []string {
			l[ofAcme[1]], l[ofAcme[2]] = l[ofAcme[2]], l[ofAcme[1]]
			return l
		}, "reordered acme 2"},
		{"a line stands twice", func(l []string) []string { return slices.Insert(l, ofAcme[2], l[ofAcme[2]]) }, "repeated acme 3"},
		{"an entry of another org", edit(ofAcme[4], `"org":"default"`, `"org":"other"`), "changed acme 5"},
		{"a checkpoint was dropped", drop(checkpoints[0]), "dropped globex 1"},
		{"a checkpoint was changed", edit(checkpoints[1], `"n":2`, `"n":3`), "dropped  2; unsigned  3"},
		{"an entry after the last checkpoint was changed", edit(ofOrg[2], `"carol"`, `"mallory"`), "changed org 3"},
	} {
		r := verifyExport(t, []byte(strings.Join(row.alter(slices.Clone(lines)), "")), audit.Options{})
		var got []string
		for _, f := range r.Findings {
			of := strings.NewReplacer(acme, "acme", globex, "globex").Replace(f.Chain)
			line := fmt.Sprintf("%s %s %d", f.Kind, of, f.N)
			if f.To > f.N {
				line += fmt.Sprintf("-%d", f.To)
			}
			if !slices.Contains(got, line) {
				got = append(got, line)
			}
		}
		if text := strings.Join(got, "; "); text != row.want {
			t.Errorf("%s: found %q, want %q", row.name, text, row.want)
		}
	}
}

// mortal is an engine whose process dies at a write to the audit: before it, or after it and before its answer.
type mortal struct {
	engine.Engine
	mu    sync.Mutex
	left  int // writes until the death
	after bool
	dead  bool
}

var errDead = errors.New("the process died")

func (m *mortal) Commit(ctx context.Context, token string, writes ...engine.Write) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return errDead
	}
	if strings.HasPrefix(writes[0].Item.Key.Partition, "AUDIT#") {
		if m.left--; m.left < 0 {
			m.dead = true
			if m.after {
				return errors.Join(errDead, m.Engine.Commit(ctx, token, writes...))
			}
			return errDead
		}
	}
	return m.Engine.Commit(ctx, token, writes...)
}

// The control plane dies between a commit and its entry, at each write of the auditor. The next auditor gets the records again, and
// the chains have each entry once, up to a checkpoint.
func TestAuditorDiesAtEachWrite(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		together int
		after    bool
		deaths   int // at least
	}{{1, false, 10}, {1, true, 10}, {4, false, 5}, {4, true, 5}} {
		deaths, after := 0, row.after
		for at := 0; ; at++ {
			c := newClock()
			s := notedSQLite(t)
			m := &mortal{Engine: s.Engine, left: at, after: after}
			p := newPlaneAt(t, m, c.now, c.sleep)
			n := changes(p)
			records, moved := s.read(), control.Moved{}
			a := p.NewAuditor(0, row.together)
			_, err := a.Append(p.ctx, records, moved)
			if err == nil {
				err = a.Checkpoint(p.ctx, moved)
			}
			died := m.dead
			if died != (err != nil) {
				t.Fatalf("death at write %d: %v", at, err)
			}
			m.dead, m.left = false, 1000
			moved = control.Moved{} // the next process knows nothing
			if _, err := p.NewAuditor(0, row.together).Append(p.ctx, records, moved); err != nil {
				t.Fatal(err)
			}
			if err := p.NewAuditor(0, row.together).Checkpoint(p.ctx, moved); err != nil {
				t.Fatal(err)
			}
			if r := verifyExport(t, exportOf(p), audit.Options{}); len(r.Findings) > 0 || len(r.Newer) > 0 || r.Entries != n || len(r.Starts) > 0 {
				t.Fatalf("death at write %d (after it: %v): %d changes, and the report is %+v", at, after, n, r)
			}
			if !died {
				break
			}
			deaths++
		}
		if deaths < row.deaths {
			t.Errorf("the auditor that writes %d entries together made only %d writes", row.together, deaths)
		}
	}
}

// Two auditors get the same records at once, as two invocations of a function can.
func TestTwoAuditorsShareTheAudit(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := notedSQLite(t)
	p := newPlaneAt(t, s, c.now, c.sleep)
	n := changes(p)
	records := s.read()
	var both sync.WaitGroup
	for i := range 2 {
		both.Go(func() {
			moved := control.Moved{}
			if _, err := p.NewAuditor(0, 1+4*i).Append(p.ctx, records, moved); err != nil {
				t.Error(err)
			}
			if err := p.NewAuditor(0, 1).Checkpoint(p.ctx, moved); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	if r := verifyExport(t, exportOf(p), audit.Options{}); len(r.Findings) > 0 || len(r.Newer) > 0 || r.Entries != n {
		t.Fatalf("%d changes, and the report is %+v", n, r)
	}
}

// After the time for which entries are kept, the old ones are not there, and the verification says where a chain begins. A chain
// without any entry left continues with numbers that no earlier entry had.
func TestAuditKeepsEntriesForItsTime(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := notedSQLite(t)
	p := newPlaneAt(t, s, c.now, c.sleep)
	changes(p)
	const kept = 400 * 24 * time.Hour
	write := func() {
		t.Helper()
		moved := control.Moved{}
		if _, err := p.NewAuditor(kept, 1).Append(p.ctx, s.read(), moved); err != nil {
			t.Fatal(err)
		}
		if err := p.NewAuditor(kept, 1).Checkpoint(p.ctx, moved); err != nil {
			t.Fatal(err)
		}
	}
	write()
	table := s.Engine.(*sqlite.Engine)
	if err := table.ForgetNoted(p.ctx, 1000); err != nil {
		t.Fatal(err)
	}
	change := func(at time.Duration) {
		t.Helper()
		c.sleep(at)
		ctx := control.Asked(control.As(p.ctx, fairlead.Actor{Token: "tok_carol", Name: "carol"}), control.Request{Org: org, Action: "create-group"})
		if err := errOf(p.CreateGroup(ctx, org, fmt.Sprintf("at-%d", c.now().Unix()), "", "")); err != nil {
			t.Fatal(err)
		}
		write()
		if _, err := table.Prune(p.ctx, c.now()); err != nil {
			t.Fatal(err)
		}
	}
	change(kept / 2)
	change(kept/2 + time.Hour) // the entries of the story have expired
	r := verifyExport(t, exportOf(p), audit.Options{})
	if len(r.Findings) > 0 || r.Entries != 2 || len(r.Starts) != 1 || r.Starts[0].N != 7 {
		t.Fatalf("after the first ones expired: %+v", r)
	}
	if err := table.ForgetNoted(p.ctx, 1000); err != nil {
		t.Fatal(err)
	}
	c.sleep(kept + time.Hour)
	if _, err := table.Prune(p.ctx, c.now()); err != nil {
		t.Fatal(err)
	}
	change(time.Hour)
	r = verifyExport(t, exportOf(p), audit.Options{})
	if len(r.Findings) > 0 || r.Entries != 1 || len(r.Starts) != 1 || r.Starts[0].N < 1000 {
		t.Fatalf("after all expired: %+v", r)
	}
}

// An entry costs one write unit, and a checkpoint at most two. The note in the commit costs none more, unless the record then exceeds a KB.
func TestAuditCosts(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := notedSQLite(t)
	meter := enginetest.Meter(s.Engine)
	p := newPlaneAt(t, meter, c.now, c.sleep)
	long := strings.Repeat("n", 63)
	as := control.As(p.ctx, fairlead.Actor{Token: p.IDs("tok"), Name: long})
	p.publish(tiny)
	for i := range 30 { // each with the largest names
		ctx := control.Asked(as, control.Request{Org: org, ID: p.IDs("req"), Action: "create-install", Rights: []string{"edit-install", "manage-runners"}})
		name := fmt.Sprintf("%s-%02d", long[:60], i)
		labels := map[string]string{}
		for l := range 15 {
			labels[fmt.Sprintf("%s-%d", long[:40], l)] = long
		}
		if err := errOf(p.CreateInstall(ctx, org, control.NewInstall{Name: name, App: "tiny", Labels: labels}, "")); err != nil {
			t.Fatal(err)
		}
	}
	records, moved := s.read()[1:], control.Moved{} // without the enrolment of the agent
	if len(records) != 30 {
		t.Fatalf("there are %d records", len(records))
	}
	a := p.NewAuditor(0, 1)
	for _, r := range records {
		again := *r.Change.New
		again.Note = bytes.Replace(again.Note, []byte(`"id":"com_`), []byte(`"id":"cox_`), 1) // another commit of the same install
		for _, it := range []*engine.Item{r.Change.New, &again} {
			meter.Reset() // the first entry also begins the chain, which costs one more
			if _, err := a.Append(p.ctx, []control.Record{{Change: engine.Change{Key: it.Key, New: it}}}, moved); err != nil {
				t.Fatal(err)
			}
		}
		if u := meter.Total(); u.TableWrite != 1 || u.IndexWrite != 0 {
			t.Fatalf("an entry costs %+v", u)
		}
	}
	meter.Reset()
	if err := a.Checkpoint(p.ctx, moved); err != nil {
		t.Fatal(err)
	}
	u := meter.Total()
	if n := float64((30 + audit.MaxHeads - 1) / audit.MaxHeads); u.TableWrite > 2*n {
		t.Errorf("%v checkpoints cost %+v", n, u)
	}
	t.Logf("the checkpoints of 30 chains cost %+v", u)
}

// Each append looked for its entry among those of the last minute, of which a busy chain has thousands: the audit took half of the
// server's CPU time.
func TestBusyChainIsNotReadForEachEntry(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := notedSQLite(t)
	meter := enginetest.Meter(s.Engine)
	p := newPlaneAt(t, meter, c.now, c.sleep)
	changes(p)
	record := s.read()[1]
	copied := func(n int) []control.Record {
		it := *record.Change.New
		it.Note = bytes.Replace(it.Note, []byte(`"id":"com_`), fmt.Appendf(nil, `"id":"c%03d_`, n), 1)
		return []control.Record{{Change: engine.Change{Key: it.Key, New: &it}}}
	}
	a, moved := p.NewAuditor(0, 1), control.Moved{}
	appended := func(a *control.Auditor, n int) {
		t.Helper()
		if _, err := a.Append(p.ctx, copied(n), moved); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 50 {
		appended(a, n)
	}
	meter.Reset()
	appended(a, 50)
	appended(a, 10) // the stream delivers it again
	if u := meter.Total(); u.Read > 0 || u.TableWrite != 1 {
		t.Errorf("a new and a repeated entry cost %+v, want one write", u)
	}
	// Another auditor appends to the chain, such as another invocation of a function.
	other := p.NewAuditor(0, 1)
	appended(other, 51)
	appended(a, 51)
	appended(a, 52)
	appended(other, 52)
	appended(other, 53)
	entries, _, err := p.AuditEntries(p.ctx, org, "org", fairlead.PageQuery{})
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]int{}
	for _, e := range entries {
		ids[e.ID]++
	}
	if len(entries) != 54 || len(ids) != 54 {
		t.Errorf("the chain has %d entries of %d changes, want 54", len(entries), len(ids))
	}
}

// One machine wrote each entry in a commit of its own, so each job cost one more sync of the disk.
func TestEntriesOfOneMachineShareACommit(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := notedSQLite(t)
	p := newPlaneAt(t, s, c.now, c.sleep)
	n := changes(p)
	records, m := s.read(), &mortal{Engine: s.Engine, left: 1000}
	p = newPlaneAt(t, m, c.now, c.sleep)
	a := p.NewAuditor(0, engine.MaxCommit)
	twice := slices.Concat(records[:n-1], records[:1], records[:n-1]) // the stream delivers some again
	for range 2 {
		if done, err := a.Append(p.ctx, twice, control.Moved{}); done != len(twice) || err != nil {
			t.Fatalf("appended %d of %d: %v", done, len(twice), err)
		}
	}
	const begins = 3 // commits that begin the chains
	if writes := 1000 - m.left; writes != begins+1 {
		t.Errorf("%d commits for %d entries, want %d that begin chains and 1", writes, n-1, begins)
	}
}
