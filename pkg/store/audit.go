package store

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/audit"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

// Request is the request of a person or a program of the vendor, as an entry of the audit has it.
type Request struct {
	Org    fairlead.OrgID
	ID     string
	Action string   // the API's operation
	Rights []string // for which the rule of the route can ask
}

// Of is the place of a record in the audit.
type Of struct {
	audit.Object
	Org     fairlead.OrgID     // "": the operator's
	Install fairlead.InstallID // "": the record belongs to no install
}

// audited is a record that people change. Each record with actors is one.
type audited interface{ Audited() Of }

// Audited implements audited. The methods below do, too.
func (a App) Audited() Of {
	return Of{audit.Object{Kind: "app", Name: a.Name, ID: string(a.ID)}, a.Org, ""}
}

// Audited names the version by its app.
func (v Version) Audited() Of {
	return Of{audit.Object{Kind: "version", Name: v.App, ID: string(v.ID)}, v.Org, ""}
}

// Audited implements audited.
func (i Install) Audited() Of {
	return Of{audit.Object{Kind: "install", Name: i.Name, ID: string(i.ID)}, i.Org, i.ID}
}

// Audited names the deployment by its install.
func (d Deployment) Audited() Of {
	return Of{audit.Object{Kind: "deployment", Name: d.InstallName, ID: string(d.ID)}, d.Org, d.Install}
}

// Audited names the job by its install, or by its runner.
func (j Job) Audited() Of {
	return Of{audit.Object{Kind: "job", Name: cmp.Or(j.InstallName, j.RunnerName), ID: string(j.ID)}, j.Org, j.Install}
}

// Audited implements audited.
func (r Runner) Audited() Of {
	return Of{audit.Object{Kind: "runner", Name: r.Name, ID: string(r.ID)}, r.Org, r.Install}
}

// Audited implements audited.
func (c Channel) Audited() Of { return Of{audit.Object{Kind: "channel", Name: c.Name}, "", ""} }

// Audited names the rule by what it matches.
func (r RunnerRule) Audited() Of {
	return Of{audit.Object{Kind: "runner-rule", Name: r.Match.String(), ID: r.Key()}, r.Org, ""}
}

// Audited implements audited.
func (a Agent) Audited() Of {
	return Of{audit.Object{Kind: "agent", ID: string(a.Runner)}, "", ""}
}

// Audited implements audited.
func (s Session) Audited() Of {
	return Of{audit.Object{Kind: "session", Name: s.Agent, ID: string(s.ID)}, s.Org, ""}
}

// Audited implements audited.
func (e Enrolment) Audited() Of {
	return Of{audit.Object{Kind: "enrolment", ID: string(e.Runner)}, "", ""}
}

// Audited names the stack by its install.
func (s Stack) Audited() Of {
	return Of{audit.Object{Kind: "stack", Name: s.InstallName, ID: string(s.Runner)}, s.Org, s.Install}
}

// Audited implements audited.
func (t Token) Audited() Of {
	return Of{audit.Object{Kind: "token", Name: t.Name, ID: t.ID}, t.Org, ""}
}

// Audited implements audited.
func (u User) Audited() Of {
	return Of{audit.Object{Kind: "user", Name: u.Email, ID: u.ID}, u.Org, ""}
}

// Audited implements audited.
func (a ServiceAccount) Audited() Of {
	return Of{audit.Object{Kind: "service-account", Name: a.Name, ID: a.ID}, a.Org, ""}
}

// Audited names the login by its user.
func (l Login) Audited() Of {
	return Of{audit.Object{Kind: "login", Name: l.Name, ID: l.ID}, l.Org, ""}
}

// Audited implements audited.
func (i LoginIssuer) Audited() Of {
	return Of{audit.Object{Kind: "issuer", Name: i.Name}, "", ""}
}

// Audited names the key sets as the operator's object.
func (s KeySets) Audited() Of { return Of{audit.Object{Kind: "key-sets"}, "", ""} }

// Audited names the org as the operator's object.
func (o Org) Audited() Of { return Of{audit.Object{Kind: "org", Name: string(o.Name)}, "", ""} }

// Audited implements audited.
func (t Trust) Audited() Of {
	return Of{audit.Object{Kind: "trust", Name: t.Name, ID: string(t.Runner)}, "", ""}
}

// Audited implements audited.
func (w Webhook) Audited() Of {
	return Of{audit.Object{Kind: "webhook", Name: w.Name, ID: w.ID}, w.Org, ""}
}

// Audited names the delivery by its webhook.
func (d Delivery) Audited() Of {
	return Of{audit.Object{Kind: "delivery", Name: d.Webhook, ID: d.ID}, fairlead.OrgID(d.What.Org), ""}
}

// Audited implements audited.
func (g Group) Audited() Of {
	return Of{audit.Object{Kind: "group", Name: g.Path.String()}, g.Org, ""}
}

// Audited names the variables by what they are set on.
func (v Variables) Audited() Of {
	of := Of{audit.Object{Kind: "variables", Name: strings.ToLower(v.Of.Kind) + " " + v.Of.Name}, v.Org, ""}
	if v.Of.Kind == ScopeInstall {
		of.Install = fairlead.InstallID(v.Of.Name)
	}
	return of
}

// Audited implements audited.
func (h StateHead) Audited() Of {
	return Of{audit.Object{Kind: "state", Name: h.Component, ID: string(h.Install)}, h.Org, h.Install}
}

// auditedTypes has a zero record of each kind of object. A change of a record whose kind is missing here is in the audit with
// digests alone.
func auditedTypes() map[string]audited {
	all := map[string]audited{}
	for _, r := range []audited{App{}, Version{}, Install{}, Deployment{}, Job{}, Runner{}, Channel{}, RunnerRule{}, Agent{}, Session{}, Enrolment{}, Stack{}, Token{}, User{}, ServiceAccount{}, Login{}, LoginIssuer{}, KeySets{}, Org{}, Trust{}, Webhook{}, Delivery{}, Group{}, Variables{}, StateHead{}} {
		all[r.Audited().Kind] = r
	}
	return all
}

// rank orders the objects of the commit: an entry is about the first one of the highest rank, and names the others. A person changes
// a deployment, and a runner its job.
func (t *Tx) rank(kind string) int {
	switch kind {
	case "deployment":
		return 3
	case "job":
		if t.By == (fairlead.Actor{}) {
			return 4
		}
		return 2
	case "delivery", "stack":
		return 1
	}
	return 0
}

// note is engine.Item.Note: what an entry has beside the record before and after the commit.
type note struct {
	ID      string                     `json:"id"`
	At      time.Time                  `json:"at"`
	Org     string                     `json:"org"`
	Chain   string                     `json:"chain"`
	Actor   audit.Actor                `json:"actor"`
	Action  string                     `json:"action"`
	Object  audit.Object               `json:"object"`
	Also    []string                   `json:"also,omitempty"`
	Request string                     `json:"request,omitempty"`
	Rights  []string                   `json:"rights,omitempty"`
	Deleted bool                       `json:"deleted,omitempty"` // the object, and the item with the note is another one
	Before  map[string]json.RawMessage `json:"before,omitempty"`  // of a deleted object, masked
}

// touched is an object of a commit.
type touched struct {
	Of
	write   engine.Key
	deleted bool
	before  map[string]json.RawMessage
}

// actor is the actor of the commit's entry; zero: it has none.
func (t *Tx) actor() fairlead.Actor {
	if t.By != (fairlead.Actor{}) {
		return t.By
	}
	return t.Cause
}

// touch records that the commit writes or deletes a record.
func (t *Tx) touch(k engine.Key, r any, deleted bool) {
	a, ok := r.(audited)
	if !ok || t.actor() == (fairlead.Actor{}) {
		return
	}
	o := touched{Of: a.Audited(), write: k, deleted: deleted}
	if deleted {
		if b, err := json.Marshal(r); err == nil {
			o.before, _ = flat(b, reflect.TypeOf(r)) // what was just encoded can be decoded
		}
	}
	t.touched = slices.DeleteFunc(t.touched, func(o touched) bool { return o.write == k })
	t.touched = append(t.touched, o)
}

// maxAlso is the largest number of further objects that an entry names.
const maxAlso = 3

// annotate adds the note about the commit to one of its writes: that of the object itself, or any other one if the object is
// deleted. If the commit only deletes, it adds a write. There is no note without an actor, and
// none if the commit changes no record that people change: a use case with several commits changes the object in one of them.
func (t *Tx) annotate(token string) error {
	if len(t.touched) == 0 {
		return nil
	}
	by := t.actor()
	n := note{ID: token, At: t.At, Actor: audit.Actor{ID: by.Token, Name: by.Name, Kind: by.Kind}, Action: cmp.Or(t.Request.Action, t.Op), Request: t.Request.ID, Rights: t.Request.Rights}
	var main *touched
	var install fairlead.InstallID
	org := t.Request.Org
	for i := range t.touched {
		o := &t.touched[i]
		if main == nil || t.rank(o.Kind) > t.rank(main.Kind) {
			main = o
		}
		install, org = cmp.Or(install, o.Install), cmp.Or(org, o.Org)
	}
	n.Org, n.Chain = string(org), cmp.Or(string(install), audit.OrgChain)
	carrier := -1
	if main != nil {
		n.Object, n.Deleted, n.Before = main.Object, main.deleted, main.before
		for _, o := range t.touched {
			if o.write != main.write && len(n.Also) < maxAlso {
				n.Also = append(n.Also, fairlead.Clip(strings.TrimSpace(o.Kind+" "+o.Name), 80))
			}
		}
		carrier = slices.IndexFunc(t.writes, func(w engine.Write) bool { return w.Op == engine.Put && w.Item.Key == main.write })
	}
	n.Object.Name = fairlead.Clip(n.Object.Name, 80)
	if carrier < 0 {
		n.Deleted = true
		carrier = slices.IndexFunc(t.writes, func(w engine.Write) bool { return w.Op == engine.Put })
	}
	if carrier < 0 {
		body, err := encode(Stored[struct{}]{})
		if err != nil {
			return err
		}
		carrier = len(t.writes)
		t.writes = append(t.writes, engine.Write{Op: engine.Put, If: engine.Any(),
			Item: engine.Item{Key: auditedKey(token), Body: body, Expires: t.At.Add(auditedKept)}})
	}
	b, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("encode the note of %s: %w", n.Action, err)
	}
	t.writes[carrier].Item.Note = b
	return nil
}

// auditedKept is how long the item of a commit is kept that only deletes: the stream of the table has its records for a day.
const auditedKept = 7 * 24 * time.Hour

// AuditDraft is an entry that is not in its chain yet.
type AuditDraft struct{ audit.Entry }

// Audit returns the entry of a change. ok is false if the change has no note. An error means that the note cannot be read.
func Audit(c engine.Change) (d AuditDraft, ok bool, err error) {
	if c.New == nil || len(c.New.Note) == 0 {
		return d, false, nil
	}
	var n note
	if err := json.Unmarshal(c.New.Note, &n); err != nil {
		return d, false, fmt.Errorf("decode the note of %s: %w", c.Key, err)
	}
	d.Entry = audit.Entry{Org: n.Org, Chain: n.Chain, ID: n.ID, At: n.At, Actor: n.Actor, Action: n.Action, Object: n.Object, Also: n.Also,
		Request: n.Request, Decision: audit.Allowed, Rights: n.Rights}
	if n.Deleted {
		d.Changes = audit.Differences(n.Before, nil)
		return d, true, nil
	}
	of := auditedTypes()[n.Object.Kind]
	before, err := masked(c.Old, of)
	if err != nil {
		return d, false, err
	}
	after, err := masked(c.New, of)
	if err != nil {
		return d, false, err
	}
	d.Changes = audit.Differences(before, after)
	return d, true, nil
}

// masked returns the fields of the item's record without secrets.
func masked(it *engine.Item, of audited) (map[string]json.RawMessage, error) {
	if it == nil {
		return nil, nil
	}
	if of == nil {
		return map[string]json.RawMessage{"record": audit.Masked(it.Body)}, nil
	}
	return flat(it.Body, reflect.TypeOf(of))
}

// unchanging are the fields of records that an entry has in another form, or that change with each write.
func unchanging(field string) bool {
	switch field {
	case "schema", "org", "id", "name", "made", "created_by", "changed_by", "created", "changed", "updated", "due_at":
		return true
	}
	return false
}

// flat returns the fields of a record of the given type, by their path. Objects are flattened. Bytes are digested: they are
// sealed values, hashes and keys. So are fields that the type does not have.
func flat(body []byte, t reflect.Type) (map[string]json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var tree map[string]any
	if err := d.Decode(&tree); err != nil {
		return nil, fmt.Errorf("decode a record for the audit: %w", err)
	}
	out := map[string]json.RawMessage{}
	fields := fieldsOf(t)
	for name, v := range tree {
		if unchanging(name) {
			continue
		}
		if err := flatten(out, name, v, fields[name]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

var (
	bytesType = reflect.TypeFor[[]byte]()
	rawType   = reflect.TypeFor[json.RawMessage]()
)

// maxDepth is how deep objects are flattened.
const maxDepth = 4

func flatten(out map[string]json.RawMessage, at string, v any, t reflect.Type) error {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	object, isObject := v.(map[string]any)
	if isObject && t != nil && t != rawType && strings.Count(at, ".") < maxDepth && (t.Kind() == reflect.Struct || t.Kind() == reflect.Map) {
		fields := fieldsOf(t)
		for name, child := range object {
			of := fields[name]
			if t.Kind() == reflect.Map {
				of = t.Elem()
			}
			if err := flatten(out, at+"."+name, child, of); err != nil {
				return err
			}
		}
		return nil
	}
	b, err := json.Marshal(shown(v))
	if err != nil {
		return err
	}
	if t == nil || hides(t) {
		b = audit.Masked(b)
	}
	out[at] = b
	return nil
}

// hides reports whether values of the type can contain bytes.
func hides(t reflect.Type) bool {
	switch {
	case t == rawType:
		return false
	case t == bytesType:
		return true
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return hides(t.Elem())
	case reflect.Struct:
		for _, f := range fieldsOf(t) {
			if hides(f) {
				return true
			}
		}
	}
	return false
}

// shown returns the value with each number that RFC 8785 would round as a text.
func shown(v any) any {
	switch v := v.(type) {
	case json.Number:
		if f, err := v.Float64(); err != nil || strconv.FormatFloat(f, 'f', -1, 64) != v.String() {
			return v.String()
		}
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, child := range v {
			out[name] = shown(child)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, child := range v {
			out[i] = shown(child)
		}
		return out
	}
	return v
}

// fieldsOf returns the types of a struct's fields by their names in JSON.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	if t.Kind() != reflect.Struct {
		return out
	}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.IsExported() && !f.Anonymous && name != "-" {
			out[cmp.Or(name, f.Name)] = f.Type
		}
	}
	return out
}

// AuditChain is a chain of an org.
type AuditChain struct {
	Chain   string    `json:"chain"`
	Name    string    `json:"name,omitempty"` // of the install, when the chain began
	Created time.Time `json:"created"`
}

// AuditChains lists the chains of an org.
func (s *Store) AuditChains(ctx context.Context, org fairlead.OrgID, q fairlead.PageQuery) (Page[AuditChain], error) {
	return query[AuditChain](ctx, s, engine.Query{Partition: auditPartition(org), Prefix: auditChainPrefix, After: q.After, Limit: q.Limit})
}

// AuditChain returns a chain, with version 0 if it has not begun.
func (s *Store) AuditChain(ctx context.Context, org fairlead.OrgID, chain string) (Stored[AuditChain], error) {
	return getOr(ctx, s, auditChainKey(org, chain), AuditChain{Chain: chain})
}

// PutAuditChain writes a chain.
func (t *Tx) PutAuditChain(org fairlead.OrgID, r Stored[AuditChain]) {
	put(t, auditChainKey(org, r.V.Chain), r)
}

// AuditEntries lists the entries of a chain, newest first.
func (s *Store) AuditEntries(ctx context.Context, org fairlead.OrgID, chain string, q fairlead.PageQuery) (Page[audit.Entry], error) {
	return query[audit.Entry](ctx, s, engine.Query{Partition: auditEntries(org, chain), After: q.After, Limit: q.Limit, Backward: true})
}

// PutAuditEntry writes an entry. The commit fails if the chain has an entry of this number. The record expires at the given time.
func (t *Tx) PutAuditEntry(e audit.Entry, expiry time.Time) {
	put(t, auditEntryKey(fairlead.OrgID(e.Org), e.Chain, e.N), Stored[audit.Entry]{V: e}, expires(expiry))
}

// Checkpoints lists the checkpoints of an org, newest first.
func (s *Store) Checkpoints(ctx context.Context, org fairlead.OrgID, q fairlead.PageQuery) (Page[audit.Signed], error) {
	return query[audit.Signed](ctx, s, engine.Query{Partition: auditPartition(org), Prefix: checkpointPrefix, After: q.After, Limit: q.Limit, Backward: true})
}

// PutCheckpoint writes a checkpoint. The commit fails if the org has a checkpoint of this number.
func (t *Tx) PutCheckpoint(c audit.Signed, expiry time.Time) {
	put(t, checkpointKey(fairlead.OrgID(c.Org), c.N), Stored[audit.Signed]{V: c}, expires(expiry))
}

// errNoObject reports a record with actors that has no place in the audit: a mistake of the program.
var errNoObject = errors.New("the record names its actors, but has no method Audited")
