package runners

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/placement"
	"github.com/fairlead/fairlead/pkg/queue"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/store"
)

// RunnerFile is the configuration of a runner, or a part of it, as a person wrote it.
type RunnerFile struct {
	Name string   `json:"name,omitempty"` // file name for problems
	Text string   `json:"text,omitempty"` // YAML or JSON
	Set  []string `json:"set,omitempty"`  // fields that override fields of the text, in the form of runnerspec.Parse
}

func (f RunnerFile) empty() bool { return f.Text == "" && len(f.Set) == 0 }

func (f RunnerFile) name() string { return cmp.Or(f.Name, "runner") }

// NewRunner is a request to create a runner. Without a File, the runner has the kind
// local and serves the whole org.
type NewRunner struct {
	Name        string `json:"name"` // may be empty if the file contains it
	Description string `json:"description"`
	Storage     string `json:"storage"` // "local" or "http"; must be empty if there is a File
	// Registry reports whether a runner without a File keeps images in the control plane's registry.
	Registry bool `json:"registry,omitempty"`
	// Builds reports whether a runner without a File builds the org's apps.
	Builds bool       `json:"builds,omitempty"`
	File   RunnerFile `json:"file,omitzero"`
	// AWSRole is the ARN, with path, of the role that agents of the runner authenticate
	// with. AWSRoleID is the role's unique identifier, which begins with AROA.
	// If only the ARN is set, the first role with this ARN that authenticates fixes the
	// identifier.
	AWSRole   string `json:"aws_role,omitempty"`
	AWSRoleID string `json:"aws_role_id,omitempty"`
}

// spec parses and checks the configuration of the new runner.
func (in NewRunner) spec() (*runnerspec.Spec, []string, error) {
	if in.File.empty() {
		if in.Storage != "" && in.Storage != "local" && in.Storage != "http" {
			return nil, nil, fairlead.Invalid(fairlead.CodeInvalidStorage, "%q is not a state storage of a runner without a configuration: use local or http", in.Storage)
		}
		in.File.Set = []string{"runner_configuration.type=local", "state_storage_configuration.type=" + cmp.Or(in.Storage, "local")}
		in.File.Set = append(in.File.Set, settingOf("description", in.Description)...)
		if in.Builds {
			in.File.Set = append(in.File.Set, "runner_configuration.builds=true")
		}
		if in.Registry {
			in.File.Set = append(in.File.Set, "registry.type="+string(runnerspec.ControlPlaneRegistry))
		}
	} else if in.Storage != "" || in.Description != "" {
		return nil, nil, fairlead.Invalid(fairlead.CodeInvalidRunner, "description and state storage are set twice: the configuration contains both")
	}
	r := runnerspec.Parse(in.File.name(), []byte(in.File.Text), in.File.Set...)
	if r.Spec == nil {
		return nil, nil, r.Problems.Err()
	}
	if r.Spec.ID != "" && in.Name != "" && r.Spec.ID != in.Name {
		return nil, nil, fairlead.Invalid(fairlead.CodeInvalidRunner, "the request names the runner %s, and its configuration names it %s", in.Name, r.Spec.ID)
	}
	r.Spec.ID = cmp.Or(r.Spec.ID, in.Name)
	return r.Spec, warnings(r.Warnings), fairlead.CheckName("runner", r.Spec.ID)
}

// settingOf returns a setting of the field path. The value is quoted, so that it is
// always parsed as text. For an empty text it returns no setting.
func settingOf(path, text string) []string {
	if text == "" {
		return nil
	}
	quoted, err := json.Marshal(text)
	if err != nil {
		return nil // a string always encodes
	}
	return []string{path + "=" + string(quoted)}
}

func warnings(ps runnerspec.Problems) []string {
	var out []string
	for _, p := range ps {
		out = append(out, p.String())
	}
	return out
}

// unserved returns a warning if no agent serves the runner: its jobs would wait without
// an error.
func (f *Fleet) unserved(spec *runnerspec.Spec) []string {
	if f.Direct || !spec.Direct() {
		return nil
	}
	return []string{"no agent beside this control plane serves such a runner, so its jobs wait. Use a server that is built with `-tags clusters`, or on AWS `make deploy DIRECT_LAUNCH=on`; " +
		"or remove the settings by which the control plane reaches it, and install an agent there."}
}

// CreateRunner creates a runner of the org.
func (f *Fleet) CreateRunner(ctx context.Context, org fairlead.OrgID, in NewRunner, key string) (Runner, error) {
	return f.createRunner(ctx, org, org, in, key)
}

// CreateSharedRunner creates a runner that serves the installs of all orgs. Only an
// operator can do so.
func (f *Fleet) CreateSharedRunner(ctx context.Context, by kernel.User, in NewRunner, key string) (Runner, error) {
	if !by.Operator {
		return Runner{}, operatorOnly("only an operator creates shared runners")
	}
	return f.createRunner(ctx, "", by.Org, in, key)
}

func operatorOnly(message string) error {
	return &fairlead.Error{Kind: fairlead.KindForbidden, Code: fairlead.CodeOperatorOnly, Message: message,
		Hint: "Ask the operator of the control plane. Your own runners take precedence over shared ones."}
}

// createRunner creates a runner of the org owner, or a shared runner if owner is empty.
// org is the caller's org.
func (f *Fleet) createRunner(ctx context.Context, owner, org fairlead.OrgID, in NewRunner, key string) (Runner, error) {
	spec, warned, err := in.spec()
	if err != nil {
		return Runner{}, err
	}
	if owner == "" && spec.Group+spec.Install != "" {
		return Runner{}, fairlead.Invalid(fairlead.CodeInvalidRunner, "a shared runner serves every org, so it names neither a group nor an install")
	}
	if err := f.serves(spec); err != nil {
		return Runner{}, err
	}
	if _, err := trustOf(in, f.Now()); err != nil {
		return Runner{}, err
	}
	id, name := fairlead.RunnerID(f.IDs(fairlead.PrefixRunner)), spec.ID
	err = f.Transact(ctx, "create runner "+spec.ID, func(tx *kernel.Tx) error {
		// Read the runner before the key. If an equal concurrent request commits
		// between the two reads, the second read finds its key.
		old, found := FindRunner(tx, org, spec.ID)
		made, err := tx.Seen(kernel.Once{Org: org, Route: "create-runner " + string(owner), Key: key, Body: in}, spec.ID)
		if err != nil || made != "" {
			name = made
			return err
		}
		if err = found; err == nil && old.V.ID == id {
			return nil // our own earlier commit, whose outcome was unclear
		}
		if err == nil {
			return fairlead.Conflict(fairlead.CodeRunnerExists, "runner %q already exists", spec.ID)
		}
		if fairlead.KindOf(err) != fairlead.KindNotFound {
			return err
		}
		r := store.Stored[store.Runner]{V: store.Runner{ID: id, Org: owner, Name: spec.ID, Created: tx.Now}}
		if r.V.Trust, err = trustOf(in, tx.Now); err != nil {
			return err
		}
		if err := configure(tx, &r.V, spec); err != nil {
			return err
		}
		tx.PutRunner(r)
		return nil
	})
	if err != nil {
		return Runner{}, err
	}
	out, err := f.Runner(ctx, org, name)
	if err != nil {
		return Runner{}, err
	}
	out.Warnings = append(warned, f.unserved(spec)...)
	if err := f.makeQueue(ctx, out.ID, out.Name); err != nil {
		f.Logger.Warn("cannot create the queue of a new runner; the first wake-up creates it", "error", err)
	}
	return out, nil
}

// makeQueue creates the runner's queue, if the queue driver can create queues before
// their first use. The control plane must create the queue, because agents that poll
// their queue directly are not permitted to create it. The tag assigns the queue's cost
// to the runner, which may serve several installs.
func (f *Fleet) makeQueue(ctx context.Context, id fairlead.RunnerID, name string) error {
	m, ok := f.Queue.(queue.Maker)
	if !ok {
		return nil
	}
	if err := m.Make(ctx, kernel.QueueName(id), map[string]string{"fairlead-runner": string(id)}); err != nil {
		return fmt.Errorf("create the queue of runner %s: %w", name, err)
	}
	return nil
}

// MakeQueues creates the missing queues of the runners that serve the org. It returns the
// number of these runners; 0 if the queue driver creates queues at their first use.
func (f *Fleet) MakeQueues(ctx context.Context, orgs []fairlead.OrgID) (int, error) {
	if _, ok := f.Queue.(queue.Maker); !ok {
		return 0, nil
	}
	n := 0
	for _, owner := range append(slices.Clone(orgs), "") { // "": shared runners
		all, err := f.Store.AllRunners(ctx, owner)
		if err != nil {
			return n, fmt.Errorf("list the runners: %w", err)
		}
		for _, r := range all {
			if err := f.makeQueue(ctx, r.V.ID, r.V.Name); err != nil {
				return n, err
			}
			n++
		}
	}
	return n, nil
}

// EnsureRunner creates the runner unless it exists.
func (f *Fleet) EnsureRunner(ctx context.Context, org fairlead.OrgID, in NewRunner) error {
	_, err := f.CreateRunner(ctx, org, in, "")
	if fairlead.CodeOf(err) == fairlead.CodeRunnerExists {
		return nil
	}
	if err != nil {
		return fmt.Errorf("create runner %s: %w", in.Name, err)
	}
	return nil
}

// configContext binds a sealed configuration to its runner.
func configContext(id fairlead.RunnerID) string { return "runner/" + string(id) + "/configuration" }

// configure sets the runner's configuration and seals its secrets. The group or install
// that the configuration names must exist.
func configure(tx *kernel.Tx, r *store.Runner, spec *runnerspec.Spec) error {
	if err := serveScope(tx, r, spec); err != nil {
		return err
	}
	r.Description, r.Kind = spec.Description, string(spec.Runner.Kind())
	r.Storage, r.Place = string(spec.Storage.Kind()), spec.Storage.Place(string(r.ID))
	r.Env, r.Endpoint, r.Timeout = spec.Environment(), spec.JobEndpoint(), spec.JobTimeout()
	r.Direct, r.Builds = spec.Direct(), spec.Builds()
	r.Limit, r.StartTimeout, r.Grace, r.NoOutput = spec.Concurrency(), spec.StartTimeout(), spec.StopGrace(), spec.NoOutput()
	if err := followRelease(tx, r, spec); err != nil {
		return err
	}
	full, err := json.Marshal(spec)
	if err != nil {
		return fmt.Errorf("encode the configuration of runner %s: %w", r.Name, err)
	}
	r.Config, r.Sealed = full, nil
	if len(spec.Secrets()) > 0 {
		if r.Config, err = json.Marshal(spec.Masked()); err != nil {
			return fmt.Errorf("encode the configuration of runner %s: %w", r.Name, err)
		}
	}
	// The hash leaves out the secrets, because agents could guess the secrets from the
	// hash. The time makes each revision unique.
	sum := sha256.Sum256(append(binary.BigEndian.AppendUint64(nil, uint64(tx.Now.UnixNano())), r.Config...))
	r.Revision = hex.EncodeToString(sum[:8])
	if len(spec.Secrets()) == 0 {
		return nil
	}
	if r.Sealed, err = tx.Sealer.Seal(tx.Ctx, full, configContext(r.ID)); err != nil {
		return fmt.Errorf("seal the configuration of runner %s: %w", r.Name, err)
	}
	return nil
}

// serveScope moves the runner to the group or install that its configuration names.
func serveScope(tx *kernel.Tx, r *store.Runner, spec *runnerspec.Spec) error {
	group, err := placement.ParsePath(spec.Group)
	if err != nil {
		return err
	}
	if err := EnterGroup(tx, r.Org, group); err != nil {
		return err
	}
	if group != r.Group {
		tx.DropMember(r.Org, store.Member{Group: r.Group, Kind: store.MemberRunner, Name: r.Name})
	}
	tx.PutMember(r.Org, store.Member{Group: group, Kind: store.MemberRunner, Name: r.Name})
	r.Group, r.Install = group, ""
	if spec.Install == "" {
		return accountsFit(tx, r.ServiceAccounts, r.Org, r.Name, group)
	}
	inst, err := tx.Store.Install(tx.Ctx, r.Org, spec.Install)
	if err != nil {
		return err
	}
	r.Install = inst.V.ID
	return accountsFit(tx, r.ServiceAccounts, r.Org, r.Name, inst.V.Group)
}

// specOf opens the complete configuration of a runner.
func specOf(tx *kernel.Tx, r store.Runner) (*runnerspec.Spec, error) {
	raw := []byte(r.Config)
	if r.Sealed != nil {
		var err error
		if raw, err = tx.Sealer.Open(tx.Ctx, r.Sealed, configContext(r.ID)); err != nil {
			return nil, fmt.Errorf("open the configuration of runner %s: %w", r.Name, err)
		}
	}
	if len(raw) == 0 { // this runner was created before runners had a configuration
		spec, _, err := NewRunner{Name: r.Name, Description: r.Description, Storage: r.Storage}.spec()
		return spec, err
	}
	var spec runnerspec.Spec
	if err := json.Unmarshal(raw, &spec); err != nil {
		return nil, fmt.Errorf("decode the configuration of runner %s: %w", r.Name, err)
	}
	return &spec, nil
}

// configuration returns a runner's configuration as JSON with masked secrets.
func configuration(tx *kernel.Tx, r store.Runner) (json.RawMessage, error) {
	if len(r.Config) > 0 {
		return r.Config, nil
	}
	spec, err := specOf(tx, r)
	if err != nil {
		return nil, err
	}
	return json.Marshal(spec)
}

// FindRunner returns the org's runner with the name. If the org has no such runner, it
// returns the shared runner with the name.
func FindRunner(tx *kernel.Tx, org fairlead.OrgID, name string) (store.Stored[store.Runner], error) {
	r, err := tx.Store.Runner(tx.Ctx, org, name)
	if fairlead.KindOf(err) != fairlead.KindNotFound {
		return r, err
	}
	shared, serr := tx.Store.Runner(tx.Ctx, "", name)
	if fairlead.KindOf(serr) == fairlead.KindNotFound {
		return shared, err
	}
	return shared, serr
}

// OwnRunner is FindRunner for a caller that changes the runner. Only an operator can
// change a shared runner.
func OwnRunner(tx *kernel.Tx, by kernel.User, name string) (store.Stored[store.Runner], error) {
	r, err := FindRunner(tx, by.Org, name)
	if err == nil && r.V.Shared() && !by.Operator {
		return r, operatorOnly(fmt.Sprintf("runner %s is shared with every org; only an operator can change it", name))
	}
	return r, err
}

// UpdateRunner changes parts of a runner's configuration, as runnerspec.Update
// describes. It refuses the update if an install that uses the runner would be outside
// of the runner's new scope.
func (f *Fleet) UpdateRunner(ctx context.Context, by kernel.User, name string, patch RunnerFile) (Runner, error) {
	var warned []string
	err := f.Transact(ctx, "update runner "+name, func(tx *kernel.Tx) error {
		r, err := OwnRunner(tx, by, name)
		if err != nil {
			return err
		}
		current, err := specOf(tx, r.V)
		if err != nil {
			return err
		}
		res := runnerspec.Update(current, patch.name(), []byte(patch.Text), patch.Set...)
		if res.Spec == nil {
			return res.Problems.Err()
		}
		if err := f.serves(res.Spec); err != nil {
			return err
		}
		warned = append(warnings(res.Warnings), f.unserved(res.Spec)...)
		if r.V.Shared() && res.Spec.Group+res.Spec.Install != "" {
			return fairlead.Invalid(fairlead.CodeInvalidRunner, "a shared runner serves every org, so it names neither a group nor an install")
		}
		before := r.V
		if err := configure(tx, &r.V, res.Spec); err != nil {
			return err
		}
		if before.Group != r.V.Group || before.Install != r.V.Install {
			if err := keepsReach(tx, r.V); err != nil {
				return err
			}
		}
		tx.PutRunner(r)
		return nil
	})
	if err != nil {
		return Runner{}, err
	}
	out, err := f.Runner(ctx, by.Org, name)
	out.Warnings = warned
	return out, err
}

// PlaceOf returns the group or the install that the configuration of a new runner names; neither: it serves the whole org.
func PlaceOf(in NewRunner) (group, install string, err error) {
	spec, _, err := in.spec()
	if err != nil {
		return "", "", err
	}
	return spec.Group, spec.Install, nil
}

// PlaceAfter returns the group or the install that a runner's configuration would name after an update.
func (f *Fleet) PlaceAfter(ctx context.Context, by kernel.User, name string, patch RunnerFile) (group, install string, err error) {
	tx := f.Reading(ctx)
	r, err := OwnRunner(tx, by, name)
	if err != nil {
		return "", "", err
	}
	current, err := specOf(tx, r.V)
	if err != nil {
		return "", "", err
	}
	res := runnerspec.Update(current, patch.name(), []byte(patch.Text), patch.Set...)
	if res.Spec == nil {
		return "", "", res.Problems.Err()
	}
	return res.Spec.Group, res.Spec.Install, nil
}

// A request first notes that an install is about to use a runner, and then binds the
// install to the runner. bindWithin is the longest time between the note and the binding.
// It is far longer than any request. An older note without a binding is left from an
// interrupted request and is ignored.
const bindWithin = 10 * time.Minute

// EachUse calls fn for each install that uses the runner, or may be about to use it. It
// stops when fn returns false.
func EachUse(tx *kernel.Tx, id fairlead.RunnerID, fn func(store.RunnerUse, store.Install) bool) error {
	uses := func(q fairlead.PageQuery) (store.Page[store.RunnerUse], error) {
		return tx.Store.RunnerUses(tx.Ctx, id, q)
	}
	for use, err := range store.Pages(uses) {
		if err != nil {
			return err
		}
		inst, err := store.Optional(tx.Store.Install(tx.Ctx, use.V.Org, use.V.Name))
		if err != nil {
			return err
		}
		if inst.V.ID != use.V.Install {
			continue // the install was forgotten
		}
		has := inst.V.RunnerID == id || inst.V.Bound != nil && inst.V.Bound.Runner == id || inst.V.SandboxRunner != nil && inst.V.SandboxRunner.Runner == id || inst.V.Moving != nil && inst.V.Moving.To.Runner == id
		if (has || tx.Kernel.Now().Sub(use.V.At) < bindWithin) && !fn(use.V, inst.V) {
			return nil
		}
	}
	return nil
}

// keepsReach refuses a new scope that excludes an install which uses the runner.
func keepsReach(tx *kernel.Tx, r store.Runner) error {
	var lost []string
	err := EachUse(tx, r.ID, func(_ store.RunnerUse, inst store.Install) bool {
		if r.Install != "" && r.Install != inst.ID || r.Install == "" && !r.Group.Contains(inst.Group) {
			lost = append(lost, inst.Name)
		}
		return true
	})
	if err != nil || len(lost) == 0 {
		return err
	}
	return inUse(r.Name, lost, "Move them to another runner first: {install.refresh}.")
}

func inUse(runner string, by []string, hint string) error {
	const named = 20
	what := strings.Join(by[:min(len(by), named)], ", ")
	if len(by) > named {
		what += " and more"
	}
	return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeRunnerInUse,
		Message: fmt.Sprintf("runner %s is in use by %s", runner, what), Hint: hint}
}

// SetRunnerMode sets the vendor's mode of a runner.
func (f *Fleet) SetRunnerMode(ctx context.Context, by kernel.User, name string, mode fairlead.RunnerMode) (Runner, error) {
	if !slices.Contains(fairlead.RunnerModes(), mode) {
		return Runner{}, fairlead.Invalid(fairlead.CodeInvalidMode, "%q is not a mode of a runner: use enabled, paused, draining or disabled", mode)
	}
	err := f.Transact(ctx, "set mode of runner "+name, func(tx *kernel.Tx) error {
		r, err := OwnRunner(tx, by, name)
		if err != nil || r.V.VendorMode() == mode {
			return err
		}
		r.V.Mode = mode
		tx.PutRunner(r)
		return nil
	})
	if err != nil {
		return Runner{}, err
	}
	return f.Runner(ctx, by.Org, name)
}

// DeleteRunner deletes a runner that no install uses and no rule of the caller's org
// names.
func (f *Fleet) DeleteRunner(ctx context.Context, by kernel.User, name string) error {
	err := markUnused(fairlead.CodeRunnerInUse, func() error { return unused(f.Reading(ctx), by, name) },
		func(leaving bool) error { return f.markLeaving(ctx, by, name, leaving) })
	if err != nil {
		return err
	}
	var id fairlead.RunnerID
	err = f.Transact(ctx, "delete runner "+name, func(tx *kernel.Tx) error {
		r, err := OwnRunner(tx, by, name)
		if err != nil {
			return tx.Deleted(err)
		}
		if !r.V.Leaving {
			return inUse(name, []string{"another request"}, "Repeat the request.")
		}
		id = r.V.ID
		return dropRunner(tx, r)
	})
	if err != nil {
		return err
	}
	// No agent can read the queue any more, so a failed deletion of the queue does no harm.
	if err := f.Queue.Drop(context.WithoutCancel(ctx), kernel.QueueName(id)); err != nil {
		f.Logger.Warn("cannot delete the queue of a deleted runner", "queue", kernel.QueueName(id), "error", err)
	}
	return nil
}

// dropRunner deletes the runner with its own rules, its stack and its variables, and ends its sessions.
func dropRunner(tx *kernel.Tx, r store.Stored[store.Runner]) error {
	sessions, err := tx.Store.Sessions(tx.Ctx, r.V.ID, 20)
	if err != nil {
		return err
	}
	for _, s := range sessions {
		if !s.V.Ended && s.V.Expires.After(tx.Now) {
			s.V.Ended = true
			tx.PutSession(s)
		}
	}
	for _, trust := range r.V.Trusts {
		tx.DropTrust(r.V.ID, trust)
	}
	if err := dropAssignments(tx, r.V); err != nil {
		return err
	}
	if err := dropStackOf(tx, r.V.ID); err != nil {
		return err
	}
	tx.DropMember(r.V.Org, store.Member{Group: r.V.Group, Kind: store.MemberRunner, Name: r.V.Name})
	tx.DropVariables(r.V.Org, store.Scope{Kind: store.ScopeRunner, Name: string(r.V.ID)})
	tx.DeleteRunner(r)
	return nil
}

func (f *Fleet) markLeaving(ctx context.Context, by kernel.User, name string, leaving bool) error {
	return f.Transact(ctx, "delete runner "+name, func(tx *kernel.Tx) error {
		r, err := OwnRunner(tx, by, name)
		if err != nil || r.V.Leaving == leaving {
			return err
		}
		r.V.Leaving = leaving
		tx.PutRunner(r)
		return nil
	})
}

// unused returns an error with the names of the installs, and of the rules of the
// caller's org, that use the runner.
func unused(tx *kernel.Tx, by kernel.User, name string) error {
	used, err := usesOf(tx, by, name)
	if err != nil || len(used) == 0 {
		return err
	}
	return inUse(name, used, "Move the installs to another runner ({install.refresh}), and delete the rules ({rule.delete}).")
}

// usesOf names the installs, and the rules of the caller's org, that use a runner.
func usesOf(tx *kernel.Tx, by kernel.User, name string) ([]string, error) {
	r, err := OwnRunner(tx, by, name)
	if err != nil {
		return nil, err
	}
	var used []string
	err = EachUse(tx, r.V.ID, func(use store.RunnerUse, _ store.Install) bool {
		used = append(used, "install "+use.Name)
		return true
	})
	if err != nil {
		return nil, err
	}
	rules, err := tx.Store.AllRunnerRules(tx.Ctx, by.Org)
	if err != nil {
		return nil, err
	}
	for _, rule := range rules {
		if rule.V.Runner == r.V.ID {
			used = append(used, "rule "+string(rule.V.ID))
		}
	}
	return used, nil
}
