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

// migrate copies states from one storage to another, one after the other, and reads each back. It removes nothing. Once
// all copies have succeeded, the control plane switches the install to the new storage; otherwise the install keeps the
// old one, unchanged. A migration continues what an earlier attempt left.
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
		return plugin.Result{}, fmt.Errorf("create the workspace: %w", err)
	}
	for _, m := range spec.Move {
		if err := j.move(ctx, m); err != nil {
			if e, ok := errors.AsType[*plugin.Error](err); ok {
				return j.result(err), &plugin.Error{Reason: e.Reason, Err: err,
					Message: fmt.Sprintf("the state of component %s was not moved: %s Nothing is lost: the install keeps the old storage, and you can repeat the migration.", m.Component, e.Message)}
			}
			return j.result(err), fmt.Errorf("move the state of component %s: %w", m.Component, err)
		}
	}
	return plugin.Result{ExitCode: new(int)}, nil
}

// move copies one state, if it exists.
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
	// Push at most twice. The tools write a state to an empty place with a new lineage, and keep the given lineage only in
	// the second push.
	for range 2 {
		if there.holds(old) {
			break
		}
		options, ok := over(there, old)
		if !ok {
			return plugin.Errorf(fairlead.ReasonStateConflict, "%s already has another state (serial %d, lineage %s) than the one to move (serial %d, lineage %s). Compare both, and remove the wrong one.",
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
		return plugin.Errorf(fairlead.ReasonStateUnverified, "the state read back from %s differs from the one written.", orKind(to.conf))
	}
	again, err := from.read(ctx)
	if err != nil {
		return j.at(from, err)
	}
	if again == nil || again.serial != old.serial || again.sum != old.sum {
		return plugin.Errorf(fairlead.ReasonStateMoving, "the state in %s changed during the copy. Find out what else changes it.", orKind(from.conf))
	}
	fmt.Fprintf(j.env.Log, "%s: copied from %s to %s and read back: lineage %s, serial %d as %d, sha256 %s\n",
		m.Component, orKind(from.conf), orKind(to.conf), old.lineage, old.serial, there.serial, old.sum)
	return nil
}

// over returns the options for pushing old over there, if that is allowed. It is allowed over no state; over an older one
// of the same lineage, which the tool checks again under its lock; over the first push of a copy, which differs only in
// its lineage; and over the state that a tool leaves of a destroyed component, which has no resources.
func over(there, old *copied) (options []tfexec.StatePushCmdOption, ok bool) {
	options = append(options, tfexec.Lock(true)) // terraform-exec omits it by default
	switch {
	case there == nil, there.lineage == old.lineage && there.serial < old.serial:
		return options, true
	case there.sum == old.sum && there.serial <= 1, there.empty && there.lineage != old.lineage:
		return append(options, tfexec.Force(true)), true
	}
	return nil, false
}

// end opens one side of a migration and reads its state.
func (j *job) end(ctx context.Context, ref events.StateRef, name string) (*slot, *copied, error) {
	if err := os.Remove(j.path(name)); err != nil && !os.IsNotExist(err) { // the link of the component before
		return nil, nil, fmt.Errorf("create the workspace: %w", err)
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

// at gives a failure of the tool in a slot a typed reason, unless it has one.
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

// copied is a state that migrate moves.
type copied struct {
	raw     []byte
	serial  int64
	lineage string
	sum     string // digest of everything else in it
	empty   bool   // it has no resources
}

// holds reports whether c, which may be nil, is a copy of o: same content, same lineage, and no lower serial. A tool
// increments the serial with each write, so it may be higher.
func (c *copied) holds(o *copied) bool {
	return c != nil && c.sum == o.sum && c.lineage == o.lineage && c.serial >= o.serial
}

// read returns the state in the slot's storage, or nil if there is none.
func (s *slot) read(ctx context.Context) (*copied, error) {
	raw, err := s.pull(ctx)
	if te, ok := errors.AsType[*toolError](err); ok && strings.Contains(te.stderr, "encrypt") {
		return nil, &plugin.Error{Reason: fairlead.ReasonStateUnreadable, Err: err, Message: "its module encrypts the state, and the state cannot be read without that module. Apply the module once without the encryption."}
	}
	if raw == nil || err != nil {
		return nil, err
	}
	c, err := parse(raw)
	if err == nil && c.lineage == "" {
		return nil, nil // the tools print this if there is no state
	}
	return c, err
}

// parse splits a state into its parts. The sum excludes the tool's version.
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
	dec.UseNumber() // keeps every digit of a number
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
