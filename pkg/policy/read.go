package policy

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // an image without the database would refuse every time zone

	version "github.com/hashicorp/go-version"

	"github.com/fairlead/fairlead/pkg/approval"
	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// MaxFileSize is the largest policy, in bytes.
const MaxFileSize = 64 << 10

// Problems holds all problems of a file, in its order.
type Problems []yamlnode.Problem

// Error returns one line for each problem.
func (ps Problems) Error() string { return yamlnode.Lines(ps) }

// Err returns nil if there is no problem, otherwise ps: a nil Problems in an error variable is not a nil error.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

// Operations lists the operations that a policy decides about: those on a customer's installs.
func Operations() []string {
	var names []string
	for _, o := range job.Operations() {
		if !o.OfRunner() {
			names = append(names, string(o))
		}
	}
	return names
}

func actions() []string {
	var names []string
	for _, a := range []changeset.Action{changeset.Create, changeset.Update, changeset.Replace, changeset.Delete, changeset.Import, changeset.Move,
		changeset.Read, changeset.Forget, changeset.Recover, changeset.Run} {
		names = append(names, string(a))
	}
	return names
}

var (
	days     = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"} // as time.Weekday counts
	programs = []string{LocalExec, RemoteExec, CopyFile, External}
	classes  = []string{Logs, Plans, Outputs, States}
)

// Rules returns the rules of a policy's fields.
func Rules() yamlnode.Rules { return rules(nil) }

// rules returns the rules, which report to r.
func rules(r *reader) yamlnode.Rules {
	oneOf := func(noun string, names []string) yamlnode.Check {
		return yamlnode.Check{Pattern: "^(?:" + strings.Join(names, "|") + ")$", Wants: noun + ": " + strings.Join(names, ", ")}
	}
	checked := func(c yamlnode.Check, valid func(text string) error) yamlnode.Check {
		c.Func = func(f yamlnode.Field, where string) {
			text, _ := f.Value.Value.(string)
			if err := valid(text); err != nil {
				r.Report(where, "invalid-value", fmt.Sprintf("%s %v", where, err), "")
			}
		}
		return c
	}
	count := yamlnode.Check{Schema: yamlnode.Schema{"minimum": 0}, Func: func(f yamlnode.Field, where string) {
		if number, _ := f.Value.Value.(json.Number); strings.HasPrefix(string(number), "-") {
			r.Report(where, "invalid-value", where+" must not be negative", "")
		}
	}}
	schemaVersion := yamlnode.Check{Schema: yamlnode.Schema{"const": Version}, Func: func(f yamlnode.Field, where string) {
		if number, _ := f.Value.Value.(json.Number); string(number) != strconv.Itoa(Version) {
			r.Report(where, "unknown-version", fmt.Sprintf("this runner knows version %d of policies only", Version), "Update the runner, or write the policy in that version.")
		}
	}}
	return yamlnode.Rules{Checks: map[string]yamlnode.Check{
		"version":     schemaVersion,
		"operation":   oneOf("an operation", Operations()),
		"type":        oneOf("a type of components", component.Names()),
		"provisioner": oneOf("a kind of programs", programs),
		"telemetry":   oneOf("a class", classes),
		"action":      oneOf("an action", actions()),
		"day":         oneOf("a day", days),
		"count":       count,
		"nonempty":    {Pattern: `.`, Wants: "a non-empty text", Max: 500},
		"source":      {Pattern: `^(?:app|[^\s]+[/:.][^\s]*|\*\*)$`, Wants: "a pattern of sources, such as git::https://github.com/acme/*", Max: 500},
		"image":       {Pattern: `^(?:[^\s/]+/[^\s]+|\*\*[^\s/]*)$`, Wants: "a pattern of images with their registry, such as registry.example.com/acme/**", Max: 500},
		"digest":      {Pattern: `^sha256:[0-9a-f]{64}$`, Wants: "a digest, sha256: and 64 hexadecimal digits"},
		"variable":    {Pattern: `^[A-Za-z_][A-Za-z0-9_]*\*?$`, Wants: "the name of an environment variable, or its beginning and *"},
		"clock":       {Pattern: `^(?:(?:[01][0-9]|2[0-3]):[0-5][0-9]|24:00)$`, Wants: "a time such as 22:00, in quotes"},
		"zone": checked(yamlnode.Check{Pattern: `^[A-Za-z]`, Wants: "a time zone"}, func(text string) error {
			_, err := zone(text)
			return err
		}),
		"signer": checked(yamlnode.Check{Pattern: `^[A-Za-z0-9+/]{43}=$`, Wants: "a public key, Ed25519 in base64"}, func(text string) error {
			if b, err := base64.StdEncoding.DecodeString(text); err != nil || len(b) != ed25519.PublicKeySize {
				return fmt.Errorf("is no public key")
			}
			return nil
		}),
		// Without a pattern, because a text with a pattern has no end of line.
		"approver": checked(yamlnode.Check{Wants: "a public key in PEM"}, func(text string) error {
			if _, err := approval.ParsePublic([]byte(text)); err != nil {
				return fmt.Errorf("is no public key as fairlead approval new-key prints it: %w", err)
			}
			return nil
		}),
		"constraint": checked(yamlnode.Check{Pattern: `.`, Wants: "a constraint on versions, such as \">= 5.0, < 7.0\", or *"}, func(text string) error {
			_, err := constraint(text)
			return err
		}),
	}}
}

func zone(name string) (*time.Location, error) {
	loc, err := time.LoadLocation(name)
	if err != nil || name == "Local" || name == "" { // Local differs from machine to machine
		return nil, fmt.Errorf("%s is no time zone", yamlnode.Quote(name))
	}
	return loc, nil
}

// constraint reads a constraint on versions; nil: every version.
func constraint(text string) (version.Constraints, error) {
	if text == "*" {
		return nil, nil
	}
	c, err := version.NewConstraint(text)
	if err != nil {
		return nil, fmt.Errorf("%s is no constraint on versions", yamlnode.Quote(text))
	}
	return c, nil
}

// reader reads a policy.
type reader struct{ *yamlnode.Reader }

// Parse reads a policy, YAML or JSON. If there is any problem, the policy is nil. It never panics.
func Parse(filename string, src []byte) (*Policy, Problems) {
	r := &reader{}
	r.Reader = yamlnode.NewReader(filename, rules(r))
	read := yamlnode.Read
	if json.Valid(src) {
		read = yamlnode.ReadJSON
	}
	root := r.Source(read, src, MaxFileSize, "")
	r.Put("", yamlnode.Node{Place: yamlnode.Place{Line: 1, Column: 1}})
	p := &Policy{lines: map[string]int{}, given: map[string]bool{}, zones: map[string]*time.Location{}}
	if len(r.Problems) == 0 {
		r.Struct(root, p, "")
		r.nulls(root, "")
		r.Controls(root)
	}
	if len(r.Problems) == 0 {
		r.whole(p)
	}
	if len(r.Problems) > 0 {
		return nil, Problems(yamlnode.Finish(r.Problems))
	}
	p.index(r, root)
	return p, nil
}

// nulls reports each value that is null, and each empty list in a rule. A field that is written and left empty could mean that
// nothing is permitted, or that nothing is restricted; the customer must write which.
func (r *reader) nulls(n yamlnode.Node, where string) {
	for _, f := range n.Fields {
		path := yamlnode.Join(where, f.Key)
		if f.Value.IsNull() {
			r.Report(path, "missing-value", path+" has no value", "Write [] or {} if nothing of it is permitted, or remove the field if it restricts nothing.")
		}
		if f.Value.Shape == yamlnode.List && len(f.Value.Items) == 0 && where != "" {
			r.Report(path, "missing-value", path+" is empty", "Remove the field, or write what it selects.")
		}
		r.nulls(f.Value, path)
	}
	for i, item := range n.Items {
		r.nulls(item, yamlnode.Join(where, strconv.Itoa(i+1)))
	}
}

// whole reports what concerns more than one field.
func (r *reader) whole(p *Policy) {
	for _, rule := range p.Deny {
		at := "deny." + rule.Name
		if len(rule.Types)+len(rule.Addresses)+len(rule.Actions)+len(rule.When) == 0 {
			r.Report(at, "missing-field", at+" has no condition", "A rule without a condition would deny each change: use operations or ceilings for that.")
		}
		for pointer, c := range rule.When {
			where := at + ".when." + pointer
			if !strings.HasPrefix(pointer, "/") {
				r.Report(where, "invalid-value", fmt.Sprintf("%s is no JSON pointer: it must begin with /", yamlnode.Quote(pointer)), "Such as /ingress/*/cidr_blocks/*.")
			}
			if (c.Is == nil) == (c.IsNot == nil) {
				r.Report(where, "conflicting-fields", where+" must have one of is and is_not", "")
			}
			for _, v := range slices.Concat(c.Is, c.IsNot) {
				if _, ok := scalar(v); !ok {
					r.Report(where, "wrong-type", where+" has a value that is no text, number or true or false", "")
				}
			}
		}
	}
	for _, w := range p.Windows {
		if w.From == "24:00" || w.From != "" && w.From == w.To {
			r.Report("windows."+w.Name+".from", "invalid-value", "the window "+yamlnode.Quote(w.Name)+" has no duration", "For a whole day, write from: \"00:00\" and to: \"24:00\".")
		}
	}
	for _, a := range p.Approvals {
		for _, o := range a.Operations {
			if !job.Operation(o).Mutates() {
				r.Report("approvals."+a.Name+".operations", "invalid-value", o+" changes nothing, so it needs no approval", "The operations that change something are apply, destroy and run.")
			}
		}
	}
}

// index records the lines of rules.
func (p *Policy) index(r *reader, root yamlnode.Node) {
	for _, f := range root.Fields {
		p.given[f.Key] = true
		p.lines[f.Key] = f.Line
		for _, g := range f.Value.Fields {
			p.lines[f.Key+"."+g.Key] = g.Line
			for _, h := range g.Value.Fields {
				p.lines[f.Key+"."+g.Key+"."+h.Key] = h.Line
			}
		}
	}
	for _, w := range p.Windows {
		p.zones[w.Name], _ = zone(w.TimeZone) // checked above
	}
}
