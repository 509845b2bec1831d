package events

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// SpecPayloadType is the payload type of a job spec's envelope. It is signed
// along with the payload, so no other signed document passes for a spec.
const SpecPayloadType = "application/vnd.fairlead.job-spec.v1+json"

// JobSpec is all that a step may do: one operation, on one component of one
// install, for one epoch, until it expires. A step does nothing that its spec
// does not say, and believes no spec that a pinned key has not signed.
type JobSpec struct {
	V           int                   `json:"v"` // 1
	Runner      fairlead.RunnerID     `json:"runner"`
	Install     fairlead.InstallID    `json:"install,omitempty"`
	InstallName string                `json:"install_name,omitempty"`
	Deployment  fairlead.DeploymentID `json:"deployment,omitempty"`
	Job         fairlead.JobID        `json:"job"`
	Epoch       int64                 `json:"epoch"`
	Component   string                `json:"component,omitempty"`
	Plugin      string                `json:"plugin"`
	Operation   string                `json:"operation"`
	IssuedAt    time.Time             `json:"issued_at"`
	ExpiresAt   time.Time             `json:"expires_at"`
	Timeout     Seconds               `json:"timeout_seconds"`    // of the whole step
	Grace       Seconds               `json:"grace_seconds"`      // between interrupt and kill
	Artifact    *ArtifactRef          `json:"artifact,omitempty"` // the component's source
	Version     *VersionRef           `json:"version,omitempty"`  // the app version that it is of; only for a step that knows the field
	Vars        map[string]SpecVar    `json:"vars,omitempty"`     // of an apply or destroy, those of its plan: what is sensitive is masked
	State       *StateRef             `json:"state,omitempty"`    // where the tool keeps its state
	Plan        *PlanRef              `json:"plan,omitempty"`     // the saved plan to apply
	Move        []MovedState          `json:"move,omitempty"`     // states to be copied to another storage
	Applied     *Inputs               `json:"applied,omitempty"`  // what the component has been applied with, of a type whose plan needs it; nil: it is not there, or an apply of it has not succeeded since
	Env         map[string]string     `json:"env,omitempty"`      // of the tool; never secret
	// SecretEnv is more of it, kept out of argv, logs and summaries.
	SecretEnv map[string]string `json:"secret_env,omitempty"`
}

// Seconds is a whole number of seconds.
type Seconds int64

// Duration converts s.
func (s Seconds) Duration() time.Duration { return time.Duration(s) * time.Second }

// ArtifactRef names an OCI artifact in the control plane's registry.
type ArtifactRef struct {
	Repository string `json:"repository"`
	Digest     string `json:"digest"` // sha256:…
}

// VersionRef is an app version, with all that its identifier is made from.
type VersionRef struct {
	ID        fairlead.VersionID `json:"id"`
	Org       fairlead.OrgID     `json:"org"`
	Config    []byte             `json:"config"`    // the app's configuration, byte for byte
	Artifacts map[string]string  `json:"artifacts"` // digest by component
}

// FieldVersion is JobSpec.Version as a step names it that knows it. A step refuses a
// spec with a field that it does not know, so an older one is sent none.
const FieldVersion = "version"

// VersionID returns the identifier of an app version: a digest of the org, the
// canonical configuration, and the digests of the artifacts by component.
func VersionID(org fairlead.OrgID, config []byte, artifacts map[string]string) (fairlead.VersionID, error) {
	b, err := json.Marshal(artifacts) // maps are written in the order of their keys
	if err != nil {
		return "", fmt.Errorf("hash version: %w", err)
	}
	sum := sha256.Sum256(bytes.Join([][]byte{[]byte(org), config, b}, []byte{'\n'}))
	return fairlead.VersionID(fairlead.PrefixVersion + "_" + hex.EncodeToString(sum[:])[:26]), nil
}

// check reports a version whose content has another identifier, or another artifact
// for the component than the spec.
func (v *VersionRef) check(spec JobSpec) error {
	switch id, err := VersionID(v.Org, v.Config, v.Artifacts); {
	case err != nil:
		return refuse(fairlead.ReasonSpecMalformed, "the job spec's app version cannot be read")
	case id != v.ID:
		return refuse(fairlead.ReasonSpecArtifact, "the job spec says that its component is of version %s of the app, but what it says of that version has the identifier %s. Nothing was started: the version's record may have been altered; publish the app again from the same folder", v.ID, id)
	case spec.Artifact == nil || spec.Artifact.Digest == "" || spec.Artifact.Digest != v.Artifacts[spec.Component]:
		return refuse(fairlead.ReasonSpecArtifact, "the job spec names another artifact than version %s of the app has for component %q. Nothing was started: the version's record may have been altered; publish the app again from the same folder", v.ID, spec.Component)
	}
	return nil
}

// SpecVar is the value of one of the tool's input variables. A sensitive one
// is kept out of argv, logs and summaries.
type SpecVar struct {
	Value     json.RawMessage `json:"value"`
	Sensitive bool            `json:"sensitive,omitempty"`
}

// StateRef says where the state is. Storage is "local" (the runner's own disk),
// "http" (the control plane, at Path below the runner API), or one of the
// customer's: "s3", "gcs", "azurerm", "kubernetes". Key tells the states of a
// storage apart, and is never given to another component again.
type StateRef struct {
	Storage string      `json:"storage"`
	Key     string      `json:"key"` // <install id>/<component>
	Path    string      `json:"path,omitempty"`
	In      *StateStore `json:"in,omitempty"` // nil: the storage needs no more to be found
}

// StateStore says where a storage is, and no more: how to be let in is the
// business of whoever runs the job, and no credential is in here. Each kind has
// those fields that are named for it.
type StateStore struct {
	Bucket   string `json:"bucket,omitempty"`   // s3, gcs
	Prefix   string `json:"prefix,omitempty"`   // s3, gcs, azurerm; before all keys, without slashes at its ends
	KMSKey   string `json:"kms_key,omitempty"`  // s3, gcs; that encrypts, else the bucket's own
	Region   string `json:"region,omitempty"`   // s3
	Endpoint string `json:"endpoint,omitempty"` // s3; URL of a server that is not AWS

	Account       string `json:"account,omitempty"`        // azurerm; storage account
	Container     string `json:"container,omitempty"`      // azurerm
	ResourceGroup string `json:"resource_group,omitempty"` // azurerm
	Subscription  string `json:"subscription,omitempty"`   // azurerm

	Namespace string `json:"namespace,omitempty"` // kubernetes; of the cluster in which the job runs
	Folder    string `json:"folder,omitempty"`    // local; absolute, else below the runner's data folder
}

// MovedState is the state of a component that is to be copied from one storage
// to another, where it may be already, in part or whole.
type MovedState struct {
	Component string   `json:"component"`
	From      StateRef `json:"from"`
	To        StateRef `json:"to"`
}

// PlanRef names the saved plan that was approved: what the plan job stored,
// byte for byte.
type PlanRef struct {
	Job    fairlead.JobID `json:"job"`
	Digest string         `json:"digest"` // sha256:… of the saved plan file
}

// Refusal says why a step does not run a spec.
type Refusal struct {
	Reason  fairlead.Reason // ReasonSpec…
	Message string
}

func (r *Refusal) Error() string { return r.Message }

func refuse(reason fairlead.Reason, format string, args ...any) error {
	return &Refusal{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// KeyID names a public key: the first 16 hex digits of its SHA-256.
func KeyID(pub ed25519.PublicKey) string {
	sum := sha256.Sum256(pub)
	return hex.EncodeToString(sum[:8])
}

// Signer signs envelopes with one Ed25519 key. Safe for concurrent use.
type Signer struct{ key signerVerifier }

// NewSigner returns a Signer for a key that is at hand.
func NewSigner(key ed25519.PrivateKey) *Signer {
	return &Signer{key: signerVerifier{key: key, pub: key.Public().(ed25519.PublicKey)}}
}

// NewRemoteSigner returns a Signer for a key that a key service keeps. sign
// returns the key's Ed25519 signature of a message of less than 100 bytes: such
// services take no long ones (AWS KMS 4,096 bytes), so a digest is signed.
func NewRemoteSigner(pub ed25519.PublicKey, sign func(ctx context.Context, message []byte) ([]byte, error)) *Signer {
	return &Signer{key: signerVerifier{pub: pub, remote: sign}}
}

// Public returns the key that verifies what s signs.
func (s *Signer) Public() ed25519.PublicKey { return s.key.pub }

// Sign returns the DSSE envelope, as JSON, around spec.
func (s *Signer) Sign(ctx context.Context, spec JobSpec) ([]byte, error) {
	spec.V = 1
	payload, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("encode spec of job %s: %w", spec.Job, err)
	}
	es, err := dsse.NewEnvelopeSigner(s.key)
	if err != nil {
		return nil, fmt.Errorf("sign spec of job %s: %w", spec.Job, err)
	}
	env, err := es.SignPayload(ctx, SpecPayloadType, payload)
	if err != nil {
		return nil, fmt.Errorf("sign spec of job %s: %w", spec.Job, err)
	}
	return json.Marshal(env)
}

// Expect is what the agent was told when it claimed the job. A spec that says
// anything else was meant for somebody else.
type Expect struct {
	Runner     fairlead.RunnerID
	Install    string             // name; "" when the claim named none
	InstallID  fairlead.InstallID // "" when the claim named none, as those of an older control plane
	Job        fairlead.JobID
	Epoch      int64
	Operation  string
	Operations []string // that this runner supports
}

// MaxEnvelope is the largest envelope that a step reads, in bytes: its payload, in
// base64, is as large as the variables of a component may be, and some more.
const MaxEnvelope = 28 << 20

// clockSkew is how far a runner's clock may be behind or ahead of the control
// plane's before a fresh spec is refused.
const clockSkew = 2 * time.Minute

// Verify opens an envelope. It returns a *Refusal, and no spec, unless one of
// keys signed it and it says exactly what want says, now.
func Verify(ctx context.Context, envelope []byte, keys []ed25519.PublicKey, want Expect, now time.Time) (JobSpec, error) {
	if len(envelope) > MaxEnvelope {
		return JobSpec{}, refuse(fairlead.ReasonSpecMalformed, "the job spec is larger than %d bytes", MaxEnvelope)
	}
	var env dsse.Envelope
	if err := json.Unmarshal(envelope, &env); err != nil {
		return JobSpec{}, refuse(fairlead.ReasonSpecMalformed, "the job spec is not a DSSE envelope")
	}
	if env.PayloadType != SpecPayloadType {
		return JobSpec{}, refuse(fairlead.ReasonSpecMalformed, "the envelope holds %.100q, not a job spec", env.PayloadType)
	}
	verifiers := make([]dsse.Verifier, len(keys))
	for i, k := range keys {
		verifiers[i] = signerVerifier{pub: k}
	}
	ev, err := dsse.NewEnvelopeVerifier(verifiers...)
	if err != nil {
		return JobSpec{}, refuse(fairlead.ReasonSpecSignature, "no verification key is pinned, so no job spec can be trusted")
	}
	_, payload, err := ev.VerifyAndDecode(ctx, &env)
	if err != nil {
		return JobSpec{}, refuse(fairlead.ReasonSpecSignature, "the job spec is not signed by a pinned key")
	}
	var spec JobSpec
	dec := json.NewDecoder(bytes.NewReader(payload))
	dec.DisallowUnknownFields() // an unknown field might be a restriction that we would ignore
	err = dec.Decode(&spec)
	if err == nil && dec.More() {
		err = errors.New("more than one document")
	}
	if err != nil {
		return JobSpec{}, refuse(fairlead.ReasonSpecVersion, "the job spec holds something this runner does not know; a newer runner may")
	}
	if spec.V != 1 {
		return JobSpec{}, refuse(fairlead.ReasonSpecVersion, "the job spec is of version %d, this runner knows 1", spec.V)
	}
	if err := check(spec, want, now); err != nil {
		return JobSpec{}, err
	}
	return spec, nil
}

func check(spec JobSpec, want Expect, now time.Time) error {
	switch {
	case spec.Runner != want.Runner:
		return refuse(fairlead.ReasonSpecRunner, "the job spec is for runner %s, this is %s", spec.Runner, want.Runner)
	case spec.InstallName != want.Install:
		return refuse(fairlead.ReasonSpecInstall, "the job spec is for install %q, the claim was for %q", spec.InstallName, want.Install)
	case want.InstallID != "" && spec.Install != want.InstallID:
		return refuse(fairlead.ReasonSpecInstall, "the job spec is for install %s, the claim was for %s", spec.Install, want.InstallID)
	case spec.Job != want.Job:
		return refuse(fairlead.ReasonSpecJob, "the spec is for job %s, the claim was for %s", spec.Job, want.Job)
	case spec.Epoch != want.Epoch:
		return refuse(fairlead.ReasonSpecEpoch, "the job spec is for epoch %d, the claim was for %d", spec.Epoch, want.Epoch)
	case spec.Operation != want.Operation:
		return refuse(fairlead.ReasonSpecOperation, "the job spec says %s, the claim said %s", spec.Operation, want.Operation)
	case now.After(spec.ExpiresAt.Add(clockSkew)):
		return refuse(fairlead.ReasonSpecExpired, "the job spec expired at %s", spec.ExpiresAt.UTC().Format(time.RFC3339))
	case now.Add(clockSkew).Before(spec.IssuedAt):
		return refuse(fairlead.ReasonSpecExpired, "the job spec was issued at %s, which is in this runner's future: check the clock", spec.IssuedAt.UTC().Format(time.RFC3339))
	}
	if spec.Version != nil {
		if err := spec.Version.check(spec); err != nil {
			return err
		}
	}
	for _, op := range want.Operations {
		if op == spec.Operation {
			return nil
		}
	}
	return refuse(fairlead.ReasonSpecOperation, "this runner's %s plugin does not support %q", spec.Plugin, spec.Operation)
}

// signerVerifier adapts Ed25519 to dsse. key and remote are nil in a verifier.
type signerVerifier struct {
	key    ed25519.PrivateKey
	remote func(ctx context.Context, message []byte) ([]byte, error)
	pub    ed25519.PublicKey
}

func (s signerVerifier) Sign(ctx context.Context, data []byte) ([]byte, error) {
	if s.remote == nil {
		return ed25519.Sign(s.key, data), nil
	}
	sig, err := s.remote(ctx, digestMessage(data))
	if err != nil {
		return nil, err
	}
	// A service that answers with anything else would stop every step.
	return sig, s.Verify(ctx, data, sig)
}

// digestMessage is what a remote key signs in place of data. No data begins
// like it (DSSE's encoding begins with "DSSEv1 "), so a signature of the one
// never is one of the other.
func digestMessage(data []byte) []byte {
	sum := sha512.Sum512(data)
	return append([]byte("fairlead sha512 v1\n"), sum[:]...)
}

// Verify accepts a signature of data, and one of its digest.
func (s signerVerifier) Verify(_ context.Context, data, sig []byte) error {
	if len(s.pub) != ed25519.PublicKeySize || !ed25519.Verify(s.pub, data, sig) && !ed25519.Verify(s.pub, digestMessage(data), sig) {
		return errors.New("signature does not verify")
	}
	return nil
}

func (s signerVerifier) KeyID() (string, error) { return KeyID(s.pub), nil }

func (s signerVerifier) Public() crypto.PublicKey { return s.pub }
