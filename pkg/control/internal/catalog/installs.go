package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/control/internal/runners"
	"github.com/fairlead/fairlead/pkg/diagnosis"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/installkey"
	"github.com/fairlead/fairlead/pkg/placement"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/store"
)

// NewInstall is a request to create an install.
type NewInstall struct {
	Name   string                     `json:"name"`
	App    string                     `json:"app"`
	Runner string                     `json:"runner"` // "": rules choose one at the first deployment
	Group  string                     `json:"group,omitempty"`
	Labels map[string]string          `json:"labels,omitempty"`
	Inputs map[string]json.RawMessage `json:"inputs"`
}

// Install is an install with its components.
type Install struct {
	fairlead.Actors
	ID      fairlead.InstallID
	Name    string
	App     string
	Runner  string // name of the runner that the install is bound to; if it is not bound, the runner that it names; "": rules choose one
	Bound   *Bound // nil before its first deployment
	Group   placement.Path
	Labels  map[string]string
	Inputs  map[string]Input
	Active  fairlead.DeploymentID
	Queue   []fairlead.DeploymentID
	Key     *InstallKey    // encrypts its secrets; nil: the control plane seals them
	Moving  fairlead.JobID // the job that moves its states; "": none
	Created time.Time
	// CustomerApproves: only people of the customer approve its plans.
	CustomerApproves bool

	Components []Component
	State      string                // new, deployed, partial, torn-down
	Parts      []diagnosis.Component // the same components with their states and locks, for a person
}

// InstallKey is the public key of an install, as its runner reported it.
type InstallKey struct {
	Public  installkey.Public
	Since   time.Time
	Changed *InstallKey // another key that was reported later; nil: none
}

// Bound is the runner that an install is bound to since its first deployment.
type Bound struct {
	Runner fairlead.RunnerID
	Org    fairlead.OrgID // "": a shared runner
	Name   string
}

// Input is a value that an install sets.
type Input struct {
	Value     json.RawMessage // nil: it is sensitive
	Sensitive bool
}

// Component is the recorded condition of a component in the customer's account.
type Component struct {
	Name       string
	State      string             // absent, present, failed, unknown
	Version    fairlead.VersionID // the version of its last apply
	Names      []string           // of the version
	Deployment fairlead.DeploymentID
	Updated    time.Time
}

// DefaultRunner is the runner on the machine of an embedded control plane.
const DefaultRunner = "local"

// CreateInstall creates an install of the app in a group. The request names its runner,
// or rules choose one at the first deployment. Inputs are checked against the app's
// newest version, except that the customer or, for sensitive ones, the vendor may give required ones later; sensitive ones are sealed before they are stored.
func (cat *Catalog) CreateInstall(ctx context.Context, org fairlead.OrgID, in NewInstall, key string) (Install, error) {
	if err := fairlead.CheckName("install", in.Name); err != nil {
		return Install{}, err
	}
	labels := placement.LabelsOf(in.Labels)
	if err := labels.Check(); err != nil {
		return Install{}, err
	}
	group, err := placement.ParsePath(in.Group)
	if err != nil {
		return Install{}, err
	}
	id := fairlead.InstallID(cat.IDs(fairlead.PrefixInstall))
	once := kernel.Once{Org: org, Route: "create-install", Key: key, Body: in}
	name := in.Name
	recorded := false
	err = cat.Transact(ctx, "create install "+in.Name, func(tx *kernel.Tx) error {
		// Read the install before the key. If an equal concurrent request commits
		// between the two reads, the second read finds its key.
		old, found := cat.Store.Install(ctx, org, in.Name)
		if made, err := tx.Seen(once, in.Name); err != nil || made != "" {
			name = made
			return err
		}
		app, err := useApp(tx, org, in.App)
		if err != nil {
			return err
		}
		if err := runners.EnterGroup(tx, org, group); err != nil {
			return err
		}
		r := store.Stored[store.Install]{V: store.Install{ID: id, Org: org, Name: in.Name, App: in.App, Group: group, Labels: labels.Map(), Created: tx.Now}}
		if err := nameRunner(tx, &r.V, in.Runner); err != nil {
			return err
		}
		if err := CheckRunnerKind(tx, r.V, app.Newest, true); err != nil {
			return err
		}
		if err := checkRegistry(tx, r.V, app.Newest.Spec); err != nil {
			return err
		}
		if err := sealInputs(tx, app.Newest.Spec, &r.V, in.Inputs, nil); err != nil {
			return err
		}
		if found == nil {
			if old.V.ID == id {
				return nil // our own earlier commit, whose outcome was unclear
			}
			return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeInstallExists,
				Message: fmt.Sprintf("install %q already exists", in.Name),
				Hint:    "Choose another name, or change its inputs with {install.update}."}
		} else if fairlead.KindOf(found) != fairlead.KindNotFound {
			return found
		}
		// Create the place of logs before the commit, so that a runner can write for
		// every install that exists. After a failed commit the place is empty, and a
		// concurrent request may use it.
		if cat.Records != nil && !recorded {
			if err := cat.Records.Make(ctx, id); err != nil {
				return err
			}
			recorded = true
		}
		tx.PutInstall(r)
		tx.PutMember(org, store.Member{Group: group, Kind: store.MemberInstall, Name: r.V.Name})
		return nil
	})
	if err != nil {
		return Install{}, err
	}
	cat.wantKey(ctx, org, name)
	return cat.Install(ctx, org, name)
}

// wantKey asks the agents of the install's runner for its key. A failure only costs time: the next request of a person asks again,
// and the first job of the install reports the key.
func (cat *Catalog) wantKey(ctx context.Context, org fairlead.OrgID, name string) {
	err := cat.Transact(ctx, "ask for the key of install "+name, func(tx *kernel.Tx) error {
		in, err := cat.Store.Install(ctx, org, name)
		if err != nil || in.V.Key != nil {
			return err
		}
		app, err := ReadApp(tx, org, in.V.App)
		if err != nil || severalRunners(app.Newest.Spec) {
			return err
		}
		return runners.WantKey(tx, in.V)
	})
	if err != nil {
		cat.Logger.Warn("cannot ask a runner for the key of an install", "install", name, "error", err)
	}
}

// severalRunners reports whether two runners run the jobs of an install. Their seeds may differ, so a person encrypts no input.
func severalRunners(spec *appspec.App) bool { return spec.Sandbox != nil && spec.Sandbox.Runner != nil }

// mustEncrypt reports whether a person encrypts the sensitive inputs of the install, with its key or as soon as the key is known.
func mustEncrypt(tx *kernel.Tx, inst store.Install, spec *appspec.App) (bool, error) {
	if inst.Key != nil || severalRunners(spec) {
		return inst.Key != nil, nil
	}
	return kernel.Cached(tx, "must encrypt "+string(inst.ID), func() (bool, error) { return runners.MustEncrypt(tx, inst) })
}

// KeyExpected reports whether the install has a key, or gets one: its runner has a seed, or has a new agent that has not reported
// whether it has one. It asks the runner for the key again. A caller that has read the install before its key was reported must
// not take the key for one that never comes: it would send secrets in the clear.
func (cat *Catalog) KeyExpected(ctx context.Context, org fairlead.OrgID, name string) (bool, error) {
	tx := cat.Reading(ctx)
	in, app, err := installAndApp(tx, org, name)
	if err != nil || in.V.Key != nil {
		return err == nil, err
	}
	if severalRunners(app.Newest.Spec) {
		return false, nil
	}
	expected, err := runners.KeyExpected(tx, in.V)
	if err != nil {
		return false, err
	}
	if expected {
		cat.wantKey(ctx, org, name)
		return true, nil
	}
	return runners.KeyUndecided(tx, in.V)
}

// nameRunner sets the runner that the install names; "" for none. It refuses a runner
// that does not serve the install.
func nameRunner(tx *kernel.Tx, in *store.Install, runner string) error {
	if old := in.RunnerID; old != "" && (in.Bound == nil || in.Bound.Runner != old) {
		tx.DropRunnerUse(old, in.ID)
	}
	in.Runner, in.RunnerID = "", ""
	if runner == "" {
		return nil
	}
	r, err := runners.FindRunner(tx, in.Org, runner)
	if err != nil {
		return err
	}
	if r.V.Leaving {
		return runners.Leaving(r.V)
	}
	if r.V.InSandbox {
		return &fairlead.Error{Kind: fairlead.KindInvalid, Code: fairlead.CodeRunnerOutOfReach,
			Message: fmt.Sprintf("runner %s is in the sandbox of its install, and serves only the components there", runner),
			Hint:    "Name the runner that creates the sandbox, such as that of the customer's stack."}
	}
	named := placement.Install{ID: in.ID, Name: in.Name, Org: in.Org, Group: in.Group, App: in.App, Names: r.V.ID}
	if _, err := placement.Decide(named, nil, []placement.Runner{runners.Placeable(r.V)}); fairlead.CodeOf(err) == fairlead.CodeNamedRunnerGone {
		return &fairlead.Error{Kind: fairlead.KindInvalid, Code: fairlead.CodeRunnerOutOfReach,
			Message: fmt.Sprintf("runner %s does not serve installs of group %s", runner, in.Group),
			Hint:    "{runner.show} shows which installs it serves.",
			Args:    fairlead.Args{Runner: runner}}
	}
	tx.CheckRunner(r)
	tx.PutRunnerUse(r.V.ID, *in, tx.Now)
	in.Runner, in.RunnerID = r.V.Name, r.V.ID
	return nil
}

// InstallChange is a change of an install. Nil fields stay unchanged.
type InstallChange struct {
	Inputs map[string]json.RawMessage // null removes a value
	// Encrypted are values of sensitive inputs that a person encrypted with the key of the install.
	Encrypted map[string]Encrypted
	Labels    map[string]*string // nil removes a label
	Runner    *string            // that the install names; "": rules choose
}

// UpdateInstall changes inputs, labels and the named runner. Inputs and labels that the
// change does not contain keep their values. It is refused while a deployment runs or
// waits, so that all jobs of a deployment see the same inputs. A bound install stays
// bound to its runner until it is refreshed.
func (cat *Catalog) UpdateInstall(ctx context.Context, org fairlead.OrgID, name string, change InstallChange) (Install, error) {
	err := cat.Transact(ctx, "update install "+name, func(tx *kernel.Tx) error {
		r, err := cat.Store.Install(ctx, org, name)
		if err != nil {
			return err
		}
		if r.V.Active != "" {
			return Busy(r.V)
		}
		app, err := ReadApp(tx, org, r.V.App)
		if err != nil {
			return err
		}
		if err := sealInputs(tx, app.Newest.Spec, &r.V, change.Inputs, change.Encrypted); err != nil {
			return err
		}
		labels := maps.Clone(r.V.Labels)
		for key, value := range change.Labels {
			delete(labels, key)
			if value != nil {
				if labels == nil {
					labels = map[string]string{}
				}
				labels[key] = *value
			}
		}
		if err := placement.LabelsOf(labels).Check(); err != nil {
			return err
		}
		r.V.Labels = labels
		if change.Runner != nil {
			if err := nameRunner(tx, &r.V, *change.Runner); err != nil {
				return err
			}
		}
		tx.PutInstall(r)
		return nil
	})
	if err != nil {
		return Install{}, err
	}
	cat.wantKey(ctx, org, name)
	return cat.Install(ctx, org, name)
}

func Busy(in store.Install) error {
	return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeDeploymentRuns,
		Message: fmt.Sprintf("deployment %s of install %s has not ended", in.Active, in.Name),
		Hint:    "Wait for it ({deployment.show}) or cancel it ({deployment.cancel}).",
		Args:    fairlead.Args{Deployment: string(in.Active)}}
}

func inputContext(id fairlead.InstallID, name string) string {
	return "install/" + string(id) + "/input/" + name
}

// sealInputs merges given and secrets into the install's inputs, checks the result against the app, and seals sensitive values. A
// sealed value that stays sensitive is not opened. If a person must encrypt the inputs of the install, a sensitive value in the clear is
// refused.
func sealInputs(tx *kernel.Tx, spec *appspec.App, inst *store.Install, given map[string]json.RawMessage, secrets map[string]Encrypted) error {
	values, err := givenInputs(tx, *inst, spec, toCheck)
	if err != nil {
		return err
	}
	encrypt, err := mustEncrypt(tx, *inst, spec)
	if err != nil {
		return err
	}
	for name, raw := range given {
		if decl, _ := spec.Input(name); decl.Sensitive && encrypt && string(bytes.TrimSpace(raw)) != "null" {
			return notEncrypted(*inst, name)
		}
	}
	for name, e := range secrets {
		if err := acceptEncrypted(inst, spec, name, e); err != nil {
			return err
		}
		values[name] = encrypted(e.Bytes, e.known())
	}
	for name, raw := range given {
		if string(bytes.TrimSpace(raw)) == "null" {
			delete(values, name)
			continue
		}
		v, err := kernel.DecodeJSON(raw)
		if err != nil {
			return fairlead.Invalid(fairlead.CodeInvalidInput, "input %q is not JSON", name)
		}
		values[name] = v
	}
	if !encrypt { // otherwise a person's program makes them: the control plane must not know them
		generate(tx, spec, values)
	}
	checked := spec
	if encrypt && inst.Key == nil || inst.Inputs == nil {
		checked = secretsLater(spec)
	}
	if err := checked.CheckGiven(values); err != nil {
		return err
	}
	if err := KeepFingerprintKey(tx, inst); err != nil {
		return err
	}
	key, err := installFingerprintKey(tx, *inst)
	if err != nil {
		return err
	}
	out := map[string]store.Input{}
	for name, v := range values {
		if e, ok := secrets[name]; ok {
			out[name] = store.Input{Encrypted: e.Bytes, Known: e.known()}
			continue
		}
		if _, ok := v.(appspec.Withheld); ok {
			out[name] = inst.Inputs[name]
			continue
		}
		raw, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("encode input %s: %w", name, err)
		}
		decl, _ := spec.Input(name)
		if out[name], err = sealInput(tx, key, raw, decl.Sensitive, inputContext(inst.ID, name)); err != nil {
			return fmt.Errorf("seal input %s: %w", name, err)
		}
	}
	inst.Inputs = out
	return nil
}

// secretsLater returns the app without the requirement of sensitive inputs: a person can set them only when the install exists, since
// only then it is known whether they must be encrypted, and with which key. A deployment is refused without them.
func secretsLater(spec *appspec.App) *appspec.App {
	out := &appspec.App{Inputs: slices.Clone(spec.Inputs)}
	for i := range out.Inputs {
		out.Inputs[i].Required = out.Inputs[i].Required && !out.Inputs[i].Sensitive
	}
	return out
}

// notEncrypted refuses a sensitive value in the clear.
func notEncrypted(inst store.Install, name string) error {
	hint := "Set it with {install.update} of this release: the command encrypts it with the key of the install."
	if inst.Key == nil {
		hint = "Create the install without the input. When its runner has reported the key of the install, set the input with {install.update}, which encrypts it."
	}
	return &fairlead.Error{Kind: fairlead.KindInvalid, Code: fairlead.CodeInputNotEncrypted,
		Message: fmt.Sprintf("the sensitive input %q of install %s is not encrypted: only the customer's side may read it", name, inst.Name), Hint: hint, Args: fairlead.Args{Install: inst.Name}}
}

// acceptEncrypted refuses a value that is not encrypted with a key of the install. A value for a key that was reported later makes
// this key the key of the install: the person who encrypted it has compared and accepted it.
func acceptEncrypted(inst *store.Install, spec *appspec.App, name string, e Encrypted) error {
	if decl, ok := spec.Input(name); ok && !decl.Sensitive {
		return refuseEncrypted(*inst, "the input %q is not sensitive, so its value must not be encrypted", name)
	}
	key, err := keyOfValue(*inst, fmt.Sprintf("input %q", name), e)
	if err == nil {
		inst.Key = key
	}
	return err
}

func refuseEncrypted(inst store.Install, format string, args ...any) error {
	return &fairlead.Error{Kind: fairlead.KindInvalid, Code: fairlead.CodeInvalidEncryptedValue, Message: fmt.Sprintf(format, args...),
		Hint: "Set it again with the command: it encrypts the value with the key that the install has now.", Args: fairlead.Args{Install: inst.Name}}
}

// keyOfValue returns the key of the install with which a person encrypted the value of what. It refuses a value that is not encrypted
// with the current key, or with one that was reported later.
func keyOfValue(inst store.Install, what string, e Encrypted) (*store.InstallKey, error) {
	switch {
	case !installkey.Sealed(e.Bytes) || len(e.Type) > maxKnown || e.Fingerprint != "" || e.Size < 0 || len(e.Bytes) > maxInline:
		return nil, refuseEncrypted(inst, "the value of %s is not an encrypted value of at most %d bytes", what, maxInline)
	case inst.Key == nil:
		return nil, refuseEncrypted(inst, "the install %s has no key yet, so the value of %s is encrypted with another key", inst.Name, what)
	}
	for _, k := range []*store.InstallKey{inst.Key, inst.Key.Changed} {
		if k == nil {
			continue
		}
		public, err := installkey.ParsePublic(k.Public)
		if err != nil {
			return nil, err
		}
		if public.ID() == installkey.KeyOf(e.Bytes) {
			return k, nil
		}
	}
	return nil, refuseEncrypted(inst, "the value of %s is encrypted with a key that is not the key of install %s", what, inst.Name)
}

// sealInput returns a value in its stored form: sealed if it is sensitive.
func sealInput(tx *kernel.Tx, key fingerprintKey, raw []byte, sensitive bool, place string) (store.Input, error) {
	if !sensitive {
		return store.Input{Value: raw}, nil
	}
	sealed, err := tx.Sealer.Seal(tx.Ctx, raw, place)
	return store.Input{Sealed: sealed, Known: key.known(raw, place)}, err
}

// openInput is the reverse of sealInput.
func openInput(tx *kernel.Tx, in store.Input, place string) ([]byte, error) {
	if in.Sealed == nil {
		return in.Value, nil
	}
	return tx.Sealer.Open(tx.Ctx, in.Sealed, place)
}

// givenInputs returns the values that the install gives, by input. A sealed value is an appspec.Withheld, unless the view
// opens it. An encrypted value is one in each view. A sealed value of an input that the version does not declare as sensitive is no secret of this version, and is
// opened.
func givenInputs(tx *kernel.Tx, inst store.Install, spec *appspec.App, v view) (map[string]any, error) {
	values := map[string]any{}
	for name, in := range inst.Inputs {
		if in.Encrypted != nil {
			values[name] = encrypted(in.Encrypted, in.Known)
			continue
		}
		if decl, declared := spec.Input(name); in.Sealed != nil && v != toOpen && (decl.Sensitive || !declared) {
			values[name] = withheld(in.Sealed, in.Known)
			continue
		}
		raw, err := openInput(tx, in, inputContext(inst.ID, name))
		if err != nil {
			return nil, fmt.Errorf("open input %s of install %s: %w", name, inst.ID, err)
		}
		if values[name], err = kernel.DecodeJSON(raw); err != nil {
			return nil, fmt.Errorf("decode input %s of install %s: %w", name, inst.ID, err)
		}
	}
	return values, nil
}

// CheckInputs checks the install's inputs against the version, and returns their values. Sensitive values are withheld.
func CheckInputs(tx *kernel.Tx, inst store.Install, spec *appspec.App) (map[string]appspec.Resolved, error) {
	given, err := givenInputs(tx, inst, spec, toCheck)
	if err != nil {
		return nil, err
	}
	return spec.CheckInputs(given)
}

// Install returns an install with its components.
func (cat *Catalog) Install(ctx context.Context, org fairlead.OrgID, name string) (Install, error) {
	r, err := cat.Store.Install(ctx, org, name)
	if err != nil {
		return Install{}, err
	}
	return keyedInstall(cat.Reading(ctx), r.V)
}

func keyOf(k *store.InstallKey) (*InstallKey, error) {
	if k == nil {
		return nil, nil
	}
	public, err := installkey.ParsePublic(k.Public)
	if err != nil {
		return nil, fmt.Errorf("read the key of an install: %w", err)
	}
	out := &InstallKey{Public: public, Since: k.Since}
	out.Changed, err = keyOf(k.Changed)
	return out, err
}

// keyedInstall returns an install with its key.
func keyedInstall(tx *kernel.Tx, in store.Install) (Install, error) {
	out, err := installOf(tx, in)
	if err == nil {
		out.Key, err = keyOf(in.Key)
	}
	return out, err
}

func installOf(tx *kernel.Tx, in store.Install) (Install, error) {
	out := Install{Actors: in.Actors, ID: in.ID, Name: in.Name, App: in.App, Runner: runners.RunnerOf(in), Group: in.Group, Labels: in.Labels,
		Inputs: make(map[string]Input, len(in.Inputs)), Active: in.Active, Queue: in.Queue, Created: in.Created, CustomerApproves: in.CustomerApproves, State: "new"}
	if b := in.Bound; b != nil {
		out.Bound = &Bound{Runner: b.Runner, Org: b.Org, Name: b.Name}
	}
	if in.Moving != nil {
		out.Moving = in.Moving.Job
	}
	for name, v := range in.Inputs {
		out.Inputs[name] = Input{Value: v.Value, Sensitive: v.Secret()}
	}
	comps, err := tx.Store.Components(tx.Ctx, in.ID)
	if err != nil {
		return out, err
	}
	// A component can have a state before it has a record, because its first plan takes
	// the lock. That lock is shown too.
	names := map[string]store.Component{}
	absent, settled := 0, 0
	for _, r := range comps {
		k := r.V
		names[k.Name] = k
		versionNames, err := VersionNames(tx, k.Version)
		if err != nil {
			return out, err
		}
		out.Components = append(out.Components, Component{Name: k.Name, State: string(k.State), Version: k.Version, Names: versionNames, Deployment: k.Deployment, Updated: k.Updated})
		switch k.State {
		case store.Present:
			settled++
		case store.Absent:
			absent, settled = absent+1, settled+1
		}
	}
	if len(comps) > 0 {
		app, err := ReadApp(tx, in.Org, in.App)
		if err != nil {
			return out, err
		}
		switch {
		case absent == len(comps):
			out.State = "torn-down"
		case settled == len(comps) && allPresent(app.Newest.Spec, switchedOff(app.Newest.Spec, in), names):
			out.State = "deployed"
		default:
			out.State = "partial"
		}
	}
	heads, err := tx.Store.States(tx.Ctx, in.ID)
	if err != nil {
		return out, err
	}
	states := map[string]store.StateHead{}
	for _, h := range heads {
		states[h.V.Component] = h.V
		if _, ok := names[h.V.Component]; !ok && h.V.Lock != nil {
			names[h.V.Component] = store.Component{Install: in.ID, Name: h.V.Component, State: store.Absent}
		}
	}
	storage := "http"
	if len(heads) == 0 && len(names) > 0 {
		if storage, err = runners.StorageKind(tx, in); err != nil {
			return out, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		storage := storage
		if b := in.SandboxRunner; b != nil && names[name].InSandbox {
			storage = b.Storage.Kind
		}
		part, err := Part(tx, names[name], states[name], storage)
		if err != nil {
			return out, err
		}
		out.Parts = append(out.Parts, part)
	}
	return out, nil
}

// allPresent reports whether each component of the app that is not switched off is present.
func allPresent(spec *appspec.App, off map[string]bool, records map[string]store.Component) bool {
	for _, c := range spec.Components {
		if !off[c.Name] && records[c.Name].State != store.Present {
			return false
		}
	}
	return true
}

// Installs lists installs by name.
func (cat *Catalog) Installs(ctx context.Context, org fairlead.OrgID, q fairlead.PageQuery) ([]Install, string, error) {
	p, err := cat.Store.Installs(ctx, org, q)
	tx := cat.Reading(ctx)
	return kernel.TryList(p, err, func(in store.Install) (Install, error) { return keyedInstall(tx, in) })
}

// Output is an output with its value.
type Output struct {
	Value     json.RawMessage
	Sensitive bool
	Encrypted *Encrypted // nil: it is not encrypted
}

// Encrypted is a value that the customer's side encrypted, and what it reports of the value.
type Encrypted struct {
	Bytes       []byte
	Type        string // as appspec.TypeOf returns it
	Size        int    // of its JSON, in bytes
	Fingerprint string // see package fingerprint; "": a person encrypted it
}

func (e *Encrypted) known() store.Known {
	return store.Known{Fingerprint: e.Fingerprint, Type: e.Type, Size: e.Size}
}

func outputContext(id fairlead.InstallID, component, name string) string {
	return "install/" + string(id) + "/output/" + component + "/" + name
}

// Outputs returns the outputs of an install's components. Sensitive values are nil
// unless showSensitive is set. An encrypted value has no Value: the reader needs the key.
func (cat *Catalog) Outputs(ctx context.Context, org fairlead.OrgID, name string, showSensitive bool) (map[string]map[string]Output, error) {
	r, err := cat.Store.Install(ctx, org, name)
	if err != nil {
		return nil, err
	}
	tx := cat.Reading(ctx)
	comps, err := tx.Components(r.V.ID)
	if err != nil {
		return nil, err
	}
	out := map[string]map[string]Output{}
	for _, k := range comps {
		if k.V.State == store.Absent {
			continue
		}
		kept, err := outputsOf(tx, k.V)
		if err != nil {
			return nil, err
		}
		out[k.V.Name] = map[string]Output{}
		for _, name := range slices.Sorted(maps.Keys(kept)) {
			o := Output{Sensitive: kept[name].Sensitive}
			if e := kept[name].Encrypted; e != nil && showSensitive {
				o.Encrypted = &Encrypted{Bytes: e, Type: kept[name].Type, Size: kept[name].Size, Fingerprint: kept[name].Fingerprint}
			} else if !o.Sensitive || showSensitive {
				if o.Value, err = openOutput(tx, k.V, name, kept[name]); err != nil {
					return nil, err
				}
			}
			out[k.V.Name][name] = o
		}
	}
	return out, nil
}

// Part renders a component for package diagnosis.
func Part(tx *kernel.Tx, k store.Component, head store.StateHead, storage string) (diagnosis.Component, error) {
	out := diagnosis.Component{Name: k.Name, Type: k.Type, Unknown: k.State == store.Unknown, Since: k.Updated, Restored: !k.Restored.IsZero(), Deployment: k.Deployment}
	t := k.TypeOf()
	if t.StateFile == "" {
		return out, nil
	}
	out.State = &diagnosis.State{Saved: head.Updated, Serial: head.Serial}
	switch runnerspec.StorageKind(storage) {
	case runnerspec.HTTPState:
	case runnerspec.LocalState:
		out.State.OnRunner = t.StatePath(string(k.Install), k.Name)
	default:
		out.State.Outside = storage
	}
	if head.Lock != nil {
		held, err := tx.Holds(tx.Ctx, *head.Lock)
		if err != nil {
			return out, err
		}
		lock := renderLock(*head.Lock, held)
		out.Lock = &lock
	}
	return out, nil
}

// renderLock parses the tool's lock info, which only people read.
func renderLock(l store.StateLock, held bool) diagnosis.Lock {
	var info struct{ Who, Operation string }
	if json.Unmarshal(l.Info, &info) != nil {
		info.Who, info.Operation = "", ""
	}
	return diagnosis.Lock{ID: l.ID, Job: l.Job, Epoch: l.Epoch, Since: l.Created, Held: held, Who: fairlead.Clip(info.Who, 200), Operation: fairlead.Clip(info.Operation, 100)}
}

// NotMoving returns an error while the states of the install are being moved.
func NotMoving(in store.Install) error {
	if in.Moving == nil {
		return nil
	}
	return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeStateMoving,
		Message: fmt.Sprintf("the state of install %s is being moved to %s, by job %s", in.Name, in.Moving.To.Storage, in.Moving.Job),
		Hint:    "Wait for it ({job.logs}) or cancel it ({job.cancel}).",
		Args:    fairlead.Args{Job: string(in.Moving.Job)},
		Details: map[string]string{"job": string(in.Moving.Job)}}
}

// AppOfInstall returns the app of the install with this org, name and id. If another
// install has the name now, it returns an error of KindNotFound.
func AppOfInstall(tx *kernel.Tx, org fairlead.OrgID, name string, id fairlead.InstallID) (fairlead.AppID, error) {
	inst, err := tx.Store.Install(tx.Ctx, org, name)
	if err != nil {
		return "", err
	}
	if inst.V.ID != id {
		return "", fairlead.NotFound(fairlead.CodeInstallNotFound, name)
	}
	app, err := tx.Store.App(tx.Ctx, org, inst.V.App)
	return app.V.ID, err
}
