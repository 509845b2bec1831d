package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/plugin"
)

// This file has the models of the plugin of builds, and of the registry to which it pushes.

const (
	buildRunner = "workshop" // the runner that builds; a list of runners by name ends with it
	repository  = "https://git.example.com/app"
)

// commitOf returns the commit of the repository from which a version is built. Two versions have the same commit.
func commitOf(version int) string { return fmt.Sprintf("%040x", (version+1)/2) }

// pushed is an artifact in the registry.
type pushed struct {
	by     holder
	commit string
}

// builder is a model of the plugin of builds. The same commit has another artifact in each attempt, as an image has, so that a
// mixture of two attempts can be seen.
type builder struct{ step *stepProcess }

// Operations implements plugin.Plugin.
func (*builder) Operations() []string { return []string{string(job.OpBuild)} }

// Run implements plugin.Plugin.
func (b *builder) Run(ctx context.Context, spec plugin.Spec, env plugin.Env) (plugin.Result, error) {
	p, w := b.step.p, b.step.h.w
	place := w.place("build", spec.Build.Component, spec.Build.From.Ref)
	p.cross(place+" fetches", 5*time.Millisecond, 3*time.Second)
	fmt.Fprintf(env.Log, "builds %s from %s\n", spec.Build.Component, spec.Build.From.Ref)
	switch w.fault(place, "tool-fails", "tool-slow") {
	case "tool-fails":
		return plugin.Result{}, plugin.Errorf(fairlead.ReasonSourceInvalid, "the repository does not answer")
	case "tool-slow":
		p.cross(place+" slow", 10*time.Second, 2*time.Minute)
	}
	if ctx.Err() != nil {
		return plugin.Result{}, context.Cause(ctx)
	}
	p.cross(place+" pushes", 5*time.Millisecond, 3*time.Second)
	by := holder{spec.Job, spec.Epoch}
	digest := digest([]byte(spec.Build.From.Ref + attempt.ID(spec.Job, spec.Epoch)))
	w.mu.Lock()
	allowed := w.leased(by) // the registry asks the control plane whether the lease is current
	if allowed {
		w.pushed[digest] = pushed{by, spec.Build.From.Ref}
	}
	w.mu.Unlock()
	p.cross(place+" has pushed", time.Millisecond, 100*time.Millisecond)
	if !allowed {
		return plugin.Result{}, plugin.Errorf(fairlead.ReasonArtifactUnavailable, "the registry refuses the lease")
	}
	return plugin.Result{Built: &wire.Built{Artifact: digest, Revision: spec.Build.From.Ref}}, nil
}

// build builds the app and waits for the jobs. It returns them by component.
func (h *person) build(app string, config json.RawMessage) (map[string]string, error) {
	for range 4 {
		var out wire.AppBuilds
		if err := h.until("build", func(ctx context.Context) (err error) {
			out, err = h.c.BuildApp(ctx, app, wire.BuildAppRequest{Config: config})
			return err
		}); err != nil {
			return nil, err
		}
		jobs, failed := map[string]string{}, false
		for _, b := range out.Builds {
			if b.Job == nil {
				continue
			}
			id, state := b.Job.ID, b.Job.State
			for !job.State(state).Final() && !h.w.over() {
				h.w.nap(h.w.between(h.w.place(h.p.name, "waits for a build"), 500*time.Millisecond, 5*time.Second))
				if err := h.until("look at a build", func(ctx context.Context) error {
					j, err := h.c.GetJob(ctx, id)
					if err == nil {
						state = j.State
					}
					return err
				}); err != nil {
					return nil, err
				}
			}
			jobs[b.Component], failed = id, failed || state != string(job.Succeeded)
		}
		if !failed {
			return jobs, nil
		}
	}
	return nil, fmt.Errorf("no build of app %s succeeded", app)
}

// buildWritten checks a written job that builds: what has been built is not built again, and the result is what the attempt that
// reported it has pushed.
func (w *world) buildWritten(was, j store.Job, known bool) {
	w.mu.Lock()
	since, before := w.commits[j.Build.From.Ref]
	made := w.pushed[j.Build.Artifact]
	w.mu.Unlock()
	if !known && before && w.since()-since > 30*time.Second { // the request may have read the versions before
		w.violate("unchanged-is-not-built", "job %s builds %s, of which a version was published at %s", j.ID, j.Build.From.Ref, since)
	}
	if j.Build.Artifact == "" {
		return
	}
	if by := (holder{j.ID, j.Lease.Epoch}); made.by != by || made.commit != j.Build.From.Ref {
		w.violate("builds-have-one-result", "the result of %s is an artifact of %s that %s pushed", by, made.commit, made.by)
	}
	if known && was.Build != nil && was.Build.Artifact != "" && was.Build.Artifact != j.Build.Artifact {
		w.violate("builds-have-one-result", "job %s had another result before", j.ID)
	}
}

// versionWritten checks that the artifact of a published version was built from its commit.
func (w *world) versionWritten(v store.Version) {
	if w.plan.built == "" {
		return
	}
	w.mu.Lock()
	by := v.Builds[w.plan.built]
	j, made := w.jobs[by.Job], w.pushed[v.Artifacts[w.plan.built]]
	if _, ok := w.commits[by.Revision]; !ok {
		w.commits[by.Revision] = w.since()
	}
	w.mu.Unlock()
	wanted := commitIn(v.Config)
	if j.State != job.Succeeded || made.by.job != by.Job || made.commit != wanted {
		w.violate("versions-have-their-artifacts", "version %s has commit %s, and an artifact of %s that %s pushed; job %s is %s", v.ID, wanted, made.commit, made.by, by.Job, j.State)
	}
}

// commitIn returns the commit in the configuration of a version.
func commitIn(config json.RawMessage) string {
	var app struct {
		Components []struct {
			Git struct {
				Ref string `json:"ref"`
			} `json:"git"`
		} `json:"components"`
	}
	if json.Unmarshal(config, &app) == nil {
		for _, c := range app.Components {
			if c.Git.Ref != "" {
				return c.Git.Ref
			}
		}
	}
	return ""
}

// fetches checks that the artifact which a tool would fetch is in the registry.
func (w *world) fetches(spec plugin.Spec) {
	if spec.Component != w.plan.built {
		return
	}
	w.mu.Lock()
	_, ok := w.pushed[spec.Artifact.Digest]
	w.mu.Unlock()
	if !ok {
		w.violate("versions-have-their-artifacts", "%s of %s needs the artifact %s, which no build has pushed", spec.Component, spec.InstallName, spec.Artifact.Digest)
	}
}
