package control_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// commitA and commitB are two commits of a repository.
var commitA, commitB = strings.Repeat("a", 40), strings.Repeat("b", 40)

// withBuilder is a plane with a runner that builds.
func withBuilder(t *testing.T) *plane {
	return newPlane(t, enginetest.Memory()).builderAt()
}

// builderAt adds a runner that builds, and a session of it.
func (p *plane) builderAt() *plane {
	p.must("make the build runner", func() error {
		return p.EnsureRunner(p.ctx, org, control.NewRunner{Name: "builder", File: control.RunnerFile{Set: []string{"runner_configuration.type=local",
			"runner_configuration.builds=true", "state_storage_configuration.type=local"}}})
	})
	p.enrolAt("builder")
	return p
}

// fromGit returns the app shop whose component web is in a repository at the ref.
func fromGit(ref string) string {
	return appOf("  network: {type: terraform, source: ./network}\n  web: {type: terraform, source: web, git: {url: https://git.example.com/shop, ref: " + ref + "}}\n")
}

func (p *plane) canonical(src string) []byte {
	p.t.Helper()
	app, problems := appspec.Parse("app.yaml", []byte(src))
	if problems != nil {
		p.t.Fatal(problems)
	}
	c, err := app.Canonical()
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

// build requests the builds of the app, runs them and returns the only one.
func (p *plane) build(src, key string) control.Build {
	p.t.Helper()
	var out []control.Build
	p.must("build", func() (err error) { out, err = p.BuildApp(p.ctx, org, "shop", p.canonical(src), nil, key); return })
	if len(out) != 1 || out[0].Component != "web" {
		p.t.Fatalf("the builds are %+v, want one of web: network is in the app's folder", out)
	}
	p.work()
	return out[0]
}

func (p *plane) publishBuilt(src string, jobs map[string]fairlead.JobID) (control.Version, error) {
	return p.Publish(p.ctx, org, "shop", control.NewVersion{Config: p.canonical(src), Artifacts: map[string]string{"network": "sha256:" + strings.Repeat("1", 64)}, Builds: jobs})
}

func TestVersionHasTheArtifactOfItsBuild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := withBuilder(t)
		var spec events.JobSpec
		p.stepFault = func(s events.JobSpec) stepFault { spec = s; return none }
		b := p.build(fromGit("v1"), "key-1")
		if b.Job == nil || b.Job.Operation != job.OpBuild || b.Job.RunnerName != "builder" || b.Job.Install != "" {
			t.Fatalf("the build is %+v", b.Job)
		}
		if spec.Push != "orgs/default/shop/web/built" || spec.Build == nil || spec.Build.From != (events.Origin{Kind: "git", URL: "https://git.example.com/shop", Ref: "v1"}) || spec.Build.Source != "web" || spec.Build.Type != "terraform" {
			t.Errorf("the spec is %+v, to %s", spec.Build, spec.Push)
		}
		again, err := p.BuildApp(p.ctx, org, "shop", p.canonical(fromGit("v1")), nil, "key-1")
		if err != nil || len(again) != 1 || again[0].Job == nil || again[0].Job.ID != b.Job.ID {
			t.Errorf("the repeated request queues %+v, %v", again, err)
		}
		v, err := p.publishBuilt(fromGit("v1"), map[string]fairlead.JobID{"web": b.Job.ID})
		if err != nil {
			t.Fatal(err)
		}
		j, err := p.Job(p.ctx, org, b.Job.ID)
		if err != nil || j.Build.Artifact == "" || v.Artifacts["web"] != j.Build.Artifact || v.Builds["web"].Revision != j.Build.Revision || v.Builds["web"].Job != j.ID {
			t.Errorf("the version has %v and %+v, the job %+v, %v", v.Artifacts, v.Builds, j.Build, err)
		}
	})
}

// A commit always has the same files. A tag or branch may have other files at each build.
func TestOnlyACommitIsNotBuiltAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := withBuilder(t)
		first := p.build(fromGit(commitA), "1")
		if _, err := p.publishBuilt(fromGit(commitA), map[string]fairlead.JobID{"web": first.Job.ID}); err != nil {
			t.Fatal(err)
		}
		b := p.build(fromGit(commitB), "2")
		if b.Job == nil {
			t.Fatal("another commit is not built")
		}
		if _, err := p.publishBuilt(fromGit(commitB), map[string]fairlead.JobID{"web": b.Job.ID}); err != nil {
			t.Fatal(err)
		}
		if again := p.build(fromGit(commitA), "3"); again.Job != nil || again.Earlier.Job != first.Job.ID || again.Earlier.Artifact == "" {
			t.Errorf("the commit of the version before is built again: %+v", again)
		}
		if v, err := p.publishBuilt(fromGit(commitA), nil); err != nil || v.Builds["web"].Job != first.Job.ID || v.New {
			t.Errorf("the version is %+v, %v", v, err)
		}
		elsewhere := strings.Replace(fromGit(commitA), "source: web", "source: api", 1)
		if b := p.build(elsewhere, "4"); b.Job == nil {
			t.Error("another folder of the commit is not built")
		}
		tag := p.build(fromGit("v1"), "5")
		if _, err := p.publishBuilt(fromGit("v1"), map[string]fairlead.JobID{"web": tag.Job.ID}); err != nil {
			t.Fatal(err)
		}
		if again := p.build(fromGit("v1"), "6"); again.Job == nil {
			t.Error("a tag is not looked up again")
		}
	})
}

// The lock of a closed app needs a chart before the app has a version. The version has the artifact of the same build.
func TestBuildWithoutAVersionIsUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := withBuilder(t)
		first := p.build(fromGit(commitA), "1")
		if again := p.build(fromGit(commitA), "2"); again.Job != nil || again.Earlier.Job != first.Job.ID || again.Earlier.Artifact == "" {
			t.Errorf("the commit is built again: %+v", again)
		}
		if b := p.build(strings.Replace(fromGit(commitA), "ref: ", "credentials: OTHER, ref: ", 1), "3"); b.Job == nil {
			t.Error("a source with another login is not built")
		}
		v, err := p.publishBuilt(fromGit(commitA), nil)
		if err != nil || v.Builds["web"].Job != first.Job.ID {
			t.Errorf("the version is %+v, %v", v, err)
		}
		p.stepFault = func(events.JobSpec) stepFault { return fails }
		p.build(fromGit(commitB), "4")
		p.stepFault = nil
		if b := p.build(fromGit(commitB), "5"); b.Job == nil {
			t.Error("a build that failed is used")
		} else if time.Sleep(13 * time.Hour); p.build(fromGit(commitB), "6").Job == nil {
			t.Error("a build whose artifact the registry may have removed is used")
		}
		if b := p.build(fromGit("v1"), "7"); b.Job == nil || p.build(fromGit("v1"), "8").Job == nil {
			t.Error("a tag is not looked up again")
		}
	})
}

func TestPublishRefusesWhatWasNotBuilt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := withBuilder(t)
		good := p.build(fromGit("v1"), "1")
		p.stepFault = func(events.JobSpec) stepFault { return fails }
		failed := p.build(fromGit("v2"), "2")
		p.stepFault = nil
		var check control.Job
		p.must("check", func() (err error) { check, err = p.CheckRunner(p.ctx, me, "builder", "3"); return })
		p.work()
		for name, tc := range map[string]struct {
			src  string
			jobs map[string]fairlead.JobID
			want fairlead.Code
		}{
			"no build":                     {fromGit("v1"), nil, fairlead.CodeBuildMissing},
			"a build of another ref":       {fromGit("v2"), map[string]fairlead.JobID{"web": good.Job.ID}, fairlead.CodeBuildMissing},
			"a build that failed":          {fromGit("v2"), map[string]fairlead.JobID{"web": failed.Job.ID}, fairlead.CodeBuildMissing},
			"a job that is no build":       {fromGit("v1"), map[string]fairlead.JobID{"web": check.ID}, fairlead.CodeBuildMissing},
			"a job that does not exist":    {fromGit("v1"), map[string]fairlead.JobID{"web": "job_none"}, fairlead.CodeBuildMissing},
			"a build of another component": {fromGit("v1"), map[string]fairlead.JobID{"web": good.Job.ID, "network": good.Job.ID}, fairlead.CodeArtifactUnknown},
		} {
			if v, err := p.publishBuilt(tc.src, tc.jobs); fairlead.CodeOf(err) != tc.want {
				t.Errorf("%s: %+v, %v; want %s", name, v.Artifacts, err, tc.want)
			}
		}
		given := control.NewVersion{Config: p.canonical(fromGit("v1")), Artifacts: map[string]string{"network": "sha256:" + strings.Repeat("1", 64), "web": "sha256:" + strings.Repeat("2", 64)},
			Builds: map[string]fairlead.JobID{"web": good.Job.ID}}
		if v, err := p.Publish(p.ctx, org, "shop", given); fairlead.CodeOf(err) != fairlead.CodeArtifactUnknown {
			t.Errorf("an artifact that a person gives for a built component: %+v, %v", v.Artifacts, err)
		}
	})
}

func TestWithoutABuildRunnerNothingIsQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		_, err := p.BuildApp(p.ctx, org, "shop", p.canonical(fromGit("v1")), nil, "1")
		if fairlead.CodeOf(err) != fairlead.CodeNoBuildRunner {
			t.Errorf("%v, want %s", err, fairlead.CodeNoBuildRunner)
		}
		jobs, _, err := p.Jobs(p.ctx, org, fairlead.PageQuery{})
		if err != nil || slices.ContainsFunc(jobs, func(j control.Job) bool { return j.Operation == job.OpBuild }) {
			t.Errorf("%v, %v", jobs, err)
		}
	})
}

// A build changes nothing, so its loss is repaired by another attempt.
func TestLostBuildIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := withBuilder(t)
		dies := true
		p.stepFault = func(events.JobSpec) stepFault {
			if dies {
				dies = false
				return vanishes
			}
			return none
		}
		b := p.build(fromGit("v1"), "1")
		if j, err := p.Job(p.ctx, org, b.Job.ID); err != nil || j.State != job.Succeeded || j.Attempts != 2 {
			t.Errorf("the build is %s after %d attempts, %v", j.State, j.Attempts, err)
		}
	})
}
