package step

import (
	"context"
	"crypto/ed25519"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
)

// builder is a plugin that reports the result of a build.
type builder struct{ built wire.Built }

func (*builder) Operations() []string { return []string{"build"} }

func (b *builder) Run(context.Context, plugin.Spec, plugin.Env) (plugin.Result, error) {
	return plugin.Result{Built: &b.built}, nil
}

// aBuild is a build of component web, and its result.
func aBuild() (events.Build, wire.Built) {
	return events.Build{Org: "default", App: "shop", Component: "web", Type: "script", Source: ".",
			From: events.Origin{Kind: events.OriginGit, URL: "https://git.example.com/shop", Ref: "v1"}},
		wire.Built{Artifact: "sha256:" + strings.Repeat("a", 64), Revision: strings.Repeat("c", 40)}
}

func TestBuildReportsWhatItDid(t *testing.T) {
	b, built := aBuild()
	began := time.Now().Add(-time.Second)
	report, _ := runSpec(t, &builder{built}, events.JobSpec{Operation: "build", Build: &b, Push: "orgs/default/shop/web/built"})
	if report.Outcome != "succeeded" || report.Built == nil {
		t.Fatalf("the report is %+v", report)
	}
	p, err := events.ParseStatement(report.Built.Statement)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Check(b, built.Revision, built.Artifact); err != nil {
		t.Error(err)
	}
	if p.Runner != "run_1" || p.RunnerVersion != "v1.2.3" || p.Job != "job_1" || p.Started.Before(began.Truncate(time.Second)) || p.Finished.Before(p.Started) || p.Finished.After(time.Now()) {
		t.Errorf("the statement is %+v", p)
	}
}

// The control plane signed the spec, but cannot show that a build made the artifact from the source of the component. The
// step fetches nothing and starts no tool.
func TestArtifactWithoutProvenanceStartsNoTool(t *testing.T) {
	b, built := aBuild()
	envelope := func(artifact string, key ed25519.PrivateKey) []byte {
		payload, err := events.Provenance{Build: b, Artifact: artifact, Revision: built.Revision, Runner: "run_9", Job: "job_9", Started: time.Now(), Finished: time.Now()}.Statement()
		if err != nil {
			t.Fatal(err)
		}
		e, err := events.NewSigner(key).SignStatement(t.Context(), payload)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	_, other, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	good := envelope(built.Artifact, testKey())
	for name, tc := range map[string]struct {
		envelope []byte
		started  bool
	}{
		"its provenance":                   {good, true},
		"none":                             {nil, false},
		"that of another artifact":         {envelope("sha256:"+strings.Repeat("b", 64), testKey()), false},
		"signed by a key that is not ours": {envelope(built.Artifact, other), false},
		"altered after it was signed":      {[]byte(strings.Replace(string(good), `"payload":"e`, `"payload":"f`, 1)), false},
	} {
		t.Run(name, func(t *testing.T) {
			p := &tool{}
			report, _ := runSpec(t, p, events.JobSpec{Component: "web", Operation: "apply", Artifact: &events.ArtifactRef{Digest: built.Artifact},
				Built: &events.BuiltRef{Build: b, Revision: built.Revision, Provenance: tc.envelope}})
			if p.started != tc.started {
				t.Fatalf("started: %t; reported: %+v", p.started, report)
			}
			if !tc.started && (report.Outcome != "failed" || report.Reason != string(fairlead.ReasonProvenanceInvalid) || !strings.Contains(report.Message, "Nothing was started")) {
				t.Errorf("the report is %+v", report)
			}
		})
	}
}
