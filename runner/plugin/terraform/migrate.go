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

// migrate copies states from one storage to another, one after the other, and reads each copy back. It removes nothing.
// Once all copies have succeeded, the control plane switches the install to the new storage. Otherwise the install keeps the
// old storage, which is unchanged. A repeated migration continues where the earlier attempt ended.
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
	if j.toolProgram, err = j.tool.makeLauncher(env.Workspace); err != nil {
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
	from, source, err := j.openEnd(ctx, m.From, "from")
	if err != nil {
		return err
	}
	if source == nil {
		fmt.Fprintf(j.env.Log, "%s: there is no state in %s\n", m.Component, m.From.Storage)
		return nil
	}
	to, target, err := j.openEnd(ctx, m.To, "to")
	if err != nil {
		return err
	}
	// Push at most twice. When the tools push a state to an empty storage, they write it with a new lineage. Only the second
	// push keeps the state's own lineage.
	for range 2 {
		if target.isCopyOf(source) {
			break
		}
		options, ok := pushOptions(target, source)
		if !ok {
			return plugin.Errorf(fairlead.ReasonStateConflict, "%s already has another state (serial %d, lineage %s) than the one to move (serial %d, lineage %s). Compare both, and remove the wrong one.",
				locationOf(to.conf), target.serial, target.lineage, source.serial, source.lineage)
		}
		if err := to.push(ctx, source.raw, options...); err != nil {
			return j.slotError(to, err)
		}
		if target, err = to.read(ctx); err != nil {
			return j.slotError(to, err)
		}
	}
	if !target.isCopyOf(source) {
		return plugin.Errorf(fairlead.ReasonStateUnverified, "the state read back from %s differs from the one written.", locationOf(to.conf))
	}
	again, err := from.read(ctx)
	if err != nil {
		return j.slotError(from, err)
	}
	if again == nil || again.serial != source.serial || again.digest != source.digest {
		return plugin.Errorf(fairlead.ReasonStateMoving, "the state in %s changed during the copy. Find out what else changes it.", locationOf(from.conf))
	}
	fmt.Fprintf(j.env.Log, "%s: copied from %s to %s and read back: lineage %s, serial %d as %d, sha256 %s\n",
		m.Component, locationOf(from.conf), locationOf(to.conf), source.lineage, source.serial, target.serial, source.digest)
	return nil
}

// pushOptions returns the options for replacing the target's state with source. ok reports whether the replacement is
// allowed. It is allowed if the target has
//   - no state: target is nil;
//   - an older state of the same lineage, which the tool checks again under its lock;
//   - the result of a copy's first push, which differs only in its lineage;
//   - the state without resources that a tool leaves of a destroyed component.
func pushOptions(target, source *stateCopy) (options []tfexec.StatePushCmdOption, ok bool) {
	options = append(options, tfexec.Lock(true)) // terraform-exec omits it by default
	switch {
	case target == nil, target.lineage == source.lineage && target.serial < source.serial:
		return options, true
	case target.digest == source.digest && target.serial <= 1, target.empty && target.lineage != source.lineage:
		return append(options, tfexec.Force(true)), true
	}
	return nil, false
}

// openEnd opens the source or the target of a migration and reads its state. The *stateCopy is nil if there is no state.
func (j *job) openEnd(ctx context.Context, ref events.StateRef, name string) (*slot, *stateCopy, error) {
	if err := os.Remove(j.path(name)); err != nil && !os.IsNotExist(err) { // the link of the previous component
		return nil, nil, fmt.Errorf("create the workspace: %w", err)
	}
	st, err := j.p.openStorage(j, ref, name)
	if err != nil {
		return nil, nil, err
	}
	s, err := j.openSlot(ctx, name, st)
	if err != nil {
		j.otherPlace = st
		return nil, nil, j.failed(err, fairlead.ReasonInitFailed)
	}
	state, err := s.read(ctx)
	return s, state, j.slotError(s, err)
}

// slotError gives a failure of the tool in a slot a typed reason, unless it has one. It returns nil for nil.
func (j *job) slotError(s *slot, err error) error {
	if _, ok := errors.AsType[*plugin.Error](err); ok {
		return err
	}
	j.otherPlace = backendOnly{conf: s.conf}
	return j.failed(err, fairlead.ReasonToolFailed)
}

// locationOf returns the name of a backend's storage for a message: its location, or its kind if it has none.
func locationOf(b backend) string {
	if b.where != "" {
		return b.where
	}
	return b.kind
}

// stateCopy is a state that migrate copies.
type stateCopy struct {
	raw     []byte
	serial  int64
	lineage string
	digest  string // of the state without its lineage, its serial and the tool's version
	empty   bool   // it has no resources
}

// isCopyOf reports whether c, which may be nil, is a copy of o: same content, same lineage, and no lower serial. A tool
// increments the serial with each write, so the copy's serial may be higher.
func (c *stateCopy) isCopyOf(o *stateCopy) bool {
	return c != nil && c.digest == o.digest && c.lineage == o.lineage && c.serial >= o.serial
}

// read returns the state in the slot's storage, or nil if there is none.
func (s *slot) read(ctx context.Context) (*stateCopy, error) {
	raw, err := s.pull(ctx)
	if te, ok := errors.AsType[*toolError](err); ok && strings.Contains(te.stderr, "encrypt") {
		return nil, &plugin.Error{Reason: fairlead.ReasonStateUnreadable, Err: err, Message: "its module encrypts the state, and the state cannot be read without that module. Apply the module once without the encryption."}
	}
	if raw == nil || err != nil {
		return nil, err
	}
	c, err := parse(raw)
	if err == nil && c.lineage == "" {
		return nil, nil // if there is no state, the tools print one without a lineage
	}
	return c, err
}

// parse splits a state into its parts.
func parse(raw []byte) (*stateCopy, error) {
	c := &stateCopy{raw: raw}
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
	c.digest = plugin.Digest(b)
	return c, nil
}
