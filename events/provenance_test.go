package events_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

var (
	theCommit   = strings.Repeat("c0", 20)
	theArtifact = "sha256:" + strings.Repeat("aa", 32)
	theArchive  = "sha256:" + strings.Repeat("bb", 32)
)

// built returns the provenance of component web of full, from a git repository.
func built() events.Provenance {
	return events.Provenance{
		Build: events.Build{Org: "default", App: "shop", Component: "web", Type: "terraform", Source: "modules/web",
			From: events.Origin{Kind: events.OriginGit, URL: "https://git.example.com/shop.git", Ref: "v1.4.0", Credentials: "GIT_TOKEN"}, Vars: []string{"size"}},
		Artifact: theArtifact, Revision: theCommit, Runner: "run_09", RunnerVersion: "v1.2.3", Job: "job_09", Started: t0, Finished: t0.Add(3*time.Second + time.Millisecond)}
}

// charted returns the provenance of a chart of a repository of charts.
func charted() events.Provenance {
	p := built()
	p.Type, p.Source, p.Revision = "helm", ".", theArchive
	p.From = events.Origin{Kind: events.OriginChart, URL: "https://charts.example.com", Chart: "web", Ref: "1.2.0"}
	return p
}

// imaged returns the provenance of an image of a packed folder.
func imaged() events.Provenance {
	p := built()
	p.Type, p.Source, p.Revision = "docker-build", ".", theArchive
	p.From = events.Origin{Kind: events.OriginFolder, Ref: theArchive}
	p.Image = &events.ImageBuild{Dockerfile: "Dockerfile", Target: "small", Platforms: []string{"linux/amd64", "linux/arm64"}, Args: map[string]string{"A": "b"}}
	return p
}

func statementOf(t testing.TB, p events.Provenance) []byte {
	t.Helper()
	b, err := p.Statement()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func signStatement(t testing.TB, k ed25519.PrivateKey, p events.Provenance) []byte {
	t.Helper()
	b, err := events.NewSigner(k).SignStatement(t.Context(), statementOf(t, p))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// moduled returns the provenance of a module of a registry, which names a git repository or an archive.
func moduled(revision string) events.Provenance {
	p := built()
	p.From, p.Revision = events.Origin{Kind: events.OriginModule, URL: "acme/vpc/aws", Ref: "5.8.1"}, revision
	return p
}

func TestProvenanceIsReadAsItWasSigned(t *testing.T) {
	for name, p := range map[string]events.Provenance{"git": built(), "chart": charted(), "module-git": moduled(built().Revision), "module-archive": moduled(charted().Revision), "image": imaged()} {
		t.Run(name, func(t *testing.T) {
			golden(t, "provenance-"+name+".v1.json", statementOf(t, p))
			got, err := events.OpenProvenance(t.Context(), signStatement(t, key(2), p), []ed25519.PublicKey{public(1), public(2)})
			if err != nil {
				t.Fatal(err)
			}
			want := p
			want.SignedBy = events.KeyID(public(2))
			want.Vars, want.From.Credentials, want.Finished = nil, "", p.Finished.Truncate(time.Second)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("the provenance is %+v, want %+v", got, want)
			}
			if err := got.Check(p.Build, p.Revision, p.Artifact); err != nil {
				t.Error(err)
			}
		})
	}
}

// The types of the in-toto project accept every field, and find each fact under its name in the specification.
func TestOfficialTypesReadTheStatement(t *testing.T) {
	for name, tc := range map[string]struct {
		p   events.Provenance
		uri string
	}{
		"git":   {built(), "git+https://git.example.com/shop.git@v1.4.0"},
		"chart": {charted(), "https://charts.example.com"},
		"image": {imaged(), ""},
	} {
		t.Run(name, func(t *testing.T) {
			var s intoto.Statement
			if err := protojson.Unmarshal(statementOf(t, tc.p), &s); err != nil {
				t.Fatal(err)
			}
			raw, err := protojson.Marshal(s.GetPredicate())
			if err != nil {
				t.Fatal(err)
			}
			var p slsa.Provenance
			if err := protojson.Unmarshal(raw, &p); err != nil {
				t.Fatal(err)
			}
			if err := s.Validate(); err != nil {
				t.Error(err)
			}
			if err := p.Validate(); err != nil {
				t.Error(err)
			}
			subject, source, run := s.GetSubject()[0], p.GetBuildDefinition().GetResolvedDependencies()[0], p.GetRunDetails()
			if s.GetPredicateType() != "https://slsa.dev/provenance/v1" || "sha256:"+subject.GetDigest()["sha256"] != theArtifact || source.GetUri() != tc.uri {
				t.Errorf("the statement is about %v, from %v", subject, source)
			}
			if run.GetBuilder().GetId() != "urn:fairlead:runner:run_09" || run.GetMetadata().GetInvocationId() != "job_09" || !run.GetMetadata().GetStartedOn().AsTime().Equal(t0) {
				t.Errorf("the run is %v", run)
			}
		})
	}
}

func TestStatementHoldsNoCredentials(t *testing.T) {
	if b := statementOf(t, built()); bytes.Contains(b, []byte("GIT_TOKEN")) || bytes.Contains(b, []byte("size")) {
		t.Errorf("the statement is %s", b)
	}
}

// A verifier of DSSE needs to know nothing of this project: the signature is one of Ed25519 over the bytes that DSSE defines.
func TestStatementOfAKeyServiceIsPlainDSSE(t *testing.T) {
	long := built()
	long.From.URL = "https://git.example.com/" + strings.Repeat("x", 4096)
	for name, tc := range map[string]struct {
		p     events.Provenance
		plain bool
	}{
		"the service signs the statement itself":               {built(), true},
		"a statement that is too long is signed by its digest": {long, false},
	} {
		t.Run(name, func(t *testing.T) {
			most := 0
			remote := events.NewRemoteSigner(public(1), func(_ context.Context, m []byte) ([]byte, error) {
				most = max(most, len(m))
				return ed25519.Sign(key(1), m), nil
			})
			envelope, err := remote.SignStatement(t.Context(), statementOf(t, tc.p))
			if err != nil {
				t.Fatal(err)
			}
			var env dsse.Envelope
			if err := json.Unmarshal(envelope, &env); err != nil {
				t.Fatal(err)
			}
			if env.Signatures[0].KeyID != "" {
				t.Errorf("the key ID is %q: verifiers of others refuse IDs of another form than theirs", env.Signatures[0].KeyID)
			}
			payload, sig := decoded(t, env.Payload), decoded(t, env.Signatures[0].Sig)
			if plain := ed25519.Verify(public(1), dsse.PAE("application/vnd.in-toto+json", payload), sig); plain != tc.plain || most > 4096 {
				t.Errorf("the signature is plain: %t, and the service signed %d bytes", plain, most)
			}
			if _, err := events.OpenProvenance(t.Context(), envelope, []ed25519.PublicKey{public(1)}); err != nil {
				t.Error(err)
			}
		})
	}
}

func decoded(t testing.TB, text string) []byte {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// versionOf returns an app's version with the configuration.
func versionOf(t testing.TB, config string) *events.VersionRef {
	t.Helper()
	artifacts := map[string]string{"web": theArtifact}
	id, err := events.VersionID("default", []byte(config), artifacts)
	if err != nil {
		t.Fatal(err)
	}
	return &events.VersionRef{ID: id, Org: "default", Config: []byte(config), Artifacts: artifacts}
}

// builtSpec returns a spec for full's job whose artifact a build made, and the version of its app.
func builtSpec(t testing.TB, envelope []byte) events.JobSpec {
	t.Helper()
	s, p := full(), built()
	s.Artifact.Digest = theArtifact
	s.Version = versionOf(t, `{"components":[{"name":"db","type":"terraform","source":"db"},{"name":"web","type":"terraform","git":{"url":"https://git.example.com/shop.git","ref":"v1.4.0"},"source":"modules/web"}]}`)
	s.Built = &events.BuiltRef{Build: p.Build, Revision: theCommit, Provenance: envelope}
	s.Built.Build.From.Credentials, s.Built.Build.Vars = "", nil
	return s
}

// A registry, its operator, a writer of the table or another org offers an artifact that no build of this component made
// from this source. The control plane signs the spec, and the step refuses it before it fetches anything.
func TestArtifactWithoutItsProvenanceIsRefused(t *testing.T) {
	with := func(change func(*events.Provenance)) []byte {
		p := built()
		change(&p)
		return signStatement(t, key(1), p)
	}
	good := with(func(*events.Provenance) {})
	for name, tc := range map[string]struct {
		envelope []byte
		spec     func(*events.JobSpec)
		refused  string // in the message; "": accepted
	}{
		"its provenance": {good, nil, ""},
		"no provenance, of a build before there was any": {nil, nil, "no provenance"},
		"not an envelope": {[]byte(`"x"`), nil, "not a DSSE envelope"},
		"another artifact that the same build runner made":               {with(func(p *events.Provenance) { p.Artifact = theArchive }), nil, "the artifact"},
		"the artifact of another component":                              {with(func(p *events.Provenance) { p.Component = "api" }), nil, "component"},
		"the artifact of another app":                                    {with(func(p *events.Provenance) { p.App = "blog" }), nil, "app"},
		"the artifact of another org, whose build runner claims the URL": {with(func(p *events.Provenance) { p.Org = "evil" }), nil, "org"},
		"another commit":                              {with(func(p *events.Provenance) { p.Revision = strings.Repeat("d0", 20) }), nil, "the revision"},
		"another repository":                          {with(func(p *events.Provenance) { p.From.URL = "https://git.example.com/fork.git" }), nil, "the URL"},
		"another tag of the same commit":              {with(func(p *events.Provenance) { p.From.Ref = "v1.4.1" }), nil, "the ref"},
		"another folder of the repository":            {with(func(p *events.Provenance) { p.Source = "." }), nil, "the source folder"},
		"a build that checked it as another type":     {with(func(p *events.Provenance) { p.Type = "script" }), nil, "the type"},
		"a chart in place of a commit":                {signStatement(t, key(1), charted()), nil, "the type"},
		"signed by a key that the runner did not pin": {signStatement(t, key(3), built()), nil, "no trusted key"},
		"signed as a job spec":                        {signRaw(t, key(1), events.SpecPayloadType, string(statementOf(t, built()))), nil, "an envelope with"},
		"signed as a job spec, with a changed type": {bytes.Replace(signRaw(t, key(1), events.SpecPayloadType, string(statementOf(t, built()))),
			[]byte(events.SpecPayloadType), []byte(events.StatementPayloadType), 1), nil, "no trusted key"},
		"an altered payload": {bytes.Replace(good, []byte(`"payload":"e`), []byte(`"payload":"f`), 1), nil, "no trusted key"},
		"no signature":       {[]byte(`{"payloadType":"application/vnd.in-toto+json","payload":"e30=","signatures":[]}`), nil, "no trusted key"},
		"a signed job spec in place of a provenance":                 {sign(t, key(1), full()), nil, "an envelope with"},
		"a statement of another predicate":                           {signRaw(t, key(1), events.StatementPayloadType, strings.Replace(string(statementOf(t, built())), "slsa.dev/provenance/v1", "slsa.dev/provenance/v2", 1)), nil, "cannot be read"},
		"a build of a type that the runner does not know":            {signRaw(t, key(1), events.StatementPayloadType, strings.Replace(string(statementOf(t, built())), "#build-v1", "#build-v2", 1)), nil, "cannot be read"},
		"a field of a later version is ignored, as in-toto requires": {signRaw(t, key(1), events.StatementPayloadType, strings.Replace(string(statementOf(t, built())), `{"_type"`, `{"later":1,"_type"`, 1)), nil, ""},
		"a spec that forgets the source of a component from git":     {good, func(s *events.JobSpec) { s.Built = nil }, "names no source"},
		"a spec that forgets the source of a chart": {good, func(s *events.JobSpec) {
			s.Built, s.Version = nil, versionOf(t, `{"components":[{"name":"web","type":"helm","chart":{"url":"oci://example.com/web","version":"1.2.0"}}]}`)
		}, "names no source"},
		"a spec that forgets the source of a module": {good, func(s *events.JobSpec) {
			s.Built, s.Version = nil, versionOf(t, `{"components":[{"name":"web","type":"terraform","module":{"source":"acme/web/aws","version":"1.2.0"}}]}`)
		}, "names no source"},
		"a spec that forgets the source of an OCI artifact": {good, func(s *events.JobSpec) {
			s.Built, s.Version = nil, versionOf(t, `{"components":[{"name":"web","type":"plugin","oci":{"url":"oci://example.com/web","digest":"sha256:0"}}]}`)
		}, "names no source"},
		"a spec that forgets that an image was built": {good, func(s *events.JobSpec) {
			s.Built, s.Version = nil, versionOf(t, `{"components":[{"name":"web","type":"docker-build","source":"web","build":{"dockerfile":"Dockerfile"}}]}`)
		}, "names no source"},
		"a build with settings of an image": {with(func(p *events.Provenance) { p.Image = imaged().Image }), nil, "other settings of the build"},
		"a component of the app's folder needs none": {nil, func(s *events.JobSpec) {
			s.Built, s.Version = nil, versionOf(t, `{"components":[{"name":"api","git":{}},{"name":"web","type":"terraform","source":"web"}]}`)
		}, ""},
		"a spec whose provenance is of another component": {good, func(s *events.JobSpec) { s.Built.Build.Component = "api" }, "component"},
		"a spec whose provenance is of another org":       {good, func(s *events.JobSpec) { s.Built.Build.Org = "evil" }, "org"},
	} {
		t.Run(name, func(t *testing.T) {
			s := builtSpec(t, tc.envelope)
			if tc.spec != nil {
				tc.spec(&s)
			}
			got, err := verify(sign(t, key(1), s), public(2), public(1))
			if tc.refused == "" {
				if err != nil || got.Artifact == nil {
					t.Fatalf("refused: %v", err)
				}
				return
			}
			if r := reason(t, err); r != fairlead.ReasonProvenanceInvalid || !strings.Contains(err.Error(), tc.refused) || !strings.Contains(err.Error(), "Nothing was started") {
				t.Errorf("got reason %q (%v), want %q about %s", r, err, fairlead.ReasonProvenanceInvalid, tc.refused)
			}
			if !reflect.DeepEqual(got, events.JobSpec{}) {
				t.Error("Verify returns the refused spec")
			}
		})
	}
}

// The build runner may sign too, with a key that steps do not know yet. The envelope has the same form then.
func TestProvenanceMayHaveFurtherSignatures(t *testing.T) {
	var ours, theirs dsse.Envelope
	for env, k := range map[*dsse.Envelope]byte{&ours: 1, &theirs: 7} {
		if err := json.Unmarshal(signStatement(t, key(k), built()), env); err != nil {
			t.Fatal(err)
		}
	}
	for name, signatures := range map[string][]dsse.Signature{
		"the control plane's first": {ours.Signatures[0], theirs.Signatures[0]},
		"the runner's first":        {theirs.Signatures[0], ours.Signatures[0]},
	} {
		ours.Signatures = signatures
		both, err := json.Marshal(ours)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := verify(sign(t, key(1), builtSpec(t, both)), public(1)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A statement is never a job spec, although one key signs both.
func TestStatementIsNoJobSpec(t *testing.T) {
	envelope, err := events.NewSigner(key(1)).SignStatement(t.Context(), []byte(`{"v":1}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, e := range map[string][]byte{"as signed": envelope, "with the type of a spec": bytes.Replace(envelope, []byte(events.StatementPayloadType), []byte(events.SpecPayloadType), 1)} {
		if _, err := verify(e, public(1)); err == nil {
			t.Errorf("%s: a statement is accepted as a job spec", name)
		}
	}
}

// A build with other settings has another image, so its provenance proves nothing about the image of these settings.
func TestProvenanceOfOtherSettingsIsRefused(t *testing.T) {
	for name, change := range map[string]func(*events.Build){
		"another arg":        func(b *events.Build) { b.Image.Args = map[string]string{"A": "c"} },
		"no arg":             func(b *events.Build) { b.Image.Args = nil },
		"another target":     func(b *events.Build) { b.Image.Target = "" },
		"another platform":   func(b *events.Build) { b.Image.Platforms = b.Image.Platforms[:1] },
		"another Dockerfile": func(b *events.Build) { b.Image.Dockerfile = "other" },
		"no image":           func(b *events.Build) { b.Image = nil },
		"another folder":     func(b *events.Build) { b.From.Ref = theArtifact },
	} {
		want := imaged()
		image := *want.Image
		want.Image = &image
		change(&want.Build)
		err := imaged().Check(want.Build, want.Revision, want.Artifact)
		if r, ok := errors.AsType[*events.Refusal](err); !ok || r.Reason != fairlead.ReasonProvenanceInvalid {
			t.Errorf("%s: %v", name, err)
		}
		if imaged().Same(want.Build) {
			t.Errorf("%s: it is the same build", name)
		}
	}
	if !imaged().Same(imaged().Build) || imaged().Check(imaged().Build, theArchive, theArtifact) != nil {
		t.Error("the same settings are refused")
	}
}
