package execution

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/control/internal/catalog"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/control/internal/runners"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/pattern"
	"github.com/fairlead/fairlead/pkg/store"
)

// pluginBuild is the plugin that executes job.OpBuild.
const pluginBuild = "build"

// Build is the build of a component: a job, or the result of an earlier one.
type Build struct {
	Component string
	Job       *Job          // nil: nothing is built again
	Earlier   catalog.Built // if Job is nil
}

// JobBuild is what a build job makes, and its result.
type JobBuild struct {
	events.Build
	Artifact string // digest of the result; "": the job has not succeeded
	Revision string // as in BuiltBy
}

func jobBuild(b *store.Build) *JobBuild {
	if b == nil {
		return nil
	}
	return &JobBuild{b.Build, b.Artifact, b.Revision}
}

// BuildApp queues a job on the org's build runner for each component of the configuration that needs a build. A
// component whose commit was built for a recent version needs none. The app need not exist. folders are the digests of the
// packed folders of components that are built from one, by component.
func (ex *Execution) BuildApp(ctx context.Context, org fairlead.OrgID, name string, config []byte, folders map[string]string, key string) ([]Build, error) {
	spec, err := catalog.ParseConfig(name, config)
	if err == nil {
		err = catalog.FoldersOf(spec, folders)
	}
	if err != nil {
		return nil, err
	}
	body, err := kernel.EncodeJSON(struct {
		Config  json.RawMessage
		Folders map[string]string
	}{config, folders})
	if err != nil {
		return nil, fmt.Errorf("encode the request for builds of app %s: %w", name, err)
	}
	if err := catalog.New(ex.Kernel).MakeBuildRepositories(ctx, org, spec); err != nil {
		return nil, err
	}
	var ids []string
	for range spec.Components {
		ids = append(ids, ex.IDs(fairlead.PrefixJob))
	}
	var out []Build
	err = ex.Transact(ctx, "build app "+name, func(tx *kernel.Tx) error {
		out = nil
		made, err := tx.Seen(kernel.Once{Org: org, Route: "build-app " + name, Key: key, Body: string(body)}, strings.Join(ids, " "))
		if err != nil {
			return err
		}
		ids, again := ids, tx.Again || made != ""
		if made != "" {
			ids = strings.Fields(made)
		}
		for i, c := range spec.Components {
			if !c.Built() {
				continue
			}
			b, err := buildComponent(tx, org, name, c, folders[c.Name], fairlead.JobID(ids[i]), again)
			if err != nil {
				return err
			}
			out = append(out, b)
		}
		return nil
	})
	return out, err
}

// buildComponent queues the build of one component. again reports whether an earlier try may have queued it.
func buildComponent(tx *kernel.Tx, org fairlead.OrgID, app string, c appspec.Component, folder string, id fairlead.JobID, again bool) (Build, error) {
	out := Build{Component: c.Name}
	if again {
		old, err := store.Optional(tx.Store.Job(tx.Ctx, id))
		if err != nil {
			return out, err
		}
		if old.Version != 0 {
			j := JobOf(old.V)
			out.Job = &j
			return out, nil
		}
	}
	earlier, ok, err := catalog.BuiltBefore(tx, org, app, c, folder)
	if err != nil || ok {
		out.Earlier = earlier
		return out, err
	}
	r, err := runners.Builder(tx, org)
	if err != nil {
		return out, err
	}
	j := store.Job{Job: job.New(id, job.OpBuild, tx.Now), RunnerName: r.V.Name, Build: &store.Build{Build: catalog.BuildOf(app, c, folder)}}
	j.Org, j.Runner, j.Plugin = org, r.V.ID, pluginBuild
	view := JobOf(NewJob(tx, j, r.V))
	out.Job = &view
	return out, nil
}

// buildSpec completes the spec of a build.
func buildSpec(tx *kernel.Tx, s events.JobSpec, j store.Job) (events.JobSpec, error) {
	if j.Build == nil {
		return s, fairlead.Conflict(fairlead.CodeJobAltered, "job %s is a build without a component", j.ID)
	}
	runner, err := tx.Store.Runner(tx.Ctx, j.RunnerOrg(), j.RunnerName)
	if err != nil {
		return s, err
	}
	b := j.Build.Build
	b.Org = j.Org
	s.Env, s.Build = runner.V.Env, &b
	if s.Push, err = catalog.BuildRepository(tx, j.Org, j.Build.Build); err != nil {
		return s, err
	}
	if b.From.Kind == events.OriginFolder {
		folder, err := catalog.FolderRepository(tx, j.Org, b)
		if err != nil {
			return s, err
		}
		s.Artifact = &events.ArtifactRef{Repository: folder, Digest: b.From.Ref}
	}
	return s, nil
}

var (
	digestPattern   = pattern.New(catalog.DigestPattern)
	revisionPattern = pattern.New(`^([0-9a-f]{40}|[0-9a-f]{64}|sha256:[0-9a-f]{64})$`)
)

// SignProvenance returns the signed statement about what the holder's build has made, so that its step can store it beside
// the artifact before the build ends. It records nothing: FinishJob signs the same statement again and records it.
func (ex *Execution) SignProvenance(ctx context.Context, h kernel.Holder, built Built) ([]byte, error) {
	if _, err := ex.Reading(ctx).Held(ctx, h); err != nil {
		return nil, err
	}
	signed, err := ex.attest(ctx, h, Report{Outcome: OutcomeSucceeded, Built: &built})
	if err != nil {
		return nil, err
	}
	if signed == nil {
		return nil, statementRefused(h.Job, "is not that of a build that runs")
	}
	return signed.Provenance, nil
}

// attest signs the statement of a build that succeeded. It returns nil for every other report. It signs only what the
// job's own record states, so that a build runner cannot claim the component, the source or the job of another build. What
// remains is the runner's claim: that this revision has this artifact, its own version, and the times.
func (ex *Execution) attest(ctx context.Context, h kernel.Holder, rep Report) (*store.Build, error) {
	built := rep.Built
	if rep.Outcome != OutcomeSucceeded || built == nil {
		return nil, nil
	}
	r, err := ex.Store.Job(ctx, h.Job)
	j := r.V
	if err != nil || j.Operation != job.OpBuild || !j.State.Leased() || j.Lease.Epoch != h.Epoch {
		return nil, err // FinishJob decides whether the report is stale or repeated
	}
	if !digestPattern.MatchString(built.Artifact) || !revisionPattern.MatchString(built.Revision) {
		return nil, withoutArtifact(j.ID)
	}
	if j.Build == nil {
		return nil, fmt.Errorf("job %s is a build without a component", j.ID)
	}
	if from := j.Build.From; from.Kind == events.OriginFolder && built.Revision != from.Ref {
		return nil, statementRefused(j.ID, "names another packed folder than the job")
	}
	if err := checkStatement(j, *built); err != nil {
		return nil, err
	}
	b := *j.Build
	b.Artifact, b.Revision = built.Artifact, built.Revision
	signing, err := ex.Signing(ctx)
	if err != nil {
		return nil, err
	}
	b.Provenance, err = signing.Signer.SignStatement(ctx, built.Statement)
	return &b, err
}

// recordBuild records the signed result of a build that succeeded.
func recordBuild(j *store.Job, rep Report, signed *store.Build) error {
	switch {
	case j.Operation != job.OpBuild || rep.Outcome != OutcomeSucceeded:
		return nil
	case rep.Built == nil:
		return withoutArtifact(j.ID)
	case signed == nil:
		return nil // attest found no lease of the attempt, so the state machine refuses the report
	}
	j.Build = signed
	return nil
}

func withoutArtifact(id fairlead.JobID) error {
	return fairlead.Invalid(fairlead.CodeArtifactMissing, "build job %s succeeded without the digest of an artifact and a revision", id)
}

// checkStatement refuses a statement that differs in any byte from that of the job's record and result.
func checkStatement(j store.Job, built Built) error {
	refused := func(what string) error { return statementRefused(j.ID, what) }
	if len(built.Statement) == 0 || len(built.Statement) > events.MaxStatement {
		return refused(fmt.Sprintf("has %d bytes, of at most %d", len(built.Statement), events.MaxStatement))
	}
	p, err := events.ParseStatement(built.Statement)
	if err != nil {
		return refused("cannot be read: " + err.Error())
	}
	want := events.Provenance{Build: j.Build.Build, Artifact: built.Artifact, Revision: built.Revision, Runner: j.Runner, Job: j.ID,
		RunnerVersion: p.RunnerVersion, Started: p.Started, Finished: p.Finished}
	want.Org = j.Org
	switch statement, err := want.Statement(); {
	case err != nil:
		return err
	case !bytes.Equal(statement, built.Statement):
		return refused("is not that of the job and its result")
	}
	return nil
}

func statementRefused(id fairlead.JobID, what string) error {
	return &fairlead.Error{Kind: fairlead.KindInvalid, Code: fairlead.CodeProvenanceRefused, Message: fmt.Sprintf("the provenance that build job %s reports %s", id, what),
		Hint: "Update the agent of the build runner to the version of the control plane, then publish the app again."}
}
