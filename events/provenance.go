package events

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// StatementPayloadType is the payload type of the envelope of an in-toto statement. A job spec has another one, and the
// signature covers it, so neither is accepted as the other.
const StatementPayloadType = "application/vnd.in-toto+json"

// BuildType identifies how a build works and what the parameters of its statement mean. The page describes both. Another
// meaning of a parameter needs another version.
const BuildType = "https://github.com/fairlead/fairlead/blob/main/docs/reference/provenance.md#build-v1"

// MaxStatement is the largest statement of a build that the control plane accepts, in bytes.
const MaxStatement = 16 << 10

const (
	statementType = "https://in-toto.io/Statement/v1"
	predicateType = "https://slsa.dev/provenance/v1"
	builderPrefix = "urn:fairlead:runner:" // the runner's identifier follows
	builderKind   = "fairlead-runner"      // the key of the runner's version
)

// Provenance is what a build did: which artifact it made, from what, when, and on which runner. It holds no secret: the
// statement has what Build.Public returns.
type Provenance struct {
	Build
	Artifact      string // digest of the artifact's manifest, sha256:…
	Revision      string // commit of the repository as hexadecimal digits, or sha256:… of the chart's archive
	Runner        fairlead.RunnerID
	RunnerVersion string
	Job           fairlead.JobID
	Started       time.Time // by the runner's clock
	Finished      time.Time
	SignedBy      string // KeyID of a key that signed the statement; only OpenProvenance sets it
}

// statement is an in-toto statement, version 1 (https://github.com/in-toto/attestation/tree/main/spec/v1).
type statement struct {
	Type          string     `json:"_type"`
	Subject       []resource `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     predicate  `json:"predicate"`
}

// resource is a resource descriptor of in-toto.
type resource struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest"`
}

// predicate is SLSA's provenance, version 1 (https://slsa.dev/spec/v1.1/provenance).
type predicate struct {
	BuildDefinition struct {
		BuildType            string     `json:"buildType"`
		ExternalParameters   parameters `json:"externalParameters"`
		ResolvedDependencies []resource `json:"resolvedDependencies"`
	} `json:"buildDefinition"`
	RunDetails struct {
		Builder struct {
			ID      string            `json:"id"`
			Version map[string]string `json:"version"`
		} `json:"builder"`
		Metadata struct {
			InvocationID fairlead.JobID `json:"invocationId"`
			StartedOn    time.Time      `json:"startedOn"`
			FinishedOn   time.Time      `json:"finishedOn"`
		} `json:"metadata"`
	} `json:"runDetails"`
}

// parameters are the external parameters of BuildType.
type parameters struct {
	Org       fairlead.OrgID `json:"org"`
	App       string         `json:"app"`
	Component string         `json:"component"`
	Type      string         `json:"type"`
	Source    string         `json:"source"`
	Origin    struct {
		Kind  string `json:"kind"`
		URL   string `json:"url"`
		Chart string `json:"chart,omitempty"`
		Ref   string `json:"ref"`
	} `json:"origin"`
	Image *ImageBuild `json:"image,omitempty"`
}

// Statement returns the in-toto statement of p as JSON. The same p has the same bytes. Times are cut to seconds.
func (p Provenance) Statement() ([]byte, error) {
	s := statement{Type: statementType, PredicateType: predicateType,
		Subject: []resource{{Name: p.Component + "/built", Digest: map[string]string{"sha256": strings.TrimPrefix(p.Artifact, "sha256:")}}}}
	b := &s.Predicate.BuildDefinition
	b.BuildType, b.ResolvedDependencies = BuildType, []resource{p.source()}
	b.ExternalParameters = parameters{Org: p.Org, App: p.App, Component: p.Component, Type: p.Type, Source: p.Source, Image: p.Image}
	o := &b.ExternalParameters.Origin
	o.Kind, o.URL, o.Chart, o.Ref = p.From.Kind, p.From.URL, p.From.Chart, p.From.Ref
	r := &s.Predicate.RunDetails
	r.Builder.ID, r.Builder.Version = builderPrefix+string(p.Runner), map[string]string{builderKind: p.RunnerVersion}
	r.Metadata.InvocationID, r.Metadata.StartedOn, r.Metadata.FinishedOn = p.Job, second(p.Started), second(p.Finished)
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return nil, fmt.Errorf("encode the provenance of job %s: %w", p.Job, err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

func second(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// source returns the descriptor of what the build fetched: the URI of a commit has the form of SPDX, "git+URL@REF".
func (p Provenance) source() resource {
	if p.From.Kind == OriginGit {
		return resource{URI: "git+" + p.From.URL + "@" + p.From.Ref, Digest: map[string]string{"gitCommit": p.Revision}}
	}
	digest := map[string]string{"gitCommit": p.Revision} // a module registry can name a git repository
	if sum, ok := strings.CutPrefix(p.Revision, "sha256:"); ok {
		digest = map[string]string{"sha256": sum}
	}
	if p.From.Kind == OriginFolder {
		return resource{Name: p.Component, Digest: digest} // the component's source repository, which each installation of the control plane names differently
	}
	return resource{Name: strings.TrimPrefix(p.From.Chart+"@"+p.From.Ref, "@"), URI: p.From.URL, Digest: digest}
}

// ParseStatement reads a statement of a build. It ignores fields that it does not know, as in-toto requires. It verifies
// no signature, and does not check that the facts are true.
func ParseStatement(payload []byte) (Provenance, error) {
	var s statement
	if err := json.Unmarshal(payload, &s); err != nil {
		return Provenance{}, fmt.Errorf("the statement is not valid JSON: %w", err)
	}
	b, r := s.Predicate.BuildDefinition, s.Predicate.RunDetails
	runner, ok := strings.CutPrefix(r.Builder.ID, builderPrefix)
	switch {
	case s.Type != statementType || s.PredicateType != predicateType:
		return Provenance{}, fmt.Errorf("the statement is a %.100q of type %.100q, not provenance", s.PredicateType, s.Type)
	case b.BuildType != BuildType:
		return Provenance{}, fmt.Errorf("the statement has the build type %.100q, which this version does not know", b.BuildType)
	case len(s.Subject) != 1 || len(b.ResolvedDependencies) != 1 || !ok:
		return Provenance{}, errors.New("the statement does not name one artifact, one source and a runner")
	}
	in := b.ExternalParameters
	p := Provenance{Build: Build{Org: in.Org, App: in.App, Component: in.Component, Type: in.Type, Source: in.Source,
		From: Origin{Kind: in.Origin.Kind, URL: in.Origin.URL, Chart: in.Origin.Chart, Ref: in.Origin.Ref}, Image: in.Image},
		Artifact: "sha256:" + s.Subject[0].Digest["sha256"], Revision: b.ResolvedDependencies[0].Digest["gitCommit"],
		Runner: fairlead.RunnerID(runner), RunnerVersion: r.Builder.Version[builderKind], Job: r.Metadata.InvocationID,
		Started: r.Metadata.StartedOn, Finished: r.Metadata.FinishedOn}
	if sum := b.ResolvedDependencies[0].Digest["sha256"]; p.From.Kind != OriginGit && sum != "" {
		p.Revision = "sha256:" + sum
	}
	return p, nil
}

// SignStatement returns the DSSE envelope, as JSON, around a statement. A key service signs the statement itself if it has
// less than 4,000 bytes, so that tools of others can verify the signature; it signs the digest of a larger one.
func (s *Signer) SignStatement(ctx context.Context, payload []byte) ([]byte, error) {
	key := s.key
	key.whole = true
	es, err := dsse.NewEnvelopeSigner(key)
	if err != nil {
		return nil, fmt.Errorf("sign a statement: %w", err)
	}
	env, err := es.SignPayload(ctx, StatementPayloadType, payload)
	if err != nil {
		return nil, fmt.Errorf("sign a statement: %w", err)
	}
	return json.Marshal(env)
}

// OpenProvenance returns the content of an envelope that at least one key of keys signed. Its error is a *Refusal. An
// envelope may have signatures of further keys.
func OpenProvenance(ctx context.Context, envelope []byte, keys []ed25519.PublicKey) (Provenance, error) {
	var env dsse.Envelope
	if len(envelope) == 0 {
		return Provenance{}, unproven("has no provenance")
	}
	if err := json.Unmarshal(envelope, &env); err != nil {
		return Provenance{}, unproven("has a provenance that is not a DSSE envelope")
	}
	if env.PayloadType != StatementPayloadType {
		return Provenance{}, unproven("has an envelope with %.100q in place of its provenance", env.PayloadType)
	}
	payload, signedBy, err := opened(ctx, &env, keys)
	if err != nil {
		return Provenance{}, unproven("has a provenance that no trusted key signed")
	}
	p, err := ParseStatement(payload)
	if err != nil {
		return Provenance{}, unproven("has a provenance that cannot be read: %v", err)
	}
	p.SignedBy = signedBy
	return p, nil
}

func unproven(format string, args ...any) error {
	return refuse(fairlead.ReasonProvenanceInvalid, "the component's artifact "+format, args...)
}

// Check returns a *Refusal unless p states that a build of want at the revision made the artifact. It ignores
// what Build.Public leaves out.
func (p Provenance) Check(want Build, revision, artifact string) error {
	for _, f := range [][3]string{
		{"the artifact", p.Artifact, artifact},
		{"org", string(p.Org), string(want.Org)},
		{"app", p.App, want.App},
		{"component", p.Component, want.Component},
		{"the type", p.Type, want.Type},
		{"the source folder", p.Source, want.Source},
		{"the kind of source", p.From.Kind, want.From.Kind},
		{"the URL", p.From.URL, want.From.URL},
		{"the chart", p.From.Chart, want.From.Chart},
		{"the ref", p.From.Ref, want.From.Ref},
		{"the revision", p.Revision, revision},
	} {
		if f[1] != f[2] {
			return unproven("has a provenance with %s %.200q, but the app's version has %.200q", f[0], f[1], f[2])
		}
	}
	if !reflect.DeepEqual(p.Image, want.Image) {
		return unproven("has a provenance with other settings of the build than the app's version has")
	}
	return nil
}

// BuiltRef is where the artifact of a component comes from, if a build made it.
type BuiltRef struct {
	Build      Build           `json:"build"`                // as the app declares it, without Vars
	Revision   string          `json:"revision"`             // as in Provenance
	Provenance json.RawMessage `json:"provenance,omitempty"` // DSSE envelope of the statement; absent: the control plane has none
}

// FieldProvenance is the name with which a step declares that it knows JobSpec.Built.
const FieldProvenance = "provenance"

// verifySource returns a refusal unless a key of keys signed that a build made the spec's artifact from the source that the
// spec names. It accepts the artifact of a component that is not built.
func verifySource(ctx context.Context, spec JobSpec, keys []ed25519.PublicKey) error {
	err := spec.Built.prove(ctx, spec, keys)
	if r, ok := errors.AsType[*Refusal](err); ok {
		return refuse(r.Reason, "%s. Nothing was started: publish the app again from the same folder", r.Message)
	}
	return err
}

func (b *BuiltRef) prove(ctx context.Context, spec JobSpec, keys []ed25519.PublicKey) error {
	switch {
	case b == nil && spec.Version.builds(spec.Component):
		return unproven("is built, and the job spec names no source of it")
	case b == nil:
		return nil
	case spec.Artifact == nil || b.Build.Component != spec.Component || spec.Version != nil && b.Build.Org != spec.Version.Org:
		return unproven("is for component %q of org %s, but the job is for component %q", b.Build.Component, b.Build.Org, spec.Component)
	}
	p, err := OpenProvenance(ctx, b.Provenance, keys)
	if err != nil {
		return err
	}
	return p.Check(b.Build, b.Revision, spec.Artifact.Digest)
}

// builds reports whether a build makes the component's artifact by the version's configuration: its source is outside of
// the app's folder, or its image is built. It reads only these five fields, so it also reads the configurations of later
// releases. If a control plane forgets Built, the
// artifact must not count as one from the app's folder.
func (v *VersionRef) builds(component string) bool {
	if v == nil {
		return false
	}
	var config struct {
		Components []struct {
			Name   string          `json:"name"`
			Git    json.RawMessage `json:"git"`
			Chart  json.RawMessage `json:"chart"`
			Module json.RawMessage `json:"module"`
			OCI    json.RawMessage `json:"oci"`
			Build  json.RawMessage `json:"build"`
		} `json:"components"`
	}
	if json.Unmarshal(v.Config, &config) != nil {
		return true // nothing is known of the component, so nothing is taken for granted
	}
	for _, c := range config.Components {
		if c.Name == component {
			return c.Git != nil || c.Chart != nil || c.Module != nil || c.OCI != nil || c.Build != nil
		}
	}
	return false
}
