// Package changeset defines the change set of a plan: what an approved plan will do, in one schema for all component types.
// Plugins build it, people and policies read it. It holds no secret.
package changeset

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Version is the version of the schema.
const Version = 2

// Set is the change set of one plan. It contains only what changes: a plan without changes has an empty set.
type Set struct {
	V       int      `json:"v" doc:"Version of the schema: 2"`
	Base    *Base    `json:"base,omitempty" doc:"What the plan was made on; absent: nothing existed, or the type has no such record"`
	Changes []Change `json:"changes" doc:"The changes of resources and the programs that will run"`
	Fetched []Module `json:"fetched,omitempty" doc:"The modules that the plan fetched from other places, because the artifact does not have them"`
	Outputs []Change `json:"outputs,omitempty" doc:"The changes of the component's outputs; the address is the output's name"`
	Omitted int      `json:"omitted,omitempty" doc:"Number of changes and fetched modules that are left out because the set has reached its limit"`
}

// Module is a module that a plan fetched. What is fetched can differ at another time, so a person and a policy see it.
type Module struct {
	Address string `json:"address" doc:"Its call, such as module.network.module.vpc"`
	Source  string `json:"source" doc:"Where it is from: an address in a module registry, a URL"`
	Version string `json:"version,omitempty" doc:"Of a module in a registry"`
	Commit  string `json:"commit,omitempty" doc:"Of a git repository, if it is known"`
}

// Base names the version of the component's record on which a plan was made. The apply refuses the plan if the record has
// another version.
type Base struct {
	Lineage  string `json:"lineage,omitempty" doc:"Identifier of the record: a state's lineage, a release's or an inventory's UID"`
	Revision int64  `json:"revision" doc:"Its version: a state's serial, the revision of a release or of an inventory"`
}

// Action is what happens to the object of a change.
type Action string

// The actions. A reader treats an action that it does not know as a change.
const (
	Create  Action = "create"
	Update  Action = "update"
	Replace Action = "replace" // delete and create, in the change's order
	Delete  Action = "delete"
	Import  Action = "import"  // the component takes over an existing object, and perhaps updates it
	Move    Action = "move"    // the object gets another address; nothing else changes
	Read    Action = "read"    // a data source, during the apply
	Forget  Action = "forget"  // the component gives up an object, which continues to exist
	Recover Action = "recover" // an interrupted operation is marked failed, so that another one can begin
	Run     Action = "run"     // a program, whose changes cannot be predicted
)

// Known reports whether this version knows the action.
func (a Action) Known() bool {
	switch a {
	case Create, Update, Replace, Delete, Import, Move, Read, Forget, Recover, Run:
		return true
	}
	return false
}

// Order is the order of the two parts of a replace.
type Order string

// The orders.
const (
	DeleteFirst Order = "delete-first"
	CreateFirst Order = "create-first"
)

// Change is what happens to one object. Before and After are masked: a sensitive value is Sensitive, and an unknown one is
// Unknown. For an update, a replace and an import they have only the attributes that differ; lists are whole.
type Change struct {
	Address    string   `json:"address" doc:"Unique in the component: the address of a resource, an object's kind, namespace and name, a command"`
	Kind       string   `json:"kind,omitempty" doc:"Type of the object, such as aws_instance, apps/v1 Deployment, script"`
	Action     Action   `json:"action" doc:"create, update, replace, delete, import, move, read, forget, recover or run; later versions may have more"`
	Order      Order    `json:"order,omitempty" doc:"Of a replace: delete-first or create-first"`
	Previous   string   `json:"previous,omitempty" doc:"The address before a move"`
	Reason     string   `json:"reason,omitempty" doc:"The tool's reason for the action"`
	Unverified bool     `json:"unverified,omitempty" doc:"The server could not check the object before the apply, because something that it needs does not exist yet"`
	Before     any      `json:"before,omitempty" doc:"Masked values"`
	After      any      `json:"after,omitempty" doc:"Masked values"`
	Changed    []string `json:"changed,omitempty" doc:"JSON pointers of the values that differ"`
	Unknown    []string `json:"unknown,omitempty" doc:"JSON pointers into after: values that are known after the apply"`
	Sensitive  []string `json:"sensitive,omitempty" doc:"JSON pointers into before and after: values that are hidden, or contain a hidden part"`
	Omitted    bool     `json:"values_omitted,omitempty" doc:"The values are left out because they are too large"`
}

// plain is a Set without its UnmarshalJSON.
type plain Set

// UnmarshalJSON keeps the numbers of values as json.Number: a float64 cannot hold all integers, and the digest of a change set
// that a person approved must be that of the runner's. A Change has no such method, because it would permit unknown fields also
// to a decoder that forbids them.
func (s *Set) UnmarshalJSON(b []byte) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	return dec.Decode((*plain)(s))
}

// Counts counts the changes of a set. Its fields are those of wire.Changes.
type Counts struct {
	Add     int  // of objects
	Change  int  // of objects
	Destroy int  // of objects
	Outputs bool // whether outputs change
	Run     int  // of programs
}

// The limits of a set, in bytes of JSON. The whole plan stays with the customer; a person reads the set before approving it.
const (
	maxSet     = 200 << 10
	maxValues  = 16 << 10 // of one change
	maxAddress = 2 << 10
)

// Builder builds a Set. It counts all changes, and leaves out those that do not fit. Not safe for concurrent use.
type Builder struct {
	// KeepAll makes All return the changes. It must be set before the first one.
	KeepAll bool

	set    Set
	counts Counts
	size   int
	all    []Change
}

// All returns all changes of objects, also those that the set leaves out, with their values. A policy decides about all of them,
// not about those that a person is shown.
func (b *Builder) All() []Change { return b.all }

// Add adds the change of an object.
func (b *Builder) Add(c Change) error {
	switch c.Action {
	case Create:
		b.counts.Add++
	case Update, Recover:
		b.counts.Change++
	case Replace:
		b.counts.Add++
		b.counts.Destroy++
	case Delete:
		b.counts.Destroy++
	case Import:
		if len(c.Changed) > 0 {
			b.counts.Change++
		}
	case Run:
		b.counts.Run++
	}
	if b.KeepAll {
		b.all = append(b.all, c)
	}
	return b.append(&b.set.Changes, c)
}

// Fetch adds modules that the plan fetched.
func (b *Builder) Fetch(all []Module) {
	for _, m := range all {
		size := len(m.Address) + len(m.Source) + len(m.Version) + len(m.Commit)
		if b.size+size > maxSet || size > 2*maxAddress {
			b.set.Omitted++
			continue
		}
		b.size += size
		b.set.Fetched = append(b.set.Fetched, m)
	}
}

// Output adds the change of an output.
func (b *Builder) Output(c Change) error {
	b.counts.Outputs = true
	return b.append(&b.set.Outputs, c)
}

func (b *Builder) append(to *[]Change, c Change) error {
	text, err := json.Marshal([]any{c.Before, c.After, c.Changed, c.Unknown, c.Sensitive})
	if err == nil && len(text) > maxValues {
		c.Before, c.After, c.Changed, c.Unknown, c.Sensitive, c.Omitted = nil, nil, nil, nil, nil, true
	}
	if err == nil {
		text, err = json.Marshal(c)
	}
	if err != nil {
		return fmt.Errorf("encode the change of %s: %w", c.Address, err)
	}
	if b.size+len(text) > maxSet || len(c.Address) > maxAddress {
		b.set.Omitted++
		return nil
	}
	b.size += len(text) + 1
	*to = append(*to, c)
	return nil
}

// Set returns the set with its base, which may be nil.
func (b *Builder) Set(base *Base) *Set {
	s := b.set
	s.V, s.Base = Version, base
	if s.Changes == nil {
		s.Changes = []Change{} // in JSON a list
	}
	return &s
}

// Counts returns the number of all changes, also of those that the set leaves out.
func (b *Builder) Counts() Counts { return b.counts }
