package terraform

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/hashicorp/terraform-exec/tfexec"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
)

// migrate copies states from one storage to another, one after the other, and
// reads each back. It removes nothing: whoever asked for it goes on with the new
// storage once all of it succeeded, and else with the old one, which is as it
// was. Whatever an earlier attempt has left is gone on with.
func (p *Plugin) migrate(ctx context.Context, spec plugin.Spec, env plugin.Env) (plugin.Result, error) {
	if len(spec.Move) == 0 {
		return plugin.Result{}, plugin.Errorf(fairlead.ReasonSpecInvalid, "the job spec of this %s names no states", spec.Operation)
	}
	j := &job{p: p, spec: spec, env: env}
	defer j.close()
	var err error
	if j.tool, err = p.findTool(ctx); err != nil {
		return plugin.Result{}, err
	}
	if j.launch, err = j.tool.makeLauncher(env.Workspace); err != nil {
		return plugin.Result{}, err
	}
	if err := os.Mkdir(j.path("tmp"), 0o700); err != nil {
		return plugin.Result{}, fmt.Errorf("lay out the workspace: %w", err)
	}
	for _, m := range spec.Move {
		if err := j.move(ctx, m); err != nil {
			if e, ok := errors.AsType[*plugin.Error](err); ok {
				return j.result(err), &plugin.Error{Reason: e.Reason, Err: err,
					Message: fmt.Sprintf("the state of component %s was not moved: %s Nothing is lost: the install goes on with the old storage, and the migration can be repeated.", m.Component, e.Message)}
			}
			return j.result(err), fmt.Errorf("move the state of component %s: %w", m.Component, err)
		}
	}
	return plugin.Result{ExitCode: new(int)}, nil
}

// move copies one state, unless there is none.
func (j *job) move(ctx context.Context, m events.MovedState) error {
	from, old, err := j.end(ctx, m.From, "from")
	if err != nil {
		return err
	}
	if old == nil {
		fmt.Fprintf(j.env.Log, "%s: there is no state in %s\n", m.Component, m.From.Storage)
		return nil
	}
	to, there, err := j.end(ctx, m.To, "to")
	if err != nil {
		return err
	}
	// Twice at most: where nothing was, the tools write a state as the first of a
	// new lineage, and keep the one that they are given only the second time.
	for range 2 {
		if there.holds(old) {
			break
		}
		options, ok := over(there, old)
		if !ok {
			return plugin.Errorf(fairlead.ReasonStateConflict, "in %s there is another state (serial %d, lineage %s) than the one that was to go there (serial %d, lineage %s). Look at both, and remove the one that is wrong.",
				orKind(to.conf), there.serial, there.lineage, old.serial, old.lineage)
		}
		if err := to.push(ctx, old.raw, options...); err != nil {
			return j.at(to, err)
		}
		if there, err = to.read(ctx); err != nil {
			return j.at(to, err)
		}
	}
	if !there.holds(old) {
		return plugin.Errorf(fairlead.ReasonStateUnverified, "what was read back from %s is not what was written there.", orKind(to.conf))
	}
	again, err := from.read(ctx)
	if err != nil {
		return j.at(from, err)
	}
	if again == nil || again.serial != old.serial || again.sum != old.sum {
		return plugin.Errorf(fairlead.ReasonStateMoving, "the state in %s was changed while it was copied. Find out who works on it.", orKind(from.conf))
	}
	fmt.Fprintf(j.env.Log, "%s: copied from %s to %s and read back: lineage %s, serial %d as %d, sha256 %s\n",
		m.Component, orKind(from.conf), orKind(to.conf), old.lineage, old.serial, there.serial, old.sum)
	return nil
}

// over says how the tool writes a state over the one that is there, if it may:
// over none; over an older one of the same lineage, which the tool checks again
// under its lock; over what the first half of a copy has left, which is the same
// but for its lineage; and over what a tool leaves of a component that it has
// destroyed there once, which records nothing.
func over(there, old *copied) (options []tfexec.StatePushCmdOption, ok bool) {
	options = append(options, tfexec.Lock(true)) // which terraform-exec leaves out otherwise
	switch {
	case there == nil, there.lineage == old.lineage && there.serial < old.serial:
		return options, true
	case there.sum == old.sum && there.serial <= 1, there.empty && there.lineage != old.lineage:
		return append(options, tfexec.Force(true)), true
	}
	return nil, false
}

// end makes one end of a migration ready, and reads what is there.
func (j *job) end(ctx context.Context, ref events.StateRef, name string) (*slot, *copied, error) {
	if err := os.Remove(j.path(name)); err != nil && !os.IsNotExist(err) { // the link of the component before
		return nil, nil, fmt.Errorf("lay out the workspace: %w", err)
	}
	st, err := j.p.openStorage(j, ref, name)
	if err != nil {
		return nil, nil, err
	}
	s, err := j.openSlot(ctx, name, st)
	if err != nil {
		j.elsewhere = st
		return nil, nil, j.failed(err, fairlead.ReasonInitFailed)
	}
	there, err := s.read(ctx)
	return s, there, j.at(s, err)
}

// at gives a failure of the tool at one end its reason, unless it has one.
func (j *job) at(s *slot, err error) error {
	if _, ok := errors.AsType[*plugin.Error](err); ok {
		return err
	}
	j.elsewhere = onlyBackend{conf: s.conf}
	return j.failed(err, fairlead.ReasonToolFailed)
}

func orKind(b backend) string {
	if b.where != "" {
		return b.where
	}
	return b.kind
}

// copied is a state that is being moved.
type copied struct {
	raw     []byte
	serial  int64
	lineage string
	sum     string // of all the rest of it
	empty   bool   // no resource is in it
}

// holds reports whether c, which may be nil, is o: of the same content and
// lineage, and no older. A tool counts what it writes, so its serial may be
// higher.
func (c *copied) holds(o *copied) bool {
	return c != nil && c.sum == o.sum && c.lineage == o.lineage && c.serial >= o.serial
}

// read returns the state in the slot's storage, nil if there is none.
func (s *slot) read(ctx context.Context) (*copied, error) {
	raw, err := s.pull(ctx)
	if te, ok := errors.AsType[*toolError](err); ok && strings.Contains(te.stderr, "encrypt") {
		return nil, &plugin.Error{Reason: fairlead.ReasonStateUnreadable, Err: err, Message: "its module encrypts it, and without that module it cannot be read. Apply the module once without the encryption."}
	}
	if raw == nil || err != nil {
		return nil, err
	}
	c, err := parse(raw)
	if err == nil && c.lineage == "" {
		return nil, nil // what the tools print where there is none
	}
	return c, err
}

// parse takes a state apart. What the tool says of itself is no part of it.
func parse(raw []byte) (*copied, error) {
	c := &copied{raw: raw}
	var head struct {
		Version int
		Serial  int64
		Lineage string

		Resources []json.RawMessage
	}
	rest := map[string]any{}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber() // a number is what its digits say
	if err := errors.Join(json.Unmarshal(raw, &head), dec.Decode(&rest)); err != nil || head.Version != 4 {
		return nil, plugin.Errorf(fairlead.ReasonStateUnreadable, "the state is encrypted or of an unknown version.")
	}
	c.serial, c.lineage, c.empty = head.Serial, head.Lineage, len(head.Resources) == 0
	for _, name := range []string{"serial", "lineage", "terraform_version"} {
		delete(rest, name)
	}
	b, err := json.Marshal(rest)
	if err != nil {
		return nil, fmt.Errorf("encode a state: %w", err)
	}
	c.sum = plugin.Digest(b)
	return c, nil
}
