package step

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/approval"
	"github.com/fairlead/fairlead/pkg/artifact"
	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/policy"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/tfmodule"
	"github.com/fairlead/fairlead/runner/ledger"
	"github.com/fairlead/fairlead/runner/ledger/record"
	"github.com/fairlead/fairlead/runner/plugin"
)

// guard enforces the customer's policy on one job. It implements plugin.Policy. Everything that the spec states comes from the
// control plane, which the policy does not trust: the guard judges what the job does, in three places. Before it starts anything,
// it judges the spec; before a plan, what the tool will run; before the plan is saved and again before it is applied, the changes.
type guard struct {
	policy  *policy.Policy
	ledger  ledger.Ledger // nil: there is none
	spec    *events.JobSpec
	request policy.Request // without the parts that are not known yet
	module  *policy.Module // that was judged last, with all that the tool reads; nil: none
	asks    string         // the rule that asks for an approval of the plan; "": none
	id      string         // of this process: a control plane may start two steps for one attempt
	now     func() time.Time
}

// ledgerOrNil returns the open ledger; nil: there is no policy, or no ledger.
func (g *guard) ledgerOrNil() ledger.Ledger {
	if g == nil {
		return nil
	}
	return g.ledger
}

// openGuard reads the policy and judges the job spec. It returns nil if the runner has no policy, or if the job changes nothing of
// an install. The error is ctx's or a *plugin.Error.
func (a *execution) openGuard(ctx context.Context, spec *events.JobSpec) (*guard, error) {
	op := job.Operation(spec.Operation)
	if a.in.Policy == "" || op.OfRunner() {
		return nil, nil
	}
	p, err := a.readPolicy(ctx)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("read the policy: %w", ctx.Err())
	}
	if err != nil {
		return nil, &plugin.Error{Reason: fairlead.ReasonPolicyUnavailable, Err: err,
			Message: fmt.Sprintf("the customer's policy cannot be read from %s, so nothing was started: %v", a.in.Policy, err)}
	}
	g := &guard{policy: p, spec: spec, now: a.Now, id: a.NewID(), request: policy.Request{Operation: op, Component: spec.Component, Type: spec.Plugin, Storage: placeOf(spec.State)}}
	for _, m := range spec.Move {
		if g.request.Storage = placeOf(&m.To); g.policy.Decide(g.request).Effect == policy.Deny {
			break // one denied destination denies the job
		}
	}
	names := slices.Concat(slices.Collect(maps.Keys(spec.Env)), slices.Collect(maps.Keys(spec.SecretEnv)), slices.Collect(maps.Keys(spec.AppEnv)))
	// No tool reads these. The control plane sets some, such as FAIRLEAD_APP.
	names = slices.DeleteFunc(names, func(name string) bool { return strings.HasPrefix(name, "FAIRLEAD_") })
	slices.Sort(names)
	g.request.Variables = slices.Compact(names)
	if spec.Artifact != nil {
		t, _ := component.Of(spec.Plugin)
		g.request.Source = &policy.Source{Artifact: spec.Artifact.Digest, Runs: t.Executable != "", Origin: originOf(spec), SignedBy: signerOf(ctx, spec, p.Signers)}
	}
	if err := g.decide(g.at()); err != nil {
		return nil, err
	}
	if a.in.Ledger != "" {
		if g.ledger, err = a.openLedger(ctx); err != nil {
			return nil, &plugin.Error{Reason: fairlead.ReasonPolicyUnavailable, Err: err, Message: fmt.Sprintf("the ledger %s cannot be used, so nothing was started: %v", a.in.Ledger, err)}
		}
	}
	if g.ledger == nil && (p.NeedsLedger() || len(p.Approvals) > 0 || !g.derives()) && op != job.OpMigrateState {
		return nil, plugin.Errorf(fairlead.ReasonPolicyUnavailable, "the customer's policy needs a ledger for component %s of type %s, and the runner has none, so nothing was started: set ledger in the agent's file", spec.Component, spec.Plugin)
	}
	return g, nil
}

// readPolicy reads the policy with the step's own credentials.
func (a *execution) readPolicy(ctx context.Context) (*policy.Policy, error) {
	from, err := runnerspec.ParsePolicy(a.in.Policy)
	if err != nil {
		return nil, err
	}
	text, err := a.readSecret(ctx, from)
	if err != nil {
		return nil, err
	}
	p, problems := policy.Parse("policy", []byte(text))
	return p, problems.Err()
}

func (a *execution) openLedger(ctx context.Context) (ledger.Ledger, error) {
	at, err := runnerspec.ParseLedger(a.in.Ledger)
	if err != nil {
		return nil, err
	}
	if a.OpenLedger == nil {
		return nil, errors.New("this runner opens no ledger")
	}
	region := ""
	if a.in.Role != nil {
		region = a.in.Role.Region
	}
	return a.OpenLedger(ctx, at, region)
}

// placeOf returns where a state is, as a policy lists it.
func placeOf(s *events.StateRef) string {
	switch {
	case s == nil:
		return ""
	case s.In == nil || s.Storage == "local" || s.Storage == "http":
		return s.Storage
	case s.In.Endpoint != "":
		return s.Storage + ":" + s.In.Endpoint + "/" + s.In.Bucket + "/" + s.In.Prefix
	}
	return s.Storage + ":" + path.Join(s.In.Bucket+s.In.Account+s.In.Namespace, s.In.Container, s.In.Prefix)
}

// originOf returns where the code of the component comes from. The step has verified the provenance of a built component. For any
// other the control plane itself states that it is of the app's folder, so a policy that does not trust it does not list "app".
func originOf(spec *events.JobSpec) string {
	if spec.Built == nil {
		return policy.SourceOfApp
	}
	switch from := spec.Built.Build.From; from.Kind {
	case events.OriginFolder:
		return policy.SourceOfApp
	case events.OriginGit:
		return tfmodule.CanonicalSource("git::" + from.URL)
	case events.OriginModule:
		return tfmodule.CanonicalSource(from.URL)
	case events.OriginChart:
		if strings.HasPrefix(from.URL, "oci://") {
			return from.URL
		}
		return "chart::" + from.URL
	case events.OriginOCI:
		return from.URL
	}
	return ""
}

// signerOf returns the one of the public keys that signed the provenance of the spec's artifact; "" if none did.
func signerOf(ctx context.Context, spec *events.JobSpec, signers []string) string {
	if spec.Built == nil {
		return ""
	}
	for _, text := range signers {
		key, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(key) != ed25519.PublicKeySize {
			continue
		}
		p, err := events.OpenProvenance(ctx, spec.Built.Provenance, []ed25519.PublicKey{key})
		if err == nil && p.Check(spec.Built.Build, spec.Built.Revision, spec.Artifact.Digest) == nil {
			return text
		}
	}
	return ""
}

// at returns the request with the current time.
func (g *guard) at() policy.Request {
	q := g.request
	q.Now = g.now()
	return q
}

// keptLog is what the control plane gets in place of a log that stays with the customer.
const keptLog = "[fairlead: the customer's policy keeps the log of this job]\n"

// log returns the writer of the job's log: w, or one that discards what the policy does not let leave. g may be nil.
func (g *guard) log(w io.Writer) io.Writer {
	if g == nil || g.policy.Sends(policy.Logs) {
		return w
	}
	_, _ = io.WriteString(w, keptLog) // an error of the log is found when it is closed
	return io.Discard
}

// reported returns the report without what the policy does not let leave, and with the rule that asks for an approval. g may be nil.
func (g *guard) reported(f wire.FinishRequest) wire.FinishRequest {
	if g == nil {
		return f
	}
	if !g.policy.Sends(policy.Outputs) {
		f.Outputs = nil
	}
	if f.Plan != nil && !g.policy.Sends(policy.Plans) {
		kept := *f.Plan
		kept.ChangeSet = nil
		f.Plan = &kept
	}
	if f.Plan != nil && g.asks != "" {
		asking := *f.Plan
		asking.NeedsSignature = g.asks
		if g.spec.Artifact != nil {
			asking.Artifact = g.spec.Artifact.Digest
		}
		f.Plan = &asking
	}
	ours := []fairlead.Reason{fairlead.ReasonPolicyDenied, fairlead.ReasonPolicyUnavailable, fairlead.ReasonApprovalMissing}
	if f.Message != "" && !g.policy.Sends(policy.Logs) && !slices.Contains(ours, fairlead.Reason(f.Reason)) {
		f.Message = "the customer's policy keeps the message with the log"
	}
	return f
}

// decide returns the error of a denial.
func (g *guard) decide(q policy.Request) error {
	d := g.policy.Decide(q)
	if d.Effect == policy.Deny {
		return denied(d)
	}
	return nil
}

func denied(d policy.Decision) error {
	return plugin.Errorf(fairlead.ReasonPolicyDenied, "denied by the customer's policy: rule %s: %s", d.Place(), d.Reason)
}

// derives reports whether the plugin reads the changes of a saved plan from the plan itself before an apply.
func (g *guard) derives() bool {
	t, _ := component.Of(g.spec.Plugin)
	return !t.Protocol
}

// guarded wraps the function that fetches an artifact: it judges a module before any tool reads it.
func (g *guard) guarded(fetch func(context.Context, events.ArtifactRef, *os.Root) (string, error)) func(context.Context, events.ArtifactRef, *os.Root) (string, error) {
	t, _ := component.Of(g.spec.Plugin)
	if !t.Module {
		return fetch
	}
	return func(ctx context.Context, ref events.ArtifactRef, dst *os.Root) (string, error) {
		folder, err := fetch(ctx, ref, dst)
		if err != nil {
			return "", err
		}
		return folder, g.Module(surveyed(dst, folder))
	}
}

// maxModuleFile bounds a file of a module, in bytes.
const maxModuleFile = 4 << 20

// surveyed returns what a module and the modules that it has with it contain. `init` runs the programs of the module's encryption,
// and fetches the modules that it calls: so they are judged before. After init the plugin asks again, with all modules.
func surveyed(root *os.Root, folder string) policy.Module {
	var s tfmodule.Survey
	folders := []string{folder}
	if content, err := root.ReadFile(path.Join(artifact.ModulesFolder, tfmodule.ShippedFile)); err == nil {
		shipped, err := tfmodule.ParseShipped(content)
		if err != nil {
			s.Unclear = append(s.Unclear, "the list of the artifact's modules cannot be read")
		}
		for _, m := range shipped.Modules {
			if m.Package != "" {
				folders = append(folders, path.Join(artifact.ModulesFolder, m.Package, m.Folder))
			}
		}
	}
	seen := map[string]bool{}
	for len(folders) > 0 {
		at := folders[0]
		if folders = folders[1:]; seen[at] {
			continue
		}
		seen[at] = true
		before := len(s.Calls)
		surveyFolder(&s, root, at)
		for _, c := range s.Calls[before:] {
			if c.Local() {
				folders = append(folders, path.Join(at, c.Source))
			}
		}
	}
	m := policy.Module{Sources: s.Remote()}
	if len(s.Unclear) > 0 {
		m.Unreadable = s.Unclear[0]
	}
	for _, p := range s.Programs {
		m.Programs = append(m.Programs, policy.Program{Kind: p.Kind, At: p.At})
	}
	return m
}

func surveyFolder(s *tfmodule.Survey, root *os.Root, folder string) {
	f, err := root.Open(folder)
	if err != nil {
		s.Unclear = append(s.Unclear, folder+" cannot be read")
		return
	}
	defer f.Close()
	entries, err := f.ReadDir(-1)
	if err != nil {
		s.Unclear = append(s.Unclear, folder+" cannot be read")
	}
	for _, e := range entries {
		if tfmodule.Ext(e.Name()) == "" || e.IsDir() {
			continue
		}
		name := path.Join(folder, e.Name())
		b, err := root.ReadFile(name)
		if err != nil || len(b) > maxModuleFile {
			s.Unclear = append(s.Unclear, name+" cannot be read")
			continue
		}
		s.Read(name, b)
	}
}

// Module implements plugin.Policy.
func (g *guard) Module(m policy.Module) error {
	g.module = &m
	q := g.at()
	q.Module = &m
	return g.decide(q)
}

// Planned implements plugin.Policy. It also keeps the changes in the ledger.
func (g *guard) Planned(ctx context.Context, changes *changeset.Builder, base *changeset.Base, digest string) error {
	set := changes.Set(base)
	subject, err := g.subject(set, digest)
	if err != nil {
		return err
	}
	q := g.at()
	q.Module, q.Plan = g.module, &policy.Plan{Changes: changes.All()}
	if g.policy.NeedsLedger() {
		others, err := g.plannedByOthers(ctx)
		if err != nil {
			return err
		}
		q.Plan.Others = others
	}
	d := g.policy.Decide(q)
	if err := g.keep(ctx, q, d, subject, base); err != nil {
		return err
	}
	switch d.Effect {
	case policy.Deny:
		return denied(d)
	case policy.NeedsApproval:
		if _, err := g.approved(ctx, subject, set, d, g.unused); err != nil {
			if !isMissing(err) {
				return err
			}
			g.asks = d.Place()
		}
	}
	if g.policy.NeedsLedger() {
		return g.announce(ctx, q.Plan.Count())
	}
	return nil
}

// Applies implements plugin.Policy.
func (g *guard) Applies(ctx context.Context, changes *changeset.Builder, base *changeset.Base, digest string) error {
	a, err := g.apply(ctx, changes, base, digest)
	if err != nil {
		return err
	}
	if !g.policy.NeedsLedger() {
		_, err := g.final(ctx, a, g.consume)
		return err
	}
	use, err := g.admit(ctx, a)
	if err != nil || len(use.Keys) == 0 {
		return err
	}
	left, err := g.consume(ctx, use)
	if err == nil && !left { // another step took the use since admit has seen it
		err = plugin.Errorf(fairlead.ReasonApprovalMissing, "nothing was applied: %s", usedUp(use))
	}
	return err
}

// applying is an apply that the guard judges.
type applying struct {
	plan    *policy.Plan
	subject approval.Subject
	set     *changeset.Set
}

// apply returns the apply of a saved plan. If the plugin cannot read the changes from the plan, they are those of the ledger.
func (g *guard) apply(ctx context.Context, changes *changeset.Builder, base *changeset.Base, digest string) (applying, error) {
	if changes != nil {
		a := applying{plan: &policy.Plan{Changes: changes.All()}, set: changes.Set(base)}
		var err error
		a.subject, err = g.subject(a.set, digest)
		return a, err
	}
	kept, err := g.kept(ctx, digest)
	if err != nil {
		return applying{}, err
	}
	a := applying{plan: &policy.Plan{Changes: kept.Changes}, set: &changeset.Set{V: changeset.Version, Base: kept.Base, Changes: kept.Changes}}
	if a.subject, err = g.subject(a.set, digest); err != nil {
		return applying{}, err
	}
	a.subject.ChangeSet = kept.ChangeSet // of the set as it was reported, which has limits
	return a, nil
}

// subject returns what an approval of the job's apply must name. It has the digests of what the step has itself.
func (g *guard) subject(set *changeset.Set, plan string) (approval.Subject, error) {
	digest, err := approval.SetDigest(set)
	if err != nil {
		return approval.Subject{}, err
	}
	s := approval.Subject{Install: g.spec.Install, Component: g.spec.Component, Operation: string(g.request.Operation.Mutation()), ChangeSet: digest, Plan: plan}
	if g.spec.Artifact != nil {
		s.Artifact = g.spec.Artifact.Digest
	}
	s.SetBase(set.Base)
	return s, nil
}

// final decides on an apply. The Use is zero if the apply needs no approval.
func (g *guard) final(ctx context.Context, a applying, take takeFunc) (approval.Use, error) {
	q := g.at()
	q.Plan = a.plan
	switch d := g.policy.Decide(q); d.Effect {
	case policy.Deny:
		return approval.Use{}, denied(d)
	case policy.NeedsApproval:
		return g.approved(ctx, a.subject, a.set, d, take)
	}
	return approval.Use{}, nil
}

// The keys of the ledger, see package record.
const (
	admittedKeys  = "admitted/"  // by deployment: what the applies change, in the order of their admission
	announcedKeys = "announced/" // by deployment: what the plans would change
	approvalKeys  = "approvals/" // by approval: its uses
)

// share is the part of a deployment that one job has.
type share struct {
	Component string         `json:"component"`
	Job       fairlead.JobID `json:"job"`
	Epoch     int64          `json:"epoch"`
	Digest    string         `json:"digest,omitempty"`
	Step      string         `json:"step"`
	At        time.Time      `json:"at"`
	Counts    policy.Counts  `json:"counts"`
}

func (g *guard) share(counts policy.Counts, digest string) ([]byte, error) {
	return json.Marshal(share{Component: g.spec.Component, Job: g.spec.Job, Epoch: g.spec.Epoch, Digest: digest, Step: g.id, At: g.now(), Counts: counts})
}

// shares returns the shares below a prefix.
func (g *guard) shares(ctx context.Context, prefix string) ([]share, error) {
	entries, err := g.ledger.List(ctx, prefix)
	if err != nil {
		return nil, g.unavailable(ctx, err)
	}
	all := make([]share, len(entries))
	for i, e := range entries {
		if err := json.Unmarshal(e.Value, &all[i]); err != nil {
			return nil, g.unavailable(ctx, fmt.Errorf("%s: %w", e.Key, err))
		}
	}
	return all, nil
}

func (g *guard) unavailable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("use the ledger: %w", ctx.Err())
	}
	return &plugin.Error{Reason: fairlead.ReasonPolicyUnavailable, Err: err, Message: fmt.Sprintf("the customer's ledger cannot be used, so nothing was changed: %v", err)}
}

// deployment returns the deployment's part of a key. A job without one has a deployment of its own.
func (g *guard) deployment() string {
	if g.spec.Deployment == "" {
		return string(g.spec.Job)
	}
	return string(g.spec.Deployment)
}

// plannedByOthers returns what the last plans of the other components of the deployment would change. It shows a customer at the
// plan what admit would deny at the apply.
func (g *guard) plannedByOthers(ctx context.Context) (policy.Counts, error) {
	all, err := g.shares(ctx, announcedKeys+g.deployment()+"/")
	last := map[string]share{}
	for _, s := range all {
		if before, ok := last[s.Component]; s.Component != g.spec.Component && (!ok || before.At.Before(s.At)) {
			last[s.Component] = s
		}
	}
	var sum policy.Counts
	for _, s := range last {
		sum = sum.Plus(s.Counts)
	}
	return sum, err
}

func (g *guard) announce(ctx context.Context, counts policy.Counts) error {
	value, err := g.share(counts, "")
	if err == nil {
		err = g.ledger.Create(ctx, fmt.Sprintf("%s%s/%s-%d", announcedKeys, g.deployment(), g.spec.Job, g.spec.Epoch), value)
	}
	if err != nil && !errors.Is(err, ledger.ErrExists) {
		return g.unavailable(ctx, err)
	}
	return nil
}

// admit decides on an apply together with the applies that were admitted before, and takes the next number of its deployment. A
// number exists once, and its holder has seen all smaller ones, so the sum of what was admitted never exceeds the ceiling, whatever
// runs at the same time. Nothing gives a share back: an apply that failed may have changed something.
func (g *guard) admit(ctx context.Context, a applying) (approval.Use, error) {
	plan := a.plan
	value, err := g.share(plan.Count(), a.subject.Plan)
	if err != nil {
		return approval.Use{}, fmt.Errorf("encode an entry of the ledger: %w", err)
	}
	for {
		all, err := g.shares(ctx, admittedKeys+g.deployment()+"/")
		if err != nil {
			return approval.Use{}, err
		}
		plan.Others = policy.Counts{}
		mine := false
		for _, s := range all {
			if s.Step == g.id {
				mine = true // the answer to an earlier Create was lost
				continue
			}
			plan.Others = plan.Others.Plus(s.Counts)
		}
		use, err := g.final(ctx, a, g.unused) // only looks: if another apply is admitted first, this one decides again
		if err != nil || mine {
			return use, err
		}
		err = g.ledger.Create(ctx, fmt.Sprintf("%s%s/%06d", admittedKeys, g.deployment(), len(all)+1), value)
		if err == nil {
			return use, nil
		}
		if !errors.Is(err, ledger.ErrExists) {
			return approval.Use{}, g.unavailable(ctx, err)
		}
	}
}

// keep stores the changes of a plan in the ledger, for the apply and for `fairlead policy test`.
func (g *guard) keep(ctx context.Context, q policy.Request, d policy.Decision, subject approval.Subject, base *changeset.Base) error {
	if g.ledger == nil {
		return nil
	}
	r := record.Of(q, d, g.spec.InstallName, string(g.spec.Deployment), string(g.spec.Job), subject.Plan)
	r.ChangeSet, r.Base = subject.ChangeSet, base
	if err := record.Keep(ctx, g.ledger, r, g.spec.Epoch); err != nil {
		return g.unavailable(ctx, err)
	}
	return nil
}

// kept returns the changes for which Planned was called with the digest of the saved plan. A saved plan that no step of this runner
// made is denied: the storage of saved plans may be the vendor's.
func (g *guard) kept(ctx context.Context, digest string) (record.Plan, error) {
	r, found, err := record.Find(ctx, g.ledger, digest, g.spec.Component)
	if err != nil {
		return record.Plan{}, g.unavailable(ctx, err)
	}
	if !found {
		return record.Plan{}, plugin.Errorf(fairlead.ReasonPolicyDenied, "denied by the customer's policy: the ledger does not have the plan %s, so it is not known what an apply would change; plan again", digest)
	}
	return r, nil
}
