package control_test

import (
	"crypto/ed25519"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

func (p *plane) provenance(ref string) (control.Provenance, error) {
	return p.Provenance(p.ctx, org, "shop", ref, "web", []ed25519.PublicKey{p.pub})
}

// built builds and publishes the app, and returns its version and the build of web.
func (p *plane) built(src, key string) (control.Version, control.Build) {
	p.t.Helper()
	b := p.build(src, key)
	jobs := map[string]fairlead.JobID{}
	if b.Job != nil {
		jobs["web"] = b.Job.ID
	}
	v, err := p.publishBuilt(src, jobs)
	if err != nil {
		p.t.Fatal(err)
	}
	return v, b
}

// installOnBuilder creates the install acme of app shop on the only runner of the plane with a session.
func (p *plane) installOnBuilder() {
	p.t.Helper()
	p.must("create install", func() error {
		_, err := p.CreateInstall(p.ctx, org, control.NewInstall{Name: "acme", App: "shop", Runner: "builder", Inputs: secretPassword()}, "create-acme")
		return err
	})
}

// provenanceStory: a build's provenance is signed, shown, and in the spec of each job of the component; an altered one is
// replaced by publishing again.
func provenanceStory(p *plane, e engine.Engine) {
	p.t.Helper()
	p.builderAt()
	v, b := p.built(fromGit(commitA), "1")
	got, err := p.provenance(string(v.ID))
	if err != nil {
		p.t.Fatal(err)
	}
	if got.Artifact != v.Artifacts["web"] || got.Revision != v.Builds["web"].Revision || got.Job != b.Job.ID || got.From.Ref != commitA || got.Org != org || got.RunnerVersion != "v1.2.3" {
		p.t.Errorf("the provenance is %+v", got.Provenance)
	}

	p.installOnBuilder()
	var spec events.JobSpec
	p.stepFault = func(s events.JobSpec) stepFault {
		if s.Component == "web" {
			spec = s
		}
		return none
	}
	d := p.deploy("acme", control.NewDeployment{AutoApprove: true}, "d")
	p.work()
	if s := p.deployment(d); s.State != deployment.Succeeded || spec.Built == nil || spec.Built.Revision != got.Revision || string(spec.Built.Provenance) != string(got.Envelope) {
		p.t.Errorf("the deployment is %s; its spec has %+v", s.State, spec.Built)
	}

	p.alter(e, engine.Key{Partition: "JOB#" + string(b.Job.ID), Sort: "JOB"}, func(s string) string {
		return strings.Replace(s, "application/vnd.in-toto+json", "application/vnd.in-tot0+json", 1)
	})
	_, err = p.provenance(string(v.ID))
	expectCode(p.t, "an altered provenance", err, fairlead.CodeProvenanceInvalid)
	again, b := p.built(fromGit(commitA), "2") // what the advice states; the commit would not be built again otherwise
	if again.New || again.ID != v.ID || b.Job == nil || again.Builds["web"].Job != b.Job.ID {
		p.t.Errorf("published again, the version is %s, new: %t, built by %+v", again.ID, again.New, again.Builds["web"])
	}
	if got, err := p.provenance(string(v.ID)); err != nil || got.Job != b.Job.ID {
		p.t.Errorf("published again, its provenance is of job %s, %v", got.Job, err)
	}
}

func TestProvenanceOnSQLite(t *testing.T) {
	t.Parallel()
	c, e := newClock(), sqliteTable(t)
	provenanceStory(newPlaneAt(t, e, c.now, c.sleep), e)
}

func TestProvenanceOnDynamoDB(t *testing.T) {
	t.Parallel()
	c, e := newClock(), dynamoTable(t, "provenance")
	provenanceStory(newPlaneAt(t, e, c.now, c.sleep), e)
}

// A build runner reports a statement that is not about its job. The control plane signs nothing, and the build fails.
func TestOnlyTheTruthAboutABuildIsSigned(t *testing.T) {
	about := func(change func(*events.Provenance)) func(*plane, events.JobSpec, *control.Built) {
		return func(p *plane, spec events.JobSpec, b *control.Built) {
			facts, err := events.ParseStatement(b.Statement)
			if err != nil {
				p.t.Fatal(err)
			}
			change(&facts)
			if b.Statement, err = facts.Statement(); err != nil {
				p.t.Fatal(err)
			}
		}
	}
	for name, lie := range map[string]func(*plane, events.JobSpec, *control.Built){
		"no statement, from an older runner": func(_ *plane, _ events.JobSpec, b *control.Built) { b.Statement = nil },
		"not JSON":                           func(_ *plane, _ events.JobSpec, b *control.Built) { b.Statement = []byte("no") },
		"too long": func(_ *plane, _ events.JobSpec, b *control.Built) {
			b.Statement = append(b.Statement, strings.Repeat(" ", events.MaxStatement)...)
		},
		"a further field": func(_ *plane, _ events.JobSpec, b *control.Built) {
			b.Statement = []byte(strings.Replace(string(b.Statement), `{"_type"`, `{"more":1,"_type"`, 1))
		},
		"a second subject": func(_ *plane, _ events.JobSpec, b *control.Built) {
			b.Statement = []byte(strings.Replace(string(b.Statement), `"subject":[`, `"subject":[{"name":"x","digest":{"sha256":"00"}},`, 1))
		},
		"another artifact than it pushed":  func(p *plane, _ events.JobSpec, b *control.Built) { b.Artifact = "sha256:" + strings.Repeat("9", 64) },
		"another commit than it reports":   about(func(f *events.Provenance) { f.Revision = commitB }),
		"another repository":               about(func(f *events.Provenance) { f.From.URL = "https://git.example.com/other" }),
		"another ref":                      about(func(f *events.Provenance) { f.From.Ref = "v2" }),
		"another component":                about(func(f *events.Provenance) { f.Component = "network" }),
		"another app":                      about(func(f *events.Provenance) { f.App = "blog" }),
		"another org":                      about(func(f *events.Provenance) { f.Org = "other" }),
		"the job of another build":         about(func(f *events.Provenance) { f.Job = "job_other" }),
		"the name of another build runner": about(func(f *events.Provenance) { f.Runner = "run_other" }),
		"a digest that is not one":         func(_ *plane, _ events.JobSpec, b *control.Built) { b.Artifact = "latest" },
		"no result at all":                 func(_ *plane, _ events.JobSpec, b *control.Built) { *b = control.Built{} },
		"another type, which checks less":  about(func(f *events.Provenance) { f.Type = "script" }),
		"another folder of the repository": about(func(f *events.Provenance) { f.Source = "." }),
		"a chart in place of a git commit": about(func(f *events.Provenance) { f.From.Kind = events.OriginChart }),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := withBuilder(t)
				p.rebuilt = func(s events.JobSpec, b *control.Built) { lie(p, s, b) }
				var refused error
				p.finished = func(err error) bool { refused = err; return err != nil }
				b := p.build(fromGit("v1"), "1")
				code := fairlead.CodeOf(refused)
				if code != fairlead.CodeProvenanceRefused && code != fairlead.CodeArtifactMissing || fairlead.KindOf(refused) != fairlead.KindInvalid {
					t.Errorf("the report is answered with %v", refused)
				}
				if j, err := p.Job(p.ctx, org, b.Job.ID); err != nil || j.State == job.Succeeded || j.Build.Artifact != "" {
					t.Errorf("the build is %s with %+v, %v", j.State, j.Build, err)
				}
			})
		})
	}
}

// A person with write access to the table, but without the signing key, changes what a version names as its build. The step
// is the one that refuses: the spec itself is signed.
func TestStepRefusesAForeignProvenance(t *testing.T) {
	for name, alter := range map[string]func(p *plane, e engine.Engine, v control.Version, own, other fairlead.JobID){
		"the build of another commit": func(p *plane, e engine.Engine, v control.Version, own, other fairlead.JobID) {
			p.alter(e, engine.Key{Partition: "VERSION#" + string(v.ID), Sort: "VERSION"}, func(b string) string { return strings.Replace(b, string(own), string(other), 1) })
		},
		"no build": func(p *plane, e engine.Engine, v control.Version, own, _ fairlead.JobID) {
			p.alter(e, engine.Key{Partition: "VERSION#" + string(v.ID), Sort: "VERSION"}, func(b string) string { return strings.Replace(b, string(own), "job_gone", 1) })
		},
		"another revision": func(p *plane, e engine.Engine, v control.Version, _, _ fairlead.JobID) {
			p.alter(e, engine.Key{Partition: "VERSION#" + string(v.ID), Sort: "VERSION"}, func(b string) string {
				return strings.Replace(b, v.Builds["web"].Revision, commitB, 1)
			})
		},
		"a signature of another key": func(p *plane, e engine.Engine, _ control.Version, own, _ fairlead.JobID) {
			p.alter(e, engine.Key{Partition: "JOB#" + string(own), Sort: "JOB"}, func(b string) string { return forged(p.t, b) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := enginetest.Memory()
				p := newPlane(t, e).builderAt()
				_, other := p.built(fromGit(commitB), "1")
				v, own := p.built(fromGit(commitA), "2")
				p.installOnBuilder()
				alter(p, e, v, own.Job.ID, other.Job.ID)
				p.deploy("acme", control.NewDeployment{AutoApprove: true}, "d")
				c, err := p.Claim(p.ctx, p.session, 0)
				for ; err == nil && c.Component != "web"; c, err = p.Claim(p.ctx, p.session, 0) {
					p.step(c)
				}
				if err != nil {
					t.Fatal(err)
				}
				started, err := p.StartJob(p.ctx, c.ID, c.Lease.Epoch, "step-1234", events.FieldVersion, events.FieldProvenance)
				if err != nil {
					t.Fatal(err)
				}
				_, err = events.Verify(p.ctx, started.Envelope, []ed25519.PublicKey{p.pub}, events.Expect{Runner: p.session.Runner, Install: c.InstallName,
					Job: c.ID, Epoch: c.Lease.Epoch, Operation: string(c.Operation), Operations: []string{string(c.Operation)}}, p.Now())
				if r, ok := err.(*events.Refusal); !ok || r.Reason != fairlead.ReasonProvenanceInvalid {
					t.Errorf("the step gets %v, want a refusal of the provenance", err)
				}
			})
		})
	}
}

// A step refuses a spec with a field that it does not know.
func TestOlderStepGetsNoProvenance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := withBuilder(t)
		p.built(fromGit(commitA), "1")
		p.installOnBuilder()
		p.deploy("acme", control.NewDeployment{AutoApprove: true}, "d")
		c, err := p.Claim(p.ctx, p.session, 0)
		for ; err == nil && c.Component != "web"; c, err = p.Claim(p.ctx, p.session, 0) {
			p.step(c)
		}
		if err != nil {
			t.Fatal(err)
		}
		started, err := p.StartJob(p.ctx, c.ID, c.Lease.Epoch, "step-1234", events.FieldVersion)
		if err != nil {
			t.Fatal(err)
		}
		var env struct{ Payload []byte }
		if err := json.Unmarshal(started.Envelope, &env); err != nil || len(env.Payload) == 0 || strings.Contains(string(env.Payload), `"built":`) {
			t.Errorf("the step gets %s, %v", env.Payload, err)
		}
	})
}

// forged signs the provenance in the record of a job again, with another key.
func forged(t *testing.T, record string) string {
	t.Helper()
	var r struct {
		Build struct{ Provenance json.RawMessage }
	}
	if err := json.Unmarshal([]byte(record), &r); err != nil {
		t.Fatal(err)
	}
	var env struct{ Payload []byte }
	if err := json.Unmarshal(r.Build.Provenance, &env); err != nil {
		t.Fatal(err)
	}
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := events.NewSigner(key).SignStatement(t.Context(), env.Payload)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Replace(record, string(r.Build.Provenance), string(again), 1)
}

func TestNoProvenanceOfWhatNoBuildMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := enginetest.Memory()
		p := newPlane(t, e).builderAt()
		v, b := p.built(fromGit("v1"), "1")
		for name, tc := range map[string]struct {
			ref, component string
			want           fairlead.Code
		}{
			"packed from the app's folder": {string(v.ID), "network", fairlead.CodeProvenanceNotFound},
			"no such component":            {string(v.ID), "api", fairlead.CodeComponentNotFound},
			"no such version":              {"v9", "web", fairlead.CodeVersionNotFound},
		} {
			_, err := p.Provenance(p.ctx, org, "shop", tc.ref, tc.component, []ed25519.PublicKey{p.pub})
			expectCode(t, name, err, tc.want)
		}
		_, err := p.Provenance(p.ctx, "other", "shop", string(v.ID), "web", []ed25519.PublicKey{p.pub})
		expectCode(t, "another org", err, fairlead.CodeVersionNotFound)
		_, err = p.Provenance(p.ctx, org, "shop", string(v.ID), "web", nil)
		expectCode(t, "a control plane whose keys are others now", err, fairlead.CodeProvenanceInvalid)

		p.alter(e, engine.Key{Partition: "JOB#" + string(b.Job.ID), Sort: "JOB"}, func(s string) string { return strings.Replace(s, `"provenance":`, `"forgotten":`, 1) })
		_, err = p.provenance(string(v.ID))
		expectCode(t, "a build of an earlier control plane", err, fairlead.CodeProvenanceNotFound)
	})
}
